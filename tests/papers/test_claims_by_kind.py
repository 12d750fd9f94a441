"""Claims on made-up tables: they hold where each method behaves as the sentence says, and are contradicted elsewhere.

Each case is written from the claim's sentence: method -> the number of rounds, the level or the roughness of its curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outcome import judge

from workspace.analysis.claim import Arm, Claim, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import Where, readings
from workspace.papers.hcsfed.theory import SCHEMES

T, SEEDS = 40, 5
T_OF_PAPER = 2000  # the longest that a paper follows a run
COLUMNS = ("test_accuracy", "client_accuracy", "train_loss", "train_loss_std")
Shape = Callable[[float, np.ndarray], np.ndarray]
Values = Mapping[str, float]


def rising_at(rounds: float, t: np.ndarray) -> np.ndarray:
    """At an accuracy of 0.95 from a round on."""
    return np.where(t >= rounds, 0.95, 0.1)


def level(height: float, t: np.ndarray) -> np.ndarray:
    return np.full(len(t), height)


def wavering(step: float, t: np.ndarray) -> np.ndarray:
    return 0.5 + step * (t % 2)


H = [f"H = {n}" for n in range(5, 11)]
SOME, BETWEEN = ["R = 5 %", "R = 100 %"], ["R = 10 %", "R = 20 %", "R = 40 %"]
CLUSTERED = ["Algorithm 1", "Algorithm 2"]
MEASURES = ["Algorithm 2", "Algorithm 2 (L1)", "Algorithm 2 (squared L2)"]
BETAS = [f"FedCor, β = {beta}" for beta in ("0.5", "0.75", "0.9", "0.95", "0.99", "1")]


HALVES = [np.arange(50), np.arange(50, 100)]  # two groups of clients


def md(sizes: np.ndarray, m: int) -> np.ndarray:
    """(m, n) sampling probabilities of MD sampling: every draw by data share."""
    return np.tile(sizes / sizes.sum(), (m, 1))


def all_at(value: float, names: Iterable[str]) -> dict[str, float]:
    return dict.fromkeys(names, value)


ENDS = {"HCSFed": 20, "Cluster": 40, "Importance": 40, "Random": 40, "SCAFFOLD": 40, "IFCA": 40}
TURNED = {name: 60 - rounds for name, rounds in ENDS.items()}
CASES: list[tuple[str, Shape, Values, Values]] = [
    ("cs.M.a", level, {"MD": 0.8} | all_at(0.7, CLUSTERED), {"MD": 0.7} | all_at(0.8, CLUSTERED)),
    ("cs.M.b", wavering, {"MD": 0.2} | all_at(0.1, CLUSTERED), {"MD": 0.1} | all_at(0.2, CLUSTERED)),
    ("cs.M.e", level, {"MD": 0.8} | all_at(0.808, CLUSTERED), {"MD": 0.8} | all_at(0.824, CLUSTERED)),
    ("cs.F1.j", level, {"MD": 0.8} | all_at(0.7, CLUSTERED), {"MD": 0.7} | all_at(0.8, CLUSTERED)),
    ("cs.F2.f", wavering, {"MD": 0.2, "Algorithm 2": 0.1}, {"MD": 0.1, "Algorithm 2": 0.2}),
    ("cs.F6.a", level, all_at(0.8, MEASURES) | {"Algorithm 2 (L1)": 0.81},
     all_at(0.8, MEASURES) | {"Algorithm 2 (L1)": 0.84}),
    ("cs.F6.c", level, {"MD": 0.8} | all_at(0.7, MEASURES), {"MD": 0.7} | all_at(0.8, MEASURES)),
    ("cs.F7.a", level, {"MD": 0.6, "Algorithm 2": 0.61}, {"MD": 0.61, "Algorithm 2": 0.6}),
    ("cs.F7.b", level, {"MD": 0.6, "Algorithm 2": 0.597}, {"MD": 0.6, "Algorithm 2": 0.593}),
    ("cs.F9.a", level, {"MD": 0.6, "Algorithm 2": 0.61}, {"MD": 0.61, "Algorithm 2": 0.6}),
    ("cs.F10.a", level, {"MD": 0.8} | all_at(0.7, CLUSTERED), {"MD": 0.7} | all_at(0.8, CLUSTERED)),
    ("fedcor.T1.e", rising_at, {"FedCor": 100, "Pow-d": 130}, {"FedCor": 100, "Pow-d": 90}),
    ("fedcor.F6.c", level, {"Random": 0.6} | all_at(0.65, BETAS), {"Random": 0.65} | all_at(0.6, BETAS)),
    ("hcsfed.T1.a", rising_at, ENDS, TURNED),
    ("hcsfed.T1.b", rising_at, ENDS, TURNED),
    ("hcsfed.T1.f", rising_at, {"HCSFed": 20, "Cluster": 25}, {"HCSFed": 20, "Cluster": 40}),
    ("hcsfed.T1.l", rising_at, {"Random, attrition": 40, "Random, plain mean": 20},
     {"Random, attrition": 20, "Random, plain mean": 40}),
    ("hcsfed.T1.g", rising_at, {"Random": 80, "SCAFFOLD": 40, "Cluster": 20},
     {"Random": 20, "SCAFFOLD": 40, "Cluster": 80}),
    ("hcsfed.T1.h", rising_at, {"Random": 80, "Importance": 40, "Cluster": 20},
     {"Random": 20, "Importance": 40, "Cluster": 80}),
    ("hcsfed.F3.a", rising_at, ENDS, TURNED),
    ("hcsfed.F4a.b", rising_at, all_at(14, H) | {"H = 10": 10}, all_at(20, H) | {"H = 10": 10}),
    ("hcsfed.F5.b", rising_at, all_at(14, H) | {"H = 10": 10}, all_at(20, H) | {"H = 10": 10}),
    ("hcsfed.F6.b", rising_at, all_at(14, H) | {"H = 10": 10}, all_at(20, H) | {"H = 10": 10}),
    ("hcsfed.F4a.a", level, all_at(0.49, H) | {"H = 10": 0.5}, all_at(0.48, H) | {"H = 10": 0.5}),
    ("hcsfed.F5.a", level, all_at(0.48, H) | {"H = 10": 0.5}, all_at(0.46, H) | {"H = 10": 0.5}),
    ("hcsfed.F6.a", level, all_at(0.48, H) | {"H = 10": 0.5}, all_at(0.46, H) | {"H = 10": 0.5}),
    ("hcsfed.F4b.b", rising_at, all_at(40, SOME) | all_at(20, BETWEEN), all_at(20, SOME) | all_at(40, BETWEEN)),
    ("hcsfed.F5.d", rising_at, all_at(40, SOME) | all_at(20, BETWEEN), all_at(20, SOME) | all_at(40, BETWEEN)),
    ("hcsfed.F6.d", rising_at, all_at(40, SOME) | all_at(20, BETWEEN), all_at(20, SOME) | all_at(40, BETWEEN)),
    ("hcsfed.F4b.a", level, all_at(0.4, SOME) | all_at(0.5, BETWEEN), all_at(0.5, SOME) | all_at(0.4, BETWEEN)),
    ("hcsfed.F5.c", level, all_at(0.4, SOME) | all_at(0.5, BETWEEN), all_at(0.5, SOME) | all_at(0.4, BETWEEN)),
    ("hcsfed.F6.c", level, all_at(0.4, SOME) | all_at(0.5, BETWEEN), all_at(0.5, SOME) | all_at(0.4, BETWEEN)),
    ("hcsfed.F7a.a", level, {"HCSFed": 0.91, "FedAvg": 0.81}, {"HCSFed": 0.84, "FedAvg": 0.85}),
    ("hcsfed.F7a.b", level, {"HCSFed": 0.89, "FedAvg": 0.83}, {"HCSFed": 0.81, "FedAvg": 0.91}),
    ("hcsfed.F7a.c", level, {"HCSFed": 0.08, "FedAvg": 0.12}, {"HCSFed": 0.15, "FedAvg": 0.15}),
    ("hcsfed.F7b.a", rising_at, {"FedAvg": 156, "+cluster": 60, "+importance": 75},
     {"FedAvg": 60, "+cluster": 60, "+importance": 75}),
    ("hcsfed.F7b.b", rising_at, {"+importance": 40, "+cluster": 20}, {"+importance": 20, "+cluster": 40}),
    ("hcsfed.F7b.c", rising_at,
     {"+cluster": 40, "+cluster+re-allocation": 20, "+cluster+importance": 20, "HCSFed": 20},
     {"+cluster": 20, "+cluster+re-allocation": 40, "+cluster+importance": 40, "HCSFed": 40}),
    ("hcsfed.F7b.d", level, {"HCSFed": 0.9, "SCAFFOLD": 0.88}, {"HCSFed": 0.88, "SCAFFOLD": 0.9}),
    ("hics.S.a", level, {"HiCS-FL": 0.5} | all_at(0.45, ("Random", "Pow-d", "CS", "DivFL", "FedCor")),
     {"HiCS-FL": 0.4} | all_at(0.45, ("Random", "Pow-d", "CS", "DivFL", "FedCor"))),
]  # fmt: skip


def claim_of(id: str) -> Claim:
    return next(claim for paper in papers() for claim in claims_of(paper) if claim.id == id)


def places(id: str) -> dict[Where, Arm]:
    """Where a claim's runs are, under its paper's first reading, and the claim's own name of them."""
    claim = claim_of(id)
    reading = readings(claim.paper)[0]
    return {reading.find(arm.where): arm for cell in claim.cells for arm in cell.arms}


