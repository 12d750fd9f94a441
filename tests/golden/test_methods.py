"""Methods beyond the four papers, each against numbers that its authors' program computed (README.md, section 7).

Where a program draws at random, what is compared are the probabilities of its draws, not the draws themselves.
"""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from fedlib import algorithms
from fedlib.samplers import Federation, Report, Sampler
from fedlib.samplers.delta import Delta
from fedlib.samplers.f3ast import F3AST
from fedlib.samplers.fed_cbs import FedCBS, qcid
from fedlib.samplers.fedau import FedAU
from fedlib.samplers.fedgs import FedGS, distances, paths_of
from fedlib.samplers.oort import explorable
from fedlib.samplers.oort_complete import OortComplete
from fedlib.samplers.osmd import OSMD
from fedlib.samplers.shapley import GreedyFed, SFedAvg, Values, exact_values, sampled_values

Case = dict[str, Any]
CPU = torch.device("cpu")


def ready(sampler: Any, sizes: Any, m: int, label_counts: Any = None) -> Any:
    """A sampler that is set up, in a federation with these sizes."""
    counts = np.array([[n] for n in sizes]) if label_counts is None else np.array(label_counts)
    fed = Federation(np.array(sizes), counts, m, 1000, 3, None, None)
    sampler.setup(fed, np.random.default_rng(0))
    return sampler


def report(clients: Any, updates: Any = None, losses: Any = None, **more: Any) -> Report:
    n = len(clients)
    return Report(
        np.array(clients, dtype=int),
        np.zeros((n, 3)) if updates is None else np.array(updates, dtype=float).reshape(n, -1),
        np.ones(n) if losses is None else np.array(losses, dtype=float),
        **more,
    )


def told(sampler: Sampler, t: int, clients: Any, **more: Any) -> None:
    sampler.observe(sampler.fed.round(t, np.random.default_rng(t)), report(clients, **more))


def double(algorithm: algorithms.FedAvg, N: int, d: int) -> algorithms.FedAvg:
    """An algorithm that is set up, in double precision."""
    algorithm.setup(N, d, d, CPU)
    algorithm.load_state_dict(
        {
            name: value.double()
            for name, value in algorithm.state_dict().items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        }
    )
    return algorithm


def moved(
    algorithm: algorithms.FedAvg,
    models: torch.Tensor,
    clients: Any,
    updates: Any,
    lr: float = 1.0,
    weights=None,
) -> torch.Tensor:
    """The next models, the updates' weights being 1 / n unless given."""
    n = len(clients)
    if not n:
        return algorithm.skip(models, lr)
    w = np.full(n, 1 / n) if weights is None else weights
    u = torch.from_numpy(np.array(updates, dtype=float).reshape(n, -1))
    return algorithm.aggregate(models, np.array(clients), np.zeros(n, int), w, u, np.ones(n, int), lr)


@pytest.mark.golden("delta_*.json")
def test_delta(case: Case) -> None:
    n = np.array(case["n_samples"])
    sampler = ready(Delta(beta=case["beta"], replacement=False, floor=1e-12), n, case["m"])
    for row in case["rounds"]:
        np.testing.assert_allclose(sampler.P, row["P_before"], atol=1e-7)
        clients, updates = np.array(row["selected"]), -np.array(row["gradients"])
        weights = sampler.weights(n, np.array(row["P_before"]), clients)
        np.testing.assert_allclose(weights @ updates, row["step_without_momentum"], atol=1e-9)
        told(
            sampler, row["t"], clients, updates=updates, losses=np.random.default_rng(0).random(len(clients))
        )
        np.testing.assert_allclose(sampler.P, row["P_after"], atol=1e-7)


@pytest.mark.golden("mifa_*.json")
def test_mifa_without_waiting(case: Case) -> None:
    mifa, models, lr = algorithms.MIFA(mean="all"), torch.zeros(1, case["d"]).double(), case["lr0"]
    double(mifa, case["N"], case["d"])
    for t, row in enumerate(case["results"]["no_wait"]):
        clients, G = case["available"][t], np.array(case["update_per_lr"][t])
        models = moved(mifa, models, clients, lr * G[clients], lr)
        np.testing.assert_allclose(models[0], row["model_after"], atol=1e-9)
        lr = row["lr_after"]


