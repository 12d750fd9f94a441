"""Worlds reproduce their stated marginals: mean, rates, processes, patterns, speeds and their coupling, and traces."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm, spearmanr

from fedlib.data.schemes.equal import IID
from fedlib.errors import DataError
from fedlib.settings.code import code_of
from fedlib.settings.schema import Local, Method, Run
from fedlib.settings.world import Deadline, First, Markov, Speeds, Trace
from fedlib.settings.world import World as Settings
from fedlib.streams import stream
from fedlib.world import LiveWorld, availability, latent
from fedlib.world.availability import check_cycles, scaled

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
PROCESSES = [{"kind": "bernoulli"}, {"kind": "markov", "stay": 5.0}, {"kind": "cyclic", "length": 100}]


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
    assert made.empty_until() == 30
    assert made.empty_until(landing=27.5) == 27.5
    made.time = 65.0
    assert made.empty_until() == 70
    assert made.trace is not None
    assert made.trace.stays(7.0).tolist() == [3, 13, 0, 0]
    assert [made.trace.next_change(time) for time in (0.0, 4.5, 5.0, 30.0, 79.0)] == [5, 5, 30, 40, 80]


def test_intervals_that_touch_are_one_also_over_the_end_of_a_trace(tmp_path) -> None:
    """Client 0 stays from 8 s to 13 s, client 1 for ever, and client 2 from 0 to 4 s."""
    made = world(
        4, trace=written(tmp_path / "t.csv", "client,from,to\n0,8,10\n1,5,10\n0,0,3\n1,0,5\n2,0,1\n2,1,4\n")
    )
    assert made.trace is not None
    assert made.trace.stays(9.0).tolist() == [4, np.inf, 0, 0]
    assert made.trace.stays(12.0).tolist() == [1, np.inf, 2, 0]
    assert made.rates.tolist() == [0.5, 1, 0.4, 0]


@settings(max_examples=100)
@given(data=st.data())
def test_time_never_stands_still_in_a_trace_of_hundredths(data, tmp_path_factory) -> None:
    """Whoever waits until somebody comes meets somebody, however long the run."""
    hundredth = st.integers(0, 9_999)
    rows = {k: sorted(data.draw(st.sets(hundredth, min_size=2, max_size=6))) for k in range(3)}
    text = "client,from,to\n" + "".join(
        f"{k},{a / 100},{b / 100}\n"
        for k, of in rows.items()
        for a, b in zip(of[::2], of[1::2], strict=False)
    )
    made = world(4, trace=written(tmp_path_factory.mktemp("t") / "t.csv", text))
    for seconds in data.draw(st.lists(st.floats(0.001, 1000), min_size=30, max_size=30)):
        made.time += seconds
        if not len(made.present(1)):
            before, made.time = made.time, made.empty_until()
            assert made.time > before
            assert len(made.present(1)) > 0


def test_who_is_there_against_a_look_at_every_interval(tmp_path) -> None:
    """At moments on and between the ends of intervals."""
    rng = np.random.default_rng(0)
    N, cuts = 50, np.sort(rng.choice(10**5, (50, 40), replace=True), axis=1) / 100
    rows = [
        (k, *pair)
        for k in range(N)
        for pair in zip(cuts[k, ::2], cuts[k, 1::2], strict=True)
        if pair[0] < pair[1]
    ]
    text = "client,from,to\n" + "".join(f"{k},{a},{b}\n" for k, a, b in rows)
    made = world(N, trace=written(tmp_path / "t.csv", text))
    period = max(b for _, _, b in rows)
    for time in [*rng.uniform(0, period, 100), *cuts[:5].ravel()]:
        made.time = time
        assert made.present(1).tolist() == sorted({k for k, a, b in rows if a <= time < b})


def test_shocks_move_all_at_once_and_leave_each_client_as_it_was() -> None:
    """Every client is there with its probability; how many are there swings: variance N p q + N (N - 1) c."""
    calm, shaken = (
        world(300, mean=0.3, **({"shocks": {"rho": 0.3, "stay": 1.0}} if shock else {})) for shock in (0, 1)
    )
    there = np.zeros((2, 3000, 300))
    for t in range(3000):
        for row, made in enumerate((calm, shaken)):
            there[row, t, made.present(t + 1)] = 1
    assert there.mean((1, 2)) == pytest.approx([0.3, 0.3], abs=0.012)
    assert np.abs(there[1].mean(0) - 0.3).max() < 0.05
    counts = there.sum(2).std(1)
    assert counts[0] == pytest.approx(np.sqrt(300 * 0.21), rel=0.05)
    assert counts[1] == pytest.approx(np.sqrt(300 * 0.21 + 300 * 299 * (joint(0.3, 0.3) - 0.09)), rel=0.06)


def joint(p: float, rho: float) -> float:
    """P(X < x, Y < x) of two standard normal numbers with correlation rho, where P(X < x) = p."""
    x = norm.ppf(p)
    return float(multivariate_normal.cdf([x, x], cov=[[1, rho], [rho, 1]]))


def test_shocks_last_as_stated() -> None:
    """The number of clients that are there has autocorrelation close to 1 - 1 / stay from round to round."""
    made = world(400, mean=0.5, shocks={"rho": 0.4, "stay": 10.0})
    counts = np.array([len(made.present(t + 1)) for t in range(4000)])
    assert np.corrcoef(counts[:-1], counts[1:])[0, 1] == pytest.approx(0.9, abs=0.03)


def test_a_round_is_the_same_whenever_it_is_asked_for() -> None:
    made = world(30, mean=0.5, process={"kind": "markov"}, shocks={})
    there = [made.present(t).tolist() for t in range(1, 9)]
    assert made.present(3).tolist() == there[2]
    assert made.present(8).tolist() == there[7]


def test_clients_that_leave_stay_for_an_exponential_time() -> None:
    made = world(20_000, leave={"seconds": 5.0})
    stays = made.stays(1)
    assert stays is not None
    assert stays.mean() == pytest.approx(5, rel=0.03)
    assert (stays > 5).mean() == pytest.approx(np.exp(-1), abs=0.01)
    assert not np.array_equal(stays, made.stays(2))
    assert not np.array_equal(stays, made.stays(1, asked=1)), "who begins later in a round stays anew"
    assert world(5).stays(1) is None


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
        ("client,from,to\n0,0,inf\n", "no field may be empty or infinite"),
        ("client,from,to\n0,0,5\n1,0,2\n0,4,9\n", "two intervals of client 0 overlap"),
        ("client,from,to\n0,0,5,7\n", "more fields than its first line"),
        ("client,from,to\n0,0,5\n0,6,7,8\n", "all numbers"),
        ("client,from,to\n0,0,1e14\n", "seconds since its start, not dates"),
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
    "rate",
    [
        {"kind": "size", "beta": -1000.0},
        {"kind": "log_normal", "sigma": 500.0},
    ],
)
def test_rates_that_miss_their_mean_are_refused(rate) -> None:
    with pytest.raises(DataError, match=r"differ so much that the mean becomes|cannot be reached"):
        world(60, mean=0.3, rate=rate)


@pytest.mark.bad_input
def test_cycles_in_which_clients_would_never_come_are_refused() -> None:
    """0.02 of 20 rounds: 60 % of clients would never be there. 50 rounds are enough."""
    with pytest.raises(
        DataError, match=r"100 of 100 clients .* less than one round in every 20.*length to 50 or more"
    ):
        world(100, mean=0.02, process={"kind": "cyclic", "length": 20})
    made = world(100, mean=0.02, process={"kind": "cyclic", "length": 50})
    assert len({k for t in range(1, 51) for k in made.present(t).tolist()}) == 100
    check_cycles(np.array([0.0, 0.5]), 4)  # a client with p = 0 never comes, as asked


@pytest.mark.bad_input
def test_speeds_must_be_finite(tmp_path) -> None:
    text = "client,seconds_per_sample,kbit_down,kbit_up\n0,inf,1,1\n1,1,1,1\n"
    with pytest.raises(DataError, match="infinite"):
        world(2, speeds=written(tmp_path / "speeds.csv", text))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "keys",
    [
        {"mean": 0.3, "least": 0.5},
        {"mean": 0.5, "trace": {"file": "a", "sha256": "0" * 64}},
        {"late": "keep"},
        {"absences": "all", "ends": {"kind": "first"}},
        {"speeds": {"file": "a"}},
        {"leave": {}},
        {"shocks": {}, "trace": {"file": "a", "sha256": "0" * 64}},
    ],
)
def test_settings_that_contradict_each_other(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each with its own words
        Settings(**keys)


@pytest.mark.parametrize(
    ("keys", "revision"),
    [
        ({}, 0),
        ({"mean": 0.3, "absences": "hidden", "process": Markov()}, 0),
        ({"speeds": Speeds()}, 1),
        ({"ends": Deadline(seconds=1)}, 1),
        ({"trace": Trace(file="t.csv", sha256="0" * 64)}, 1),
    ],
)
def test_worlds_in_which_time_passes_otherwise_than_by_rounds_have_a_revision(keys, revision) -> None:
    made = Settings(**keys).model_dump(mode="json")
    assert code_of({"world": made}) == ({"world": revision} if revision else {})
    assert not {"shocks", "leave"} & set(made), "what is new has no part in older addresses"


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
