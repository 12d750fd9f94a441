"""One sampler can harm neither another's run nor its own record, and what goes wrong in it is one sentence."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedlib.data import datasets, partition
from fedlib.errors import SamplerError
from fedlib.runs.experiment import Failed, simulate
from fedlib.runs.place import Place, address
from fedlib.runs.results import failed, open_results, record
from fedlib.runs.store import Store
from fedlib.runs.train import train
from fedlib.runs.work import Plan
from fedlib.samplers import SAMPLERS, Losses, Sampler, Selection, TrialLosses, Updates, register
from fedlib.settings import params
from fedlib.simulation import guard
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.guard import GlobalDraws
from fedlib.training.executors import make_executor
from tests.simulation.lockstep import finish
from workspace.commands import cli

SETTING: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_clients", "alpha": 0.1, "sizes": [[6, 20], [4, 40]]},
    "model": "logistic",
    "N": 10,
    "m": 3,
    "T": 4,
    "local": {"lr": 0.05, "batch": 10, "steps": 2},
}


@dataclass
class Good(Sampler):
    """The first m clients in the first rounds; subclasses go wrong in one place."""

    def select(self, round):
        return Selection(self.fed.everyone[: self.fed.m])


@pytest.fixture
def sampler():
    """Register a `Good` sampler, as `bad`, with some of its methods replaced."""

    def add(**methods: Callable[..., Any]) -> None:
        register("bad")(dataclass(type("Bad", (Good,), {"__module__": __name__, **methods})))

    yield add
    SAMPLERS.pop("bad", None)


def build(sampler: str, seed: int = 0, **changes: Any):
    return params.build(
        params.merge(SETTING, params.split_method({"sampler": sampler, **changes})), seed, "test"
    )


@pytest.fixture(scope="module")
def world():
    """A lockstep of runs of `SETTING`."""
    data = datasets.load("digits")
    executor = make_executor("logistic", datasets.tensors(data), threads=1)

    def lockstep(*runs, strict: bool = True) -> Lockstep:
        parts = [partition.make(run.partition, data, run.N, run.seed) for run in runs]
        return Lockstep(runs, parts, executor, strict=strict)

    return lockstep


def numbers(live) -> str:
    return repr([{k: v for k, v in row.items() if "seconds" not in k} for row in live.rows])


def setup(self, fed, rng, spoil):
    Sampler.setup(self, fed, rng)
    spoil(self, fed)


# -- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize("array", ["sizes", "label_counts", "p"])
def test_a_federation_cannot_be_written_to(array, sampler, world):
    """Else MD and Algorithm 2 beside it would choose other clients."""

    def spoil(self, fed, rng):
        Sampler.setup(self, fed, rng)
        getattr(fed, array)[:] = 1

    sampler(setup=spoil)
    runs = [build("bad"), build("md"), build("clustered_size"), build("clustered_similarity")]
    lives = finish(world(*runs, strict=False))
    assert re.fullmatch(
        r"bad \(seed 0\), setup: .*read-only.*test_harm\.py, line \d+\)\.", str(lives[0].failed)
    )
    for live, run in zip(lives[1:], runs[1:], strict=True):
        assert numbers(live) == numbers(finish(world(run))[0])


@pytest.mark.bad_input
@pytest.mark.parametrize("array", ["clients", "updates", "losses"])
def test_a_report_cannot_be_written_to(array, sampler, world):
    def observe(self, round, report):
        getattr(report, array)[:] = 0

    sampler(observe=observe)
    with pytest.raises(SamplerError, match=r"bad \(seed 0\), round 1, observe: .*read-only"):
        world(build("bad")).advance()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "question", [Losses([0]), Updates([0]), TrialLosses([0], [1])], ids=lambda q: type(q).__name__
)
def test_an_answer_cannot_be_written_to(question, sampler, world):
    def select(self, round):
        answer = yield question
        answer[:] = 0

    sampler(select=select)
    with pytest.raises(SamplerError, match=r"round 1, select: .*read-only"):
        world(build("bad")).advance()


def test_the_record_is_taken_before_the_sampler_can_change_it(sampler, world):
    """Its own arrays and notes, too, which it handed over."""

    def select(self, round):
        self.mine, self.notes = np.array([4, 2, 7]), {"x": 1}
        return Selection(self.mine, notes=self.notes)

    def observe(self, round, report):
        self.mine[:] = 0
        self.notes["x"] = 2

    sampler(select=select, observe=observe)
    rows = finish(world(build("bad")))[0].rows
    assert [row["clients"] for row in rows[1:]] == [[4, 2, 7]] * 4
    assert [json.loads(row["notes"]) for row in rows[1:]] == [{"x": 1}] * 4


# -- chance ----------------------------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[], Any]] = {
    "numpy.random": np.random.random,
    "numpy.random seeded": lambda: np.random.seed(0),  # noqa: NPY002
    "random": random.random,
    "random seeded": lambda: random.seed(0),
    "torch": lambda: torch.rand(1),
    "torch seeded": lambda: torch.manual_seed(0),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("phase", ["setup", "select", "asking", "encode", "observe"])
@pytest.mark.parametrize("generator", DRAWS)
def test_a_sampler_that_draws_from_a_global_generator_is_refused(generator, phase, sampler, world):
    draw = DRAWS[generator]

    def chosen(self, round):
        return Good.select(self, round)

    def encode(updates):
        draw()
        return updates

    def asking(self, round):
        yield Losses([0])
        draw()
        yield Losses([1])
        return chosen(self, round)

    def encoding(self, round):
        yield Updates([0, 1], encode=encode)
        return chosen(self, round)

    methods: dict[str, dict[str, Callable[..., Any]]] = {
        "setup": {"setup": lambda self, fed, rng: setup(self, fed, rng, lambda *_: draw())},
        "select": {"select": lambda self, round: (draw(), chosen(self, round))[1]},
        "asking": {"select": asking},
        "encode": {"select": encoding},
        "observe": {"observe": lambda self, round, report: draw() and None},
    }
    sampler(**methods[phase])
    said = {"asking": "select"}.get(phase, phase)
    name = re.escape(generator.split()[0])
    with pytest.raises(SamplerError, match=rf"{said}: it drew from the global generator of {name}"):
        finish(world(build("bad")))


def test_a_look_at_the_global_generators_changes_none():
    watch = GlobalDraws()
    assert [watch.touched() for _ in range(3)] == [[], [], []]
    np.random.normal()  # noqa: NPY002
    torch.rand(1)
    assert watch.touched() == ["numpy.random", "torch"]
    assert watch.touched() == []


def test_who_seeds_alike_is_found_each_time(sampler, world):
    sampler(select=lambda self, round: (random.seed(7), Good.select(self, round))[1])
    lives = finish(world(build("bad", 0), build("bad", 1), build("bad", 2), strict=False))
    assert all("global generator of random" in str(live.failed) for live in lives)


def test_who_draws_is_found_among_others(sampler, world):
    sampler(select=lambda self, round: (random.random(), Good.select(self, round))[1])
    lives = finish(world(build("md"), build("bad", 1), build("power_of_choice", d=5), strict=False))
    assert [live.failed is None for live in lives] == [True, False, True]
    assert str(lives[1].failed).startswith(
        "bad (seed 1), round 1, select: it drew from the global generator of random"
    )


# -- questions and selections ----------------------------------------------------------------------------------------


@pytest.mark.bad_input
def test_endless_questions_end(sampler, world):
    def select(self, round):
        while True:
            yield Losses([0])

    sampler(select=select)
    with pytest.raises(SamplerError, match="round 1, select: it asked more than 1000 questions in one round"):
        world(build("bad")).advance()
    with pytest.raises(SamplerError, match="more than 3 questions"):
        world(build("bad", questions=3)).advance()


def test_as_many_questions_as_allowed_may_be_asked(sampler, world):
    def select(self, round):
        for _ in range(2):
            yield Losses([0])
        return Selection(self.fed.everyone[: self.fed.m])

    def observe(self, round, report):
        yield Losses([1])

    sampler(select=select, observe=observe)
    assert len(finish(world(build("bad", questions=3)))[0].rows) == 5


CHOICES: dict[str, tuple[dict[str, Any], str]] = {
    "more than m": ({"clients": np.arange(5)}, "it chose 5 clients, but m is 3"),
    "fewer than m": ({"clients": np.arange(2)}, "it chose 2 clients, but m is 3"),
    "zero expected": (
        {"clients": np.arange(3), "expected": np.zeros(3)},
        "expected draws must be above zero",
    ),
    "negative expected": (
        {"clients": np.arange(3), "expected": -np.ones(3)},
        "expected draws must be above zero",
    ),
    "text for weights": ({"clients": np.arange(3), "weights": np.array(["a", "b", "c"])}, "TypeError"),
    "notes that are no JSON": ({"clients": np.arange(3), "notes": {(1, 2): 3}}, "notes: TypeError"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", CHOICES)
def test_a_selection_that_breaks_the_contract_is_told_in_words(case, sampler, world):
    selection, words = CHOICES[case]
    sampler(select=lambda self, round: Selection(**selection))
    with pytest.raises(SamplerError, match=rf"bad \(seed 0\), round 1, .*{words}"):
        world(build("bad", aggregation="ipw" if "expected" in selection else "mean")).advance()


def test_a_sampler_may_declare_another_number_than_m(sampler, world):
    sampler(draws="random", select=lambda self, round: Selection(np.arange(round.t - 1)))
    assert [len(row["clients"]) for row in finish(world(build("bad")))[0].rows[1:]] == [0, 1, 2, 3]


def test_hics_fl_may_choose_fewer_where_its_pass_over_all_clients_ends(world):
    rows = finish(world(build("hics_fl")))[0].rows
    assert [len(row["clients"]) for row in rows[1:]] == [3, 3, 3, 1], "N is 10"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "encode",
    [lambda G: G[:1], lambda G: np.concatenate([G, G]), lambda G: G.mean(), lambda G: [][1], lambda G: None],
)
def test_an_encode_that_gives_no_row_a_client_is_told_in_words(encode, sampler, world):
    def select(self, round):
        yield Updates([0, 1, 2], encode=encode)

    sampler(select=select)
    with pytest.raises(SamplerError, match=r"bad \(seed 0\), round 1, encode: "):
        world(build("bad")).advance()


# -- one run's failure is its own ------------------------------------------------------------------------------------


def breaks(phase: str, at: int) -> dict[str, Callable[..., Any]]:
    """Methods of a sampler that raises in one phase of one round."""

    def select(self, round):
        if phase == "select" and round.t == at:
            raise IndexError("no client\nlike that")
        return Selection(round.rng.permutation(self.fed.N)[: self.fed.m])

    def observe(self, round, report):
        if phase == "observe" and round.t == at:
            raise SystemExit(3)

    def state_dict(self):
        if phase == "state_dict":
            raise KeyError("state")
        return {}

    return {"select": select, "observe": observe, "state_dict": state_dict}


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (
            "select",
            r"bad \(seed 1\), round 3, select: IndexError: no client like that \(test_harm\.py, line \d+\)\.",
        ),
        ("observe", r"bad \(seed 1\), round 3, observe: SystemExit: 3 \(test_harm\.py, line \d+\)\."),
    ],
)
def test_a_method_that_raises_ends_its_own_run_and_no_other(phase, words, sampler, world):
    sampler(**breaks(phase, 3))
    runs = [build("uniform"), build("bad", 1), build("power_of_choice", d=5)]
    lives = finish(world(*runs, strict=False))
    assert re.fullmatch(words, str(lives[1].failed))
    assert "in select" in lives[1].failed.trace or "in observe" in lives[1].failed.trace
    assert len(lives[1].rows) == 3, "rounds 0 to 2; nothing of the round in which it failed"
    for one in (0, 2):
        assert numbers(lives[one]) == numbers(finish(world(runs[one]))[0])


def test_an_algorithm_that_raises_ends_its_own_run_and_no_other(world, monkeypatch):
    lockstep = world(build("uniform"), build("md"), strict=False)
    monkeypatch.setattr(lockstep.live[1].algorithm, "aggregate", None)
    lives = finish(lockstep)
    assert str(lives[1].failed).startswith("md (seed 0), round 1, aggregate: TypeError: ")
    assert numbers(lives[0]) == numbers(finish(world(build("uniform")))[0])


def quiet(_: str) -> None:
    pass


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("setup", ", setup: "),
        ("select", ", round 3, select: "),
        ("state_dict", ", round 1, state_dict: KeyError"),
    ],
)
def test_the_store_says_why_a_run_failed_until_it_is_tried_again(phase, words, sampler, tmp_path):
    """A state that cannot be saved is found in round 1, not with the first checkpoint, a minute later."""
    spoilt = {"setup": lambda self, fed, rng: [][1]} if phase == "setup" else {}
    sampler(**breaks(phase, 3), **spoilt)
    where = Place(runs=tmp_path, workers=1)
    runs = [build("uniform"), build("bad")]
    store, (good, wrong) = Store(tmp_path), (address(run, where) for run in runs)
    train(runs, where, quiet)
    assert (store.finished(good), store.finished(wrong), store.failure(good)) == (True, False, None)
    assert words in store.failure(wrong)["reason"]
    assert "Traceback" in store.failure(wrong)["trace"]
    sampler()  # mended: of a sampler in a file, its address changes too
    store.fail(address(build("bad"), where), "of before", "")
    train([build("bad")], where, quiet)
    assert store.finished(address(build("bad"), where))
    assert store.failure(address(build("bad"), where)) is None


@pytest.mark.bad_input
def test_a_state_that_cannot_be_saved_is_found_in_round_1(sampler, tmp_path):
    def select(self, round):
        self.state = object()
        return Good.select(self, round)

    sampler(select=select)
    where = Place(runs=tmp_path, workers=1)
    train([build("bad", T=2)], where, quiet)
    reason = Store(tmp_path).failure(address(build("bad", T=2), where))["reason"]
    assert reason.startswith("bad (seed 0), round 1, state_dict: ")
    assert "a object cannot be kept in a checkpoint" in reason


def plan_of(experiments: params.Experiments) -> Plan:
    return Plan.of_experiment("few", "demo", experiments)


def spec(**methods: Any) -> params.Experiments:
    return params.Experiments({"experiments": {"few": {**SETTING, "seeds": 2, "methods": methods}}})


def test_a_failed_run_stands_in_the_results_record_beside_the_others(sampler, tmp_path):
    sampler(**breaks("select", 3))
    where, results = Place(runs=tmp_path / "runs", workers=1), tmp_path / "results"
    given = {"place": where, "results": results, "archive": tmp_path, "tell": quiet}
    experiments = spec(Mine={"sampler": "bad"}, MD={"sampler": "md"})
    with pytest.raises(Failed, match=r"few \[demo\]: 2 of 4 runs failed; .*--traceback") as raised:
        simulate(plan_of(experiments), **given)
    assert re.search(r"\nMine, seed 1: bad \(seed 1\), round 3, select: IndexError: ", str(raised.value))
    assert "in select" in raised.value.traces["Mine, seed 1"]
    table, info = open_results("few", "demo", results)
    assert (set(table["method"]), len(info["runs"])) == ({"MD"}, 2)
    assert [one.partition(": bad")[0] for one in failed(info)] == ["Mine, seed 0", "Mine, seed 1"]
    sampler()
    simulate(plan_of(experiments), **given)
    assert len(open_results("few", "demo", results)[1]["runs"]) == 4
    assert failed(record("few", "demo", results)) == []


def test_the_command_says_what_failed_and_with_traceback_where(sampler, tmp_path, monkeypatch, capsys):
    """And its exit status says so, until the sampler is mended."""
    where = Place(runs=tmp_path / "runs", workers=1), tmp_path, tmp_path
    experiments = spec(Mine={"sampler": "bad"}, MD={"sampler": "md"})
    monkeypatch.setattr(params, "load", lambda: experiments)
    monkeypatch.setattr("fedlib.runs.experiment.places", lambda folder: where)

    def run(*options: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["fedlib", "run", "few", "--scale", "demo", *options])
        try:
            status = cli.app()
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().err

    sampler(**breaks("select", 3))
    status, told = run()
    assert status == 1
    assert re.search(
        r"\nMine, seed 1: bad \(seed 1\), round 3, select: IndexError: no client like that", told
    )
    assert "Traceback" not in told
    status, told = run("--traceback")
    assert (status, told.count("Traceback")) == (1, 2)
    assert "in select" in told
    sampler()
    assert run()[0] == 0
    assert len(open_results("few", "demo", tmp_path)[1]["runs"]) == 4


def test_where_all_runs_fail_there_is_no_table_and_the_reasons_are_told(sampler, tmp_path):
    sampler(**breaks("select", 1))
    given = {"place": Place(runs=tmp_path / "runs", workers=1), "results": tmp_path, "archive": tmp_path}
    with pytest.raises(Failed, match="2 of 2 runs failed") as raised:
        simulate(plan_of(spec(Mine={"sampler": "bad"})), tell=quiet, **given)
    assert [one["seed"] for one in raised.value.missing] == [0, 1]


def test_who_draws_in_another_thread_harms_no_run_that_trains_beside_the_main_one():
    """As Dask and Jupyter do with Python's own generator; NumPy's is watched there too."""
    import random
    from concurrent.futures import ThreadPoolExecutor

    def touched(draw) -> list[str]:
        watch = guard.GlobalDraws()
        draw()
        return watch.touched()

    with ThreadPoolExecutor(1) as aside:
        assert aside.submit(touched, random.random).result() == []
        assert aside.submit(touched, np.random.random).result() == ["numpy.random"]
    assert touched(random.random) == ["random"]


# -- costs, notes, generators ----------------------------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "costs", [{"parameters": -5}, {"parameters": float("nan")}, {"scalars": -1}], ids=str
)
def test_a_question_cannot_state_costs_that_no_client_has(costs, sampler, world):
    def select(self, round):
        yield Updates(self.fed.everyone, **costs)

    sampler(select=select)
    with pytest.raises(SamplerError, match=f"{next(iter(costs))} of its Updates is .*0 or more"):
        world(build("bad")).advance()


@pytest.mark.bad_input
def test_a_question_that_is_not_listed_is_refused(sampler, world):
    def select(self, round):
        yield Losses([0])

    sampler(select=select, asks=frozenset({Updates}))
    with pytest.raises(SamplerError, match="yielded Losses, which its `asks` does not list"):
        world(build("bad")).advance()


@pytest.mark.bad_input
def test_notes_hold_no_addresses_of_objects(sampler, world):
    sampler(select=lambda self, round: Selection([0, 1, 2], notes={"what": object()}))
    with pytest.raises(SamplerError, match="a object is neither a number, a text"):
        world(build("bad")).advance()


@pytest.mark.bad_input
def test_a_sampler_keeps_no_generator(sampler, world):
    def keep(self, fed, rng):
        Sampler.setup(self, fed, rng)
        self.own = rng

    sampler(setup=keep)
    with pytest.raises(SamplerError, match="keeps a generator of its own, self.own"):
        world(build("bad"))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregation": "data-size"}, "Bad.aggregation is 'data-size'; it must be one of .*'data_size'"),
        ({"draws": "twice"}, "Bad.draws is 'twice'"),
        ({"needs": {"lables"}}, "Bad.needs is .*; it may hold 'labels', 'output layer'"),
        ({"asks": {"Losses"}}, "Bad.asks is .*classes of questions"),
        (
            {"select": lambda self, round: Selection(np.random.default_rng().choice(10, 3, False))},
            "Bad.select makes a generator with numpy.random.default_rng",
        ),
    ],
)
def test_what_a_class_declares_means_something(changes, words, sampler):
    sampler(**changes)
    with pytest.raises(ValueError, match=words):
        build("bad")


@pytest.mark.bad_input
def test_a_parameter_of_a_class_that_is_no_dataclass_is_refused():
    class Candidates(Good):
        d: int = 4

    register("bad")(Candidates)
    try:
        with pytest.raises(ValueError, match="Candidates declares 'd' but is no dataclass.*@dataclass"):
            build("bad")
    finally:
        SAMPLERS.pop("bad")


class Mute(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.bad_input
@pytest.mark.parametrize("error", [Mute(), GeneratorExit()], ids=lambda error: type(error).__name__)
def test_whatever_is_raised_ends_that_run_alone(error, sampler, world):
    def select(self, round):
        raise error

    sampler(select=select)
    bad, good = finish(world(build("bad"), build("md"), strict=False))
    assert type(error).__name__ in str(bad.failed)
    assert good.t == SETTING["T"]


def test_a_run_that_diverges_says_so(sampler, world, capsys):
    def select(self, round):
        return Selection(self.fed.everyone[:3], weights=np.full(3, 1e300))

    sampler(select=select)
    (live,) = finish(world(build("bad")))
    assert live.diverged
    assert f"bad (seed 0) diverged in round {live.t}" in capsys.readouterr().err


def test_a_second_draw_uploads_again(sampler, world):
    """The first draw's update has arrived as an answer; the second draw trains anew and sends what it made."""

    def select(self, round):
        yield Updates(self.fed.everyone[:4])
        return Selection(np.array([0, 0, 1]))

    sampler(select=select, draws="repeated")
    (live,) = finish(world(build("bad", T=1)))
    assert live.rows[1]["parameters_up"] == (4 + 1) * live.executor.layout.d


@pytest.mark.bad_input
def test_what_needs_more_memory_than_there_is_is_refused_before_it_starts(sampler, world):
    sampler(needed=lambda self, fed: 2**60)
    with pytest.raises(
        SamplerError, match=r"'bad' needs at least .* GiB for N = 10 clients, but this machine has"
    ):
        world(build("bad"))