@pytest.mark.golden("mifa_*.json")
def test_mifa_once_all_have_come(case: Case) -> None:
    """The round before the first entry fills the memories of all, from the model at zeros, without a step."""
    rows, lr, start = case["results"]["wait"], case["lr0"], torch.zeros(1, case["d"]).double()
    mifa = double(algorithms.MIFA(), case["N"], case["d"])
    filling = rows[0]["round"] - 2
    everyone = list(range(case["N"]))
    moved(mifa, start, everyone, lr * np.array(case["update_per_lr"][filling]), lr)
    models = start
    for row in rows:
        t = row["round"] - 1
        clients, G = case["available"][t], np.array(case["update_per_lr"][t])
        models = moved(mifa, models, clients, lr * G[clients], lr)
        np.testing.assert_allclose(models[0], row["model_after"], atol=1e-9)
        lr = row["lr_after"]


@pytest.mark.golden("oort_*.json")
def test_oort(case: Case) -> None:
    """FedScale is told how long each client takes, and draws the first round at random."""
    n, args, losses = np.array(case["n_samples"]), case["args"], np.array(case["losses"])
    sampler = ready(
        OortComplete(
            exploration=args["exploration_factor"],
            decay=args["exploration_decay"],
            exploration_min=args["exploration_min"],
            clip=args["clip_bound"],
            cut_off=args["cut_off_util"],
            window=args["sample_window"],
            threshold=args["round_threshold"],
            penalty=args["round_penalty"],
            pacer_step=args["pacer_step"],
            pacer_delta=args["pacer_delta"],
            blacklist=args["blacklist_rounds"] if args["blacklist_rounds"] > 0 else None,
            blacklisted=args["blacklist_max_len"],
        ),
        n,
        case["m"],
    )
    sampler.duration = np.array(case["durations"])
    for row in case["rounds"]:
        t, clients = row["t"], np.array(row["selected"])
        if row["status"] == "ok":
            A = np.array(row["available"])
            sampler.fed.round(t, np.random.default_rng(t), A)
            chosen = sampler.select(sampler.fed.round(t, np.random.default_rng(t), A)).clients
            assert sampler.percentile == row["threshold"]
            assert sampler.share == row["exploration"]
            new = A[sampler.last[A] == 0]
            pool, score = sampler.lottery(A[sampler.last[A] > 0], A, row["exploit"]["n"], t)
            check_draw(pool, score, row["exploit"])
            sampler.exploited = np.array(row["exploit"]["drawn"])
            if len(new):
                assert len(sampler.exploited) == case["m"] - int(case["m"] * sampler.share)
                reward = sampler.utility[new] * sampler.slowness(new)
                check_draw(
                    *explorable(new, reward, args["sample_window"], row["explore"]["n"]), row["explore"]
                )
                assert len(chosen) == len(clients), "fewer than m where unexplored clients run out"
        loss = losses[t - 1][clients]
        told(sampler, t, clients, losses=loss, squared=loss**2, seconds=sampler.duration[clients])
        for k, utility in row["utility_after"].items():
            assert sampler.utility[int(k)] == pytest.approx(utility)


def check_draw(pool: np.ndarray, score: np.ndarray, golden: dict[str, Any]) -> None:
    """The same clients may be drawn, with the same probabilities of the first draw."""
    ours = dict(zip(pool.tolist(), (score / score.sum()).tolist(), strict=True))
    theirs = dict(zip(golden["pool"], golden["probabilities"], strict=True))
    assert ours.keys() == theirs.keys()
    assert [ours[k] for k in theirs] == pytest.approx(list(theirs.values()), rel=0, abs=1e-9)