def curves(id: str, values: Callable[[Arm], float], shape: Shape) -> dict[str, pd.DataFrame]:
    """The tables of a claim's experiments: one curve per method, in all columns, equal for all seeds."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for where, arm in places(id).items():
        value = values(arm)
        t = (
            np.unique([0, 1, np.ceil(value) - 1, np.ceil(value), 2 * T_OF_PAPER])
            if value > 1
            else np.arange(T + 1)
        )
        curve = shape(value, t)
        for seed in range(SEEDS):
            part = pd.DataFrame({"round": t, **dict.fromkeys(COLUMNS, curve), "seed": seed})
            labels = {"experiment": where.experiment, "setting": where.setting, "method": where.method}
            tables.setdefault(where.experiment, []).append(part.assign(**labels))
    return {name: pd.concat(parts).assign(diverged=False, notes=None) for name, parts in tables.items()}


@pytest.mark.parametrize(("id", "shape", "said", "denied"), CASES, ids=[id for id, *_ in CASES])
def test_a_claim_holds_as_said_and_is_contradicted_as_denied(id, shape, said, denied):
    assert {arm.where.method for arm in places(id).values()} <= set(said)
    assert judge(id, curves(id, lambda arm: said[arm.where.method], shape)).outcome == "holds"
    assert judge(id, curves(id, lambda arm: denied[arm.where.method], shape)).outcome == "contradicted"


@pytest.mark.parametrize(("id", "too_far"), [("fedcor.T1.c", 2.5), ("hics.T1.c", 2.5), ("hcsfed.T1.j", 0.5)])
def test_printed_rounds_are_those_of_the_runs_up_to_a_factor(id, too_far):
    for factor, outcome in ((1.0, "holds"), (too_far, "contradicted")):
        runs = curves(id, lambda arm, by=factor: by * min(arm.printed, T_OF_PAPER), rising_at)
        assert judge(id, runs).outcome == outcome


@pytest.mark.parametrize(("rounds", "outcome"), [(220, "holds"), (150, "contradicted")])
def test_print_that_says_not_reached_is_met_by_no_run_that_arrives(rounds, outcome):
    """Where "not in 200 rounds" is printed, 150 is no agreement, though it is within a factor of 1.5 of 200."""

    def printed_or(arm: Arm) -> float:
        return rounds if arm.printed > T_OF_PAPER else arm.printed

    assert judge("hcsfed.T1.i", curves("hcsfed.T1.i", printed_or, rising_at)).outcome == outcome


@pytest.mark.parametrize(
    ("id", "denied"),
    [
        ("hcsfed.T1.b", lambda rounds: 1700 / rounds),
        ("hcsfed.T1.d", lambda rounds: 1400 / rounds),
        ("hcsfed.T1.e", lambda rounds: 20 if rounds == 8 else rounds),
    ],
)
def test_table_1_with_the_printed_rounds_and_with_others(id, denied):
    def rounds(arm: Arm) -> float:
        return min(arm.printed, 201)

    assert judge(id, curves(id, rounds, rising_at)).outcome == "holds"
    assert judge(id, curves(id, lambda arm: denied(rounds(arm)), rising_at)).outcome == "contradicted"


@pytest.mark.parametrize(("points", "outcome"), [(1, "holds"), (2, "contradicted")])
def test_printed_accuracies_of_one_client_that_has_all_data(points, outcome):
    runs = curves("fedcor.S5.a", lambda arm: (arm.printed - points) / 100, level)
    assert judge("fedcor.S5.a", runs).outcome == outcome


def alpha_of(arm: Arm) -> float:
    return float(arm.where.setting.rpartition("alpha = ")[2])


@pytest.mark.parametrize("id", ["hcsfed.F3.b", "hcsfed.T1.k"])
def test_a_speed_up_that_grows_with_heterogeneity(id):
    """Random needs 120 rounds; HCSFed 60, 40 or 30, the fewer the smaller alpha is, and the other way round."""
    alphas = sorted({alpha_of(arm) for arm in places(id).values()})
    for order, outcome in ((1, "holds"), (-1, "contradicted")):
        rounds = dict(zip(alphas[::order], (30, 40, 60), strict=False))
        runs = curves(
            id, lambda arm, by=rounds: {"Random": 120}.get(arm.where.method, by[alpha_of(arm)]), rising_at
        )
        assert judge(id, runs).outcome == outcome


def draws(method: str, **columns: list) -> pd.DataFrame:
    n = len(next(iter(columns.values())))
    frame = pd.DataFrame(
        {"draw": range(n), "seed": 0, "setting": "gap 4, rate 1", "method": method, **columns}
    )
    return frame.assign(experiment="fedcor_toy")


def test_fedcors_toy():
    near = [0.1, 0.11, 0.12, 0.1, 0.13]
    far = [0.5, 0.52, 0.51, 0.5, 0.53]
    both, alike = [(0, 1)] * 5, [(1, 1)] * 5

    def toy(cor: list[float], ind: list[float], labels: list) -> dict[str, pd.DataFrame]:
        start = draws("start", loss=[0.3, 0.31, 0.32, 0.3, 0.33], labels=alike)
        return {
            "fedcor_toy": pd.concat(
                [draws("Cor", loss=cor, labels=labels), draws("Ind", loss=ind, labels=alike), start]
            )
        }

    as_said, as_denied = toy(near, far, both), toy(far, near, alike)
    for id in ("fedcor.F1.a", "fedcor.F1.b", "fedcor.F1.c"):
        assert judge(id, as_said).outcome == "holds", id
        assert judge(id, as_denied).outcome == "contradicted", id


def sending(id: str, values: Mapping[str, list[int]]) -> dict[str, pd.DataFrame]:
    """Runs of four rounds that send these numbers; round 0 sends nothing."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for where in places(id):
        for seed in range(SEEDS):
            sent = [0, *values[where.method]]
            frame = pd.DataFrame(
                {"round": range(len(sent)), "parameters_down": sent, "parameters_up": 0, "scalars_up": 1}
            )
            labels = {
                "experiment": where.experiment,
                "setting": where.setting,
                "method": where.method,
                "seed": seed,
            }
            tables.setdefault(where.experiment, []).append(frame.assign(**labels, diverged=False))
    return {name: pd.concat(parts) for name, parts in tables.items()}


