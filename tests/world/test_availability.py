"""Worlds reproduce their stated marginals: mean, rates, processes, patterns, speeds and their coupling, and traces."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fedlib.data.schemes.equal import IID
from fedlib.errors import DataError
from fedlib.settings.schema import Local, Method, Run
from fedlib.settings.world import Deadline, First, Speeds, Trace
from fedlib.settings.world import World as Settings
from fedlib.streams import stream
from fedlib.world import LiveWorld, availability, latent
from fedlib.world.availability import scaled

RATES = [
    {"kind": "equal"},
    {"kind": "label", "weights": "rank"},
    {"kind": "label", "weights": "halves"},
    {"kind": "label", "weights": "dirichlet", "alpha": 0.5},
    {"kind": "size", "beta": 1.0},
    {"kind": "size", "beta": -1.0},
    {"kind": "log_normal"},
]
PATTERNS = [None, {"kind": "sine"}, {"kind": "staircase"}, {"kind": "label_cycle"}]
PROCESSES = [{"kind": "bernoulli"}, {"kind": "markov", "stay": 5.0}, {"kind": "cyclic", "length": 20}]


def clients(N: int, K: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """sizes (N,) and label counts (N, K), with two labels per client and shares that differ."""
    rng = np.random.default_rng(0)
    counts = np.zeros((N, K), dtype=int)
    for k, row in enumerate(counts):
        row[[k % K, (k + 1) % K]] += rng.integers(5, 60, 2)
    return counts.sum(axis=1), counts


def world(N: int = 400, seed: int = 0, **keys: Any) -> LiveWorld:
    sizes, counts = clients(N)
    return LiveWorld(Settings(**keys), sizes, counts, 1000, seed)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("rate", RATES)
@settings(max_examples=10)
@given(mean=st.floats(0.05, 0.8), seed=st.integers(0, 100))
def test_the_mean_is_the_stated_one_whatever_rate_and_pattern(rate, pattern, mean, seed) -> None:
    sizes, counts = clients(60)
    by = Settings(mean=mean, rate=rate, **({"pattern": pattern} if pattern else {}))
    p = availability(by, sizes, counts, seed)
    whole = np.broadcast_to(p, (len(p), 60))
    assert whole.mean() == pytest.approx(mean, abs=1e-9)
    assert (p >= 0).all()
    assert (p <= 1).all()


@settings(max_examples=50)
@given(
    raw=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30),
    mean=st.floats(0.01, 1.0),
    low=st.floats(0, 1),
)
def test_scaling_keeps_the_order_and_the_bounds(raw: list[float], mean: float, low: float) -> None:
    x, least = np.array(raw), low * mean
    p = scaled(x, mean, least)
    assert p.mean() == pytest.approx(mean)
    assert ((p >= least) & (p <= 1)).all()
    assert (np.diff(p[np.argsort(x)]) >= 0).all()
    free = (p > least) & (p < 1)
    assert np.allclose(p[free] / x[free], (p[free] / x[free])[:1]), "one factor for all that is not cut off"


def test_rates_by_label_and_size_against_their_formulas() -> None:
    sizes, counts = clients(40)
    least_cut = {"mean": 0.1}
    rank = availability(Settings(**least_cut, rate=RATES[1]), sizes, counts, 0)[0]
    expected = [sum(label * n for label, n in enumerate(row)) / sum(row) / 9 for row in counts.tolist()]
    assert np.allclose(rank / rank.sum(), np.array(expected) / sum(expected))
    small = availability(Settings(**least_cut, rate=RATES[5]), sizes, counts, 0)[0]
    assert np.allclose(small * sizes, (small * sizes)[0])


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("pattern", [None, {"kind": "sine", "period": 8, "depth": 0.5}])
def test_each_client_is_there_as_often_as_stated_under_each_process(process, pattern) -> None:
    """2,000 rounds of 300 clients; a client's share has a standard deviation of up to 0.034 under Markov(5)."""
    made = world(300, mean=0.4, rate=RATES[1], process=process, **({"pattern": pattern} if pattern else {}))
    rounds = 2000
    there = np.zeros((rounds, 300))
    for t in range(rounds):
        there[t, made.present(t + 1)] = 1
    assert there.mean() == pytest.approx(0.4, abs=0.005)
    assert np.abs(there.mean(axis=0) - made.rates).max() < 0.12
    assert np.abs(there.mean(axis=0) - made.rates).mean() < 0.03
    if pattern:
        by_round = np.array([there[np.arange(rounds) % 8 == (r - 1) % 8].mean() for r in range(8)])
        assert np.abs(by_round - made.p.mean(axis=1)).max() < 0.02


