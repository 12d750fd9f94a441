"""Clustered Sampling's claims on made-up tables whose outcomes follow by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from outcome import judge, none_run

from workspace.analysis import effects
from workspace.analysis.claim import Arms, claims_of

Curve = Callable[[np.ndarray], np.ndarray]


def runs_of(
    experiment: str, curves: dict[str, dict[str, Curve]], column: str, seeds: int = 3, T: int = 100
) -> pd.DataFrame:
    """A tidy table: setting -> method -> value by round, the same for every seed but for a little noise."""
    t = np.arange(T + 1)
    parts = []
    for setting, methods in curves.items():
        for method, f in methods.items():
            for seed in range(seeds):
                values = f(t) + 1e-6 * seed
                part = pd.DataFrame({"round": t, column: values, "seed": seed, "method": method})
                parts.append(part.assign(experiment=experiment, setting=setting, diverged=False))
    return pd.concat(parts, ignore_index=True)


def falling(rate: float, floor: float = 0.0) -> Curve:
    return lambda t: floor + 2 * np.exp(-rate * t)


def rising(rate: float, top: float = 0.9) -> Curve:
    return lambda t: 0.1 + (top - 0.1) * (1 - np.exp(-rate * t))


def test_nothing_is_judged_without_results():
    none_run("clustered_sampling")


def figure_1(**rates: float) -> dict[str, pd.DataFrame]:
    names = {"md": "MD", "target": "Target", "alg1": "Algorithm 1", "alg2": "Algorithm 2"}
    curves = {"random ids": {names[key]: falling(rate) for key, rate in rates.items()}}
    table = runs_of("cs_mnist", curves, "train_loss", T=200)
    return {
        "cs_mnist": table.assign(
            client_accuracy=1 - table["train_loss"] / 4, train_loss_std=table["train_loss"]
        )
    }


def test_cs_figure_1_orderings():
    results = figure_1(md=0.01, target=0.04, alg1=0.02, alg2=0.039)
    for id in ("cs.F1.a", "cs.F1.b", "cs.F1.c", "cs.F1.d"):
        assert judge(id, results).outcome == "holds", id
    results = figure_1(md=0.02, target=0.04, alg1=0.01, alg2=0.021)
    assert judge("cs.F1.a", results).outcome == "contradicted"
    assert judge("cs.F1.d", results).outcome == "contradicted"


def drawn_table(
    draw: dict[str, Callable[[np.random.Generator], np.ndarray]], T: int = 200
) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    rows = [
        {
            "experiment": "cs_mnist",
            "setting": "random ids",
            "method": m,
            "seed": s,
            "round": t,
            "diverged": False,
        }
        | {"clients": f(rng) if t else np.array([], dtype=int)}
        for m, f in draw.items()
        for s in range(5)
        for t in range(T + 1)
    ]
    counts = (np.arange(100)[:, None] // 10 == np.arange(10)).astype(int) * 500
    clients = [
        {
            "data": "cs_mnist",
            "setting": "random ids",
            "seed": s,
            "method": "",
            "client": k,
            "counts": counts[k],
        }
        for s in range(5)
        for k in range(100)
    ]
    return {"cs_mnist": pd.DataFrame(rows), "cs_partitions": pd.DataFrame(clients)}


def test_cs_figure_1_counts_classes_and_clients():
    one_each = lambda rng: 10 * np.arange(10) + rng.integers(10, size=10)  # noqa: E731
    strata = lambda rng: rng.permutation(100).reshape(10, 10)[:, 0]  # noqa: E731
    results = drawn_table(
        {
            "MD": lambda rng: rng.integers(100, size=10),
            "Target": one_each,
            "Algorithm 1": strata,
            "Algorithm 2": one_each,
        }
    )
    for id in ("cs.F1.e", "cs.F1.f", "cs.F1.g", "cs.F1.h", "cs.M.c", "cs.M.d"):
        assert judge(id, results).outcome == "holds", id
    assert judge("cs.F1.i", results).estimate == 0  # it never missed a class
    assert judge("cs.F1.l", drawn_table({"MD": strata, "Algorithm 1": one_each})).outcome == "holds"
    assert judge("cs.F1.l", drawn_table({"MD": one_each, "Algorithm 1": strata})).outcome == "contradicted"
    same = drawn_table({"MD": strata, "Algorithm 1": strata, "Algorithm 2": strata, "Target": strata})
    assert judge("cs.F1.g", same).outcome == "contradicted"
    assert judge("cs.F1.e", same).outcome == "contradicted"


def test_cs_figure_5_counts_labels():
    """At alpha = 10 all labels of a client have as many samples; at 0.001 it has one label, half of all the same."""
    even = np.full((20, 10), 10)
    one_label = 100 * np.eye(10, dtype=int)[np.repeat([0, *range(10)], [10, *[1] * 10])]

    def partitions(**counts: np.ndarray) -> dict[str, pd.DataFrame]:
        rows = [
            {"data": "cs_cifar", "setting": f"alpha = {alpha}", "seed": seed, "method": "", "counts": row}
            for alpha, table in counts.items()
            for seed in range(3)
            for row in table
        ]
        return {"cs_partitions": pd.DataFrame(rows)}

    as_said = partitions(**{"10": even, "0.001": one_label})
    as_denied = partitions(**{"10": one_label, "0.001": even})
    for id in ("cs.F5.a", "cs.F5.b"):
        assert judge(id, {}).outcome == "not run", id
        assert judge(id, as_said).outcome == "holds", id
        assert judge(id, as_denied).outcome == "contradicted", id


def test_cs_gains_by_alpha():
    gain = {"alpha = 10": 0.0, "alpha = 0.1": 0.02, "alpha = 0.01": 0.3, "alpha = 0.001": 0.4}

    def table(gain: dict[str, float]) -> dict[str, pd.DataFrame]:
        curves = {
            a: {m: (lambda t, f=f: 0.5 * f + np.exp(-0.1 * t)) for m, f in
                {"MD": 1.0, "Algorithm 1": 1 - g / 2, "Algorithm 2": 1 - g}.items()}
            for a, g in gain.items()
        }  # fmt: skip
        return {"cs_cifar": runs_of("cs_cifar", curves, "train_loss")}

    for id in ("cs.F2.a", "cs.F2.b", "cs.F2.c", "cs.F2.d", "cs.F2.e"):
        assert judge(id, table(gain)).outcome == "holds", id
    reverse = dict(zip(gain, list(gain.values())[::-1], strict=True))
    assert judge("cs.F2.a", table(reverse)).outcome == "contradicted"
    assert judge("cs.F2.b", table(reverse)).outcome == "contradicted"
    part = judge("cs.F2.d", table({a: g for a, g in gain.items() if a != "alpha = 0.001"}))
    assert part.badge.startswith("2 of 4 cells")


def test_cs_local_work_and_number_of_clients():
    rates = {
        "less work": 0.03,
        "standard": 0.06,
        "more work": 0.4,
        "fewer clients": 0.02,
        "more clients": 0.2,
    }
    lead = dict.fromkeys(rates, 0.1) | {"fewer clients": 0.12, "more clients": 0.08}
    curves = {
        s: {
            m: falling(rate, 1 - lead[s] * (m == "Algorithm 2")) for m in ("MD", "Algorithm 1", "Algorithm 2")
        }
        for s, rate in rates.items()
    }
    results = {"cs_work": runs_of("cs_work", curves, "train_loss", T=200)}
    for id in ("cs.F8.a", "cs.F8.b", "cs.F8.c", "cs.F8.d"):
        assert judge(id, results).outcome == "holds"


def test_a_seed_that_diverged_leaves_a_claim_undecided_and_is_named():
    """Else the seeds that are left, all in the paper's favour, would decide."""
    curves = {m: falling(0.1, floor=1.0 - 0.5 * (m != "MD")) for m in ("MD", "Algorithm 1", "Algorithm 2")}
    table = runs_of("cs_similarity", {"": curves}, "train_loss", seeds=5)
    assert judge("cs.F6.b", {"cs_similarity": table}).outcome == "holds"
    gone = (table["method"] == "Algorithm 1") & (table["seed"] == 2) & (table["round"] >= 90)
    table["diverged"] = gone
    claim = judge("cs.F6.b", {"cs_similarity": table})
    assert claim.outcome == "not shown"
    assert claim.n == 4
    only = next(claim for claim in claims_of("clustered_sampling") if claim.id == "cs.F6.b")
    assert effects.rows(only, Arms({"cs_similarity": table}))[0]["words"] == "no finite value in seeds 2"