def test_what_fedcor_sends():
    seldom, always = {"FedCor": [40, 10, 10, 10]}, {"FedCor": [40, 40, 40, 40]}
    assert judge("fedcor.C.a", sending("fedcor.C.a", seldom)).outcome == "holds"
    assert judge("fedcor.C.a", sending("fedcor.C.a", seldom)).estimate == pytest.approx(4 * 41 / 74)
    assert judge("fedcor.C.a", sending("fedcor.C.a", always)).outcome != "holds"
    little, much = {"Random": [10] * 4, "FedCor": [18] * 4}, {"Random": [10] * 4, "FedCor": [24] * 4}
    assert judge("fedcor.C.b", sending("fedcor.C.b", little)).outcome == "holds"
    assert judge("fedcor.C.b", sending("fedcor.C.b", much)).outcome == "contradicted"


@pytest.mark.parametrize(("own", "outcome"), [(2, "holds"), (9, "contradicted")])
def test_what_hcsfed_sends_until_80_percent(own, outcome):
    """Random needs four times as many rounds; a round of HCSFed's costs `own` times one of Random's."""
    said = {"Random": 40, "HCSFed": 10}
    runs = curves("hcsfed.C.a", lambda arm: said[arm.where.method], lambda value, t: 0.9 * (t >= value))
    (name,) = runs
    sent = np.where(runs[name]["method"].str.startswith("HCSFed"), own, 1) * np.diff(
        runs[name]["round"], prepend=0
    )
    runs[name] = runs[name].assign(parameters_down=np.where(sent > 0, sent, 0), parameters_up=0)
    assert judge("hcsfed.C.a", runs).outcome == outcome