@pytest.mark.parametrize("process", PROCESSES)
def test_latent_numbers_are_uniform_in_every_round(process) -> None:
    for u in islice(latent(Settings(process=process).process, 20_000, 1), 5):
        assert (u >= 0).all()
        assert (u < 1).all()
        assert np.abs(np.histogram(u, 10, (0, 1))[0] / 20_000 - 0.1).max() < 0.01


def test_stays_of_a_markov_world_last_as_stated() -> None:
    """off -> on with probability p / stay, on -> off with (1 - p) / stay."""
    made = world(500, mean=0.3, process={"kind": "markov", "stay": 5.0})
    there = np.zeros((400, 500), dtype=bool)
    for t in range(400):
        there[t, made.present(t + 1)] = True
    now, then = there[:-1], there[1:]
    assert then[~now].mean() == pytest.approx(0.3 / 5, abs=0.005)
    assert (~then)[now].mean() == pytest.approx(0.7 / 5, abs=0.008)


def test_a_cyclic_client_comes_once_in_every_cycle() -> None:
    made = world(50, mean=0.25, process={"kind": "cyclic", "length": 20})
    there = np.zeros((200, 50), dtype=int)
    for t in range(200):
        there[t, made.present(t + 1)] = 1
    comes = (np.diff(there, axis=0) == 1).sum(axis=0)
    assert ((comes >= 9) & (comes <= 10)).all()
    assert (there.sum(axis=0) == 50).all()


def test_a_label_cycle_visits_the_labels_in_turn() -> None:
    made = world(10, mean=0.2, pattern={"kind": "label_cycle", "period": 10, "beta": 1.0})
    assert [np.flatnonzero(row).tolist() for row in made.p[:3]] == [[0, 9], [0, 1, 9], [1, 2, 9]]


@pytest.mark.parametrize("of", ["availability", "size", "entropy"])
@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.8])
def test_speeds_are_log_normal_and_coupled_as_stated(of: str, rho: float) -> None:
    """Spearman's correlation under a Gaussian copula is 6/pi asin(rho/2)."""
    made = world(4000, mean=0.5, rate={"kind": "log_normal"}, speeds={"rho": rho, "of": of})
    log = np.log(made.per_sample)
    assert np.median(made.per_sample) == pytest.approx(0.0136, rel=0.05)
    assert log.std() == pytest.approx(0.6, rel=0.05)
    shares = made.label_counts / made.label_counts.sum(axis=1, keepdims=True)
    by = {"availability": made.rates, "size": made.sizes}.get(of)
    if by is None:
        by = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=1)
    assert spearmanr(-log, by).statistic == pytest.approx(6 / np.pi * np.arcsin(rho / 2), abs=0.05)


def test_a_world_is_a_stream_of_its_own() -> None:
    first = world(30, mean=0.5)
    assert not np.array_equal(first.present(1), world(30, seed=1, mean=0.5).present(1))
    assert np.array_equal(world(30, mean=0.5).present(7), [first.present(t) for t in range(1, 8)][-1])
    assert stream(0, "world", 1).random() != stream(0, "select", 1).random()


@settings(max_examples=50)
@given(
    seconds=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
    m=st.integers(1, 12),
    at=st.floats(0.01, 100),
)
def test_ends_of_rounds(seconds: list[float], m: int, at: float) -> None:
    each = np.array(seconds)
    arrived, length = world(5).end(each, m)
    assert arrived.all()
    assert length == max(seconds)
    arrived, length = world(5, ends=Deadline(seconds=at)).end(each, m)
    assert length == min(at, max(seconds))
    assert (arrived == (each <= at)).all()
    arrived, length = world(5, ends=First(c=2)).end(each, m)
    assert arrived.sum() == min(m, len(seconds))
    assert length == sorted(seconds)[min(m, len(seconds)) - 1]
    assert (each[arrived] <= length).all()