@pytest.mark.golden("f3ast_*.json")
def test_f3ast(case: Case) -> None:
    sampler = ready(F3AST(beta=case["beta"]), case["n_samples"], case["m"])
    if case["r_start"] == "1/N":
        sampler.r = np.full(case["N"], 1 / case["N"])
    for row in case["rounds"]:
        round = sampler.fed.round(row["t"], np.random.default_rng(0), np.array(row["available"]))
        selection = sampler.select(round)
        sampler.observe(round, report(row["selected"]))
        np.testing.assert_allclose(sampler.r, row["r_after"], atol=1e-6)
        p_over_r = sampler.fed.p / sampler.r
        np.testing.assert_allclose(p_over_r[row["selected"]], row["weights"], rtol=1e-5)
        if row["relative_gap_at_cut"] > 1e-5:
            assert set(selection.clients.tolist()) == set(row["selected"])
            np.testing.assert_allclose(selection.weights, p_over_r[selection.clients])


@pytest.mark.golden("fedau_*.json")
def test_fedau(case: Case) -> None:
    N = case["N"]
    sampler = ready(FedAU(K=case["K"], eta_g=case["eta_g"]), [1] * N, N)
    model = np.zeros(case["d"])
    golden = case["results"]["adaptive"]
    for t, (clients, updates) in enumerate(zip(case["participants"], case["updates"], strict=True), 1):
        if clients:  # as the engine: in a round in which nobody is there, a sampler is not called
            round = sampler.fed.round(t, np.random.default_rng(t), np.array(clients))
            selection = sampler.select(round)
            order = np.argsort(selection.clients)
            model = model + selection.weights[order] @ np.array(updates)
            sampler.observe(round, report(clients, updates))
            np.testing.assert_allclose(sampler.omega, golden["mean_interval_after"][t - 1], atol=1e-9)
        np.testing.assert_allclose(model, golden["model_after"][t - 1], atol=1e-9)


@pytest.mark.golden("fedau_*.json")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("fedvarp", lambda: algorithms.FedVARP()),
        ("mifa", lambda: algorithms.MIFA(mean="all")),
        ("average_participating", lambda: algorithms.FedAvg()),
        ("average_all", lambda: algorithms.FedAvg()),
    ],
)
def test_the_baselines_of_fedaus_program(case: Case, name: str, make: Any) -> None:
    """Their steps do not depend on the model, so that the program's eta_g scales the whole path."""
    N, d = case["N"], case["d"]
    algorithm, models = double(make(), N, d), torch.zeros(1, d).double()
    golden = case["results"][name]["model_after"]
    for clients, updates, after in zip(case["participants"], case["updates"], golden, strict=True):
        weights = np.full(len(clients), 1 / N) if name == "average_all" else None
        models = moved(algorithm, models, clients, updates, weights=weights)
        np.testing.assert_allclose(case["eta_g"] * models[0].numpy(), after, atol=2e-7)


@pytest.mark.golden("fedawe_*.json")
def test_fedawe(case: Case) -> None:
    models = torch.tensor([case["start"]], dtype=torch.float64)
    awe = double(algorithms.FedAWE(eta_g=case["eta_g"], clip=case["clip"]), case["N"], case["d"])
    for t, clients in enumerate(case["participants"]):
        if clients:
            awe.starts(clients, models)
        models = moved(awe, models, clients, case["updates"][t])
        np.testing.assert_allclose(models[0], case["evaluated_model_after"][t], atol=1e-9)
        x = awe.x if len(awe.x) else models.repeat(case["N"], 1)
        np.testing.assert_allclose(x, case["client_models_after"][t], atol=1e-9)


@pytest.mark.golden("fedgs_*.json")
def test_fedgs(case: Case) -> None:
    """The graph, and selections that no other set beats; where all cosines are above 0, scaling differs on purpose."""
    counts, H = np.array(case["label_counts"]), np.array(case["distance"])
    shares = counts / counts.sum(axis=1, keepdims=True)
    settings = case["epsilon"], case["sigma2"]
    scaled = np.array(case["scaled_cosine"])
    np.testing.assert_allclose(paths_of(scaled, *settings), H, atol=1e-9)
    if case["smallest_cosine"] == 0:
        np.testing.assert_allclose(distances(shares, *settings), H, atol=1e-9)
    sampler = ready(FedGS(case["alpha"], *settings), counts.sum(axis=1), case["m"], counts)
    sampler.H = H
    for row in case["rounds"]:
        A, v = np.array(row["available"]), np.array(row["frequency_before"])
        sampler.times = v.copy()
        clients = sampler.select(sampler.fed.round(row["t"], np.random.default_rng(row["t"]), A)).clients
        M, N = case["m"], case["N"]
        pairs = 2 / (M * (M - 1)) * sum(H[i, j] for i, j in combinations(clients, 2))
        singles = (2 * (v[clients] - v.mean() - M / len(A)) + 1).sum() / (N - 1)
        assert len(clients) == M
        assert case["alpha"] * pairs - singles == pytest.approx(row["objective_best"], rel=0, abs=1e-9)