@pytest.mark.parametrize("id", ["hics.N1.a", "hics.N1.b", "hics.N4.a"])
def test_what_cannot_be_run_yet_is_not_run(id):
    assert judge(id, {}).outcome == "not run"


def clusters(where: Where, seed: int, ari: float, silhouette: float, widest: float) -> pd.DataFrame:
    """Five clusters in two probed rounds, of which the second says the opposite."""
    frame = pd.DataFrame(
        {"cluster": range(5), "sigma": [1.0, 1.0, 1.0, 1.0, widest], "ari": ari, "silhouette": silhouette}
    )
    late = frame.assign(ari=1 - ari, silhouette=-silhouette, sigma=1.0)
    both = pd.concat([frame.assign(round=1), late.assign(round=9)])
    return both.assign(experiment=where.experiment, setting=where.setting, features=where.method, seed=seed)


def test_clusters_of_compressed_updates():
    def study(compressed: float, raw: float, widest: float) -> dict[str, pd.DataFrame]:
        values = {"compressed": compressed, "raw": raw}
        parts = [
            clusters(where, seed, values[arm.where.method], values[arm.where.method], widest)
            for seed in range(SEEDS)
            for where, arm in places("hcsfed.F2.a").items()
        ]
        return {"hcsfed_updates": pd.concat(parts)}

    for id in ("hcsfed.F2.a", "hcsfed.F2.b", "hcsfed.F2.c"):
        assert judge(id, study(0.7, 0.4, 2.5)).outcome == "holds", id
        assert judge(id, study(0.4, 0.7, 1.5)).outcome == "contradicted", id