TRACE = "client,from,to\n0,0,10\n1,5,20\n2,30,40\n"


def written(path: Any, text: str) -> dict[str, str]:
    path.write_text(text)
    return {"file": str(path), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_a_trace_says_who_is_there_and_repeats(tmp_path) -> None:
    made = world(4, trace=written(tmp_path / "trace.csv", TRACE))
    seen = {}
    for made.time in (0.0, 7.0, 25.0, 39.0, 40.0, 47.0):
        seen[made.time] = made.present(1).tolist()
    assert seen == {0: [0], 7: [0, 1], 25: [], 39: [2], 40: [0], 47: [0, 1]}
    assert made.rates.tolist() == [0.25, 0.375, 0.25, 0]
    made.time = 25.0
    assert made.empty() == 5
    made.time = 65.0
    assert made.empty() == 5


def test_speeds_from_a_file(tmp_path) -> None:
    text = "client,seconds_per_sample,kbit_down,kbit_up\n1,0.5,100,10\n0,0.1,32,64\n"
    made = world(2, speeds=written(tmp_path / "speeds.csv", text))
    seconds = made.seconds(np.array([0, 1]), np.array([10, 10]), np.array([1000, 0]), np.array([0, 1000]))
    assert seconds.tolist() == [1 + 1, 5 + 3.2]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client,from\n0,1\n", "needs the columns client, from, to"),
        ("client,from,to\n9,0,1\n", "from 0 to 3"),
        ("client,from,to\n0,5,1\n", "0 <= from < to"),
        ("client,from,to\n", "it needs rows"),
        ("client,from,to\n0,a,1\n", "all numbers"),
    ],
)
def test_traces_that_cannot_be_used(text: str, words: str, tmp_path) -> None:
    with pytest.raises(DataError, match=words):
        world(4, trace=written(tmp_path / "trace.csv", text))


@pytest.mark.bad_input
def test_another_file_or_none_and_a_mean_out_of_reach(tmp_path) -> None:
    keys = written(tmp_path / "trace.csv", TRACE)
    with pytest.raises(DataError, match="its sha256 is"):
        world(4, trace=Trace(file=keys["file"], sha256="0" * 64))
    with pytest.raises(DataError, match="no such file"):
        world(4, trace=Trace(file="nowhere.csv", sha256="0" * 64))
    with pytest.raises(DataError, match=r"cannot be reached.*set mean to 0.28 or less"):
        world(10, mean=0.9, pattern={"kind": "label_cycle", "period": 10, "beta": 1.0})


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "keys",
    [
        {"mean": 0.3, "least": 0.5},
        {"mean": 0.5, "trace": {"file": "a", "sha256": "0" * 64}},
        {"late": "keep"},
        {"absences": "all", "ends": {"kind": "first"}},
        {"speeds": {"file": "a"}},
    ],
)
def test_settings_that_contradict_each_other(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each with its own words
        Settings(**keys)


def test_no_world_is_no_part_of_an_address_and_each_world_is() -> None:
    run = Run(
        dataset="digits",
        partition=IID(),
        model="logistic",
        N=4,
        m=2,
        T=2,
        local=Local(lr=0.1, batch=8, steps=2),
        method=Method(sampler="md"),
        seed=0,
    )
    assert not {"world", "validation"} & set(run.model_dump(mode="json"))
    worlds = [
        None,
        Settings(),
        Settings(mean=0.5),
        Settings(mean=0.5, absences="hidden"),
        Settings(speeds=Speeds()),
    ]
    addresses = {run.model_copy(update={"world": by}).address(2, "data") for by in worlds}
    assert len(addresses) == len(worlds)
    assert run.address(2, "data") == "98d8d0f4c1ba40ede4ea", "as before there were worlds"