@pytest.mark.golden("fed_cbs_*.json")
def test_fed_cbs(case: Case) -> None:
    """The third party's first draw; its later ones have two slips, so that these are compared with the paper's rule."""
    counts = np.array(case["label_counts"])
    sampler = ready(FedCBS(lam=case["lam"], least=1e-12), counts.sum(axis=1), case["m"], counts)
    for row in case["rounds"]:
        total = np.zeros(case["K"])
        assert sampler.times.tolist() == row["counter_before"]
        for place, step in enumerate(row["steps"], 1):
            log = sampler.odds(np.array(step["candidates"]), row["t"], total, place)
            weights = np.exp(log - log.max())
            for name in ("paper_probabilities", "probabilities")[: 3 - min(place, 2)]:
                np.testing.assert_allclose(weights / weights.sum(), step[name], rtol=0, atol=1e-9)
            total = total + counts[step["drawn"]]
        assert qcid(total) == pytest.approx(row["qcid"], rel=0, abs=1e-9)
        told(sampler, row["t"], row["selected"])


@pytest.mark.golden("fedopt_*.json")
def test_server_optimisers(case: Case) -> None:
    """Reddi et al.'s Algorithm 2 with v_-1 = tau^2, and Flower's FedAvgM."""
    results, deltas = case["results"], np.array(case["deltas"])
    momentum = results["fedavgm"]["parameters"]
    made = {
        "fedavgm": algorithms.FedAvgM(momentum["server_learning_rate"], momentum["server_momentum"]),
        "fedadam": algorithms.FedAdam(*results["fedadam"]["parameters"].values()),
        "fedyogi": algorithms.FedYogi(*results["fedyogi"]["parameters"].values()),
    }
    for name, algorithm in made.items():
        models = torch.zeros(1, deltas.shape[1]).double()
        double(algorithm, 4, deltas.shape[1])
        if name != "fedavgm":  # so in double precision
            assert torch.allclose(algorithm.v, (start := torch.full_like(algorithm.v, algorithm.tau**2)))
            algorithm.load_state_dict({"v": start})
        golden = results[name]["model_after" if name == "fedavgm" else "derived_reddi_v0_tau2"]
        for delta, after in zip(deltas, golden, strict=True):
            models = moved(algorithm, models, [0], [delta])
            np.testing.assert_allclose(models[0], after, rtol=0, atol=1e-12)


def asked(values: Values, losses: np.ndarray) -> np.ndarray:
    """What a computation of Shapley values returns. losses: of each set of updates, by the sum of its members' 2^i."""
    answer = None
    while True:
        try:
            question = values.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = np.array([losses[sum(1 << int(i) for i in team)] for team in question.teams])


@pytest.mark.golden("shapley_*.json")
def test_shapley_values(case: Case) -> None:
    """Exact values; sampled ones are no further off, in the root mean square, than the program's, beyond chance."""
    if "true" not in case:
        pytest.skip("of the recursions, below")
    losses, n, true = np.array(case["loss_by_subset_code"]), case["n"], np.array(case["true"])
    np.testing.assert_allclose(asked(exact_values(n), losses), true, rtol=0, atol=1e-10)
    sweeps = GreedyFed().sweeps
    ours = [
        asked(sampled_values(n, 1e-4, sweeps, np.random.default_rng(s).permutation), losses)
        for s in range(20)
    ]
    theirs = np.array([run["values"] for run in case["gtg"]])
    off, allowed = (np.sqrt(((np.array(values) - true) ** 2).mean()) for values in (ours, theirs))
    assert off < 1.6 * allowed