@pytest.mark.parametrize(
    ("id", "name", "wrong"),
    [
        ("cs.F3.a", "clustered_sampling.claims.size_distributions", lambda sizes, m, order: md(sizes, m)),
        ("cs.F4.a", "clustered_sampling.claims.similarity_distributions", lambda sizes, m, *_: (md(sizes, m), HALVES)),
        ("hcsfed.F1.a", "hcsfed.claims.allocate", lambda sizes, *_, **options: np.arange(4, 0, -1)),
        ("hcsfed.F1.b", "hcsfed.claims.variances", lambda population, m: dict(zip(SCHEMES, range(4), strict=True))),
    ],
)  # fmt: skip
def test_facts_that_need_no_runs(id, name, wrong, monkeypatch):
    """They are facts of the samplers, and none of another scheme."""
    assert judge(id, {}).outcome == "holds"
    monkeypatch.setattr(f"workspace.papers.{name}", wrong)
    assert judge(id, {}).outcome == "contradicted"


def test_weights_and_operations_are_facts():
    for id in ("cs.M.f", "hics.C.c"):
        assert judge(id, {}).outcome == "holds"


def test_every_claim_is_named_in_a_test():
    texts = "".join(file.read_text() for file in Path(__file__).parent.glob("test_claims_*.py"))
    ids = [claim.id for paper in papers() for claim in claims_of(paper)]
    assert not [id for id in ids if f'"{id}"' not in texts]