@pytest.mark.golden("shapley_*.json")
def test_what_follows_from_shapley_values(case: Case) -> None:
    if "rounds" not in case:
        pytest.skip("of the values themselves, above")
    greedy = ready(GreedyFed(), [1] * case["N"], case["m"])
    relevance = ready(SFedAvg(alpha=case["alpha"], beta=case["beta"]), [1] * case["N"], case["m"])
    for t, row in enumerate(case["rounds"], 1):
        chances = np.exp(relevance.phi - relevance.phi.max())
        np.testing.assert_allclose(chances / chances.sum(), row["probabilities_before"], rtol=0, atol=1e-12)
        gains = dict(enumerate(row["shapley"]))
        losses = np.array([-sum(gains[i] for i in gains if code >> i & 1) for code in range(2 ** len(gains))])
        for sampler in (greedy, relevance):
            round = sampler.fed.round(t, np.random.default_rng(t))
            asked(sampler.observe(round, report(row["selected"])), losses)
            np.testing.assert_allclose(sampler.value, row["value_after"], rtol=0, atol=1e-12)
            assert sampler.times.tolist() == row["times_after"]
        np.testing.assert_allclose(relevance.phi, row["phi_after"], rtol=0, atol=1e-12)


@pytest.mark.golden("fednova_*.json")
def test_fednova(case: Case) -> None:
    n = np.array(case["n_samples"])
    nova = algorithms.FedNova(momentum=case["momentum"], mu=case["mu"])
    nova.setup(case["N"], case["d"], case["d"], CPU)
    models = torch.zeros(1, case["d"]).double()
    for row in case["rounds"]:
        models = nova.aggregate(
            models,
            np.arange(case["N"]),
            np.zeros(case["N"], int),
            n / n.sum(),
            torch.tensor(row["updates"], dtype=torch.float64),
            np.array(row["steps"]),
            case["lr"],
        )
        np.testing.assert_allclose(models[0], row["model_after"], rtol=0, atol=1e-12)


@pytest.mark.golden("osmd_*.json")
def test_osmd(case: Case) -> None:
    sampler = ready(OSMD(alpha=case["alpha"]), [1] * case["N"], case["m"])
    sampler.fed = dataclasses.replace(sampler.fed, T=case["T"])
    sampler.setup(sampler.fed, np.random.default_rng(0))
    sampler.unit = case["bar_a1"]
    for row in case["rounds"]:
        drawn = np.array(row["drawn"])
        q = sampler.mixed(sampler.fed.everyone)
        np.testing.assert_allclose(q, row["probabilities"], rtol=0, atol=1e-12)
        selection = sampler.select(sampler.fed.round(row["t"], np.random.default_rng(row["t"])))
        ours = 1 / (case["N"] * case["m"] * q[selection.clients])
        np.testing.assert_allclose(selection.weights, ours)
        np.testing.assert_allclose(1 / (case["N"] * case["m"] * q[drawn]), row["step_weights"], rtol=1e-12)
        updates = np.array(row["norms"])[:, None] * np.array([[1.0, 0, 0]])
        told(sampler, row["t"], drawn, updates=updates)
        np.testing.assert_allclose(sampler.P, row["experts_after"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(sampler.theta, row["theta_after"], rtol=0, atol=1e-12)


@pytest.mark.golden("refl_*.json")
def test_refl(case: Case) -> None:
    refl, updates = algorithms.StaleAware(beta=case["beta"], s=case["scale"]), [*case["fresh"], *case["late"]]
    refl.ages = np.array([0] * len(case["fresh"]) + case["ages"])
    n = len(updates)
    importance = refl.importances(refl.ages, np.full(n, 1 / n), torch.tensor(updates, dtype=torch.float64))
    np.testing.assert_allclose(importance, case["importance"], rtol=0, atol=1e-9)
    models = moved(refl, torch.zeros(1, 5).double(), np.arange(n), updates)
    np.testing.assert_allclose(models[0], case["step"], rtol=0, atol=1e-9)
