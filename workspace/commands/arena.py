"""`fedlib arena`: train a submission, check it as it is checked before it is merged, and score all of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.data import datasets
from fedlib.errors import ConfigError, SamplerError, StoreError
from fedlib.runs import archive as archives
from fedlib.runs import retrain
from fedlib.runs.place import Place
from fedlib.runs.results import open_results
from fedlib.runs.simulate import simulate
from fedlib.runs.store import pack, unpack
from fedlib.runs.supply import runs_in_lockstep
from fedlib.runs.work import Plan, Work, words
from fedlib.samplers import Report, Sampler, ServerLosses, base
from fedlib.samplers.checks import names_in
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Run, Scale
from fedlib.settings.world import World
from fedlib.simulation.live import Live
from fedlib.streams import stream
from workspace.analysis.arena import Submission

Tell = Callable[[str], None]
CLOCK = {"seconds", "time"}  # of a report, and of a round
ROUNDS = 10  # of the runs that check the contract


def declared(cls: type[Sampler]) -> set[str]:
    """The classes of information that a sampler's own attributes and code name.

    Raises:
        ConfigError: it does not state its questions, or has one of its own.
    """
    if cls.asks is None:
        raise ConfigError(f"{cls.__name__}.asks is missing; list the questions, or write asks = frozenset().")
    if isinstance(cls.asks, property):
        raise ConfigError(f"{cls.__name__}.asks is a property; list all questions that it may ask.")
    kinds = set()
    for question in cls.asks:
        if question.__module__ != base.__name__:
            raise ConfigError(
                f"{cls.__name__}.asks: {question.__name__} is no question of fedlib.samplers.base."
            )
        kinds.add("validation set" if issubclass(question, ServerLosses) else question.reveals)
    kinds |= {"labels"} & cls.needs | ({"losses"} if cls.reads else set())
    used = set().union(
        *(names_in(code) for value in vars(cls).values() if (code := getattr(value, "__code__", None)))
    )
    return kinds | ({"speeds"} if used & CLOCK else set())


def check_information(path: str, named: set[str], cls: type[Sampler], run: Run, place: Place) -> None:
    """Check that a sampler's choices in a run depend on nothing but the named classes of information.

    path: of the file that names them.

    Raises:
        ConfigError: its class asks for more, or it chooses other clients while the rest is hidden.
    """
    if undeclared := sorted(declared(cls) - named):
        raise ConfigError(
            f"{path}.information: {cls.__name__} uses {undeclared[0]}, which is not named; add it."
        )
    hidden = [kind for kind in ("losses", "updates", "labels") if kind not in named]
    expected = choices(trained(run, place))
    if chooses(run, place, set(hidden)) == expected:
        return
    kinds = [kind for kind in hidden if chooses(run, place, {kind}) != expected] or hidden
    raise ConfigError(
        f"{path}.information: {cls.__name__} chooses other clients while {kinds[0]} are hidden; add {kinds[0]}."
    )


def chooses(run: Run, place: Place, hidden: set[str]) -> list[list[int]] | None:
    """Whom a sampler chooses in each round while something is hidden; None where it cannot do without."""
    try:
        return choices(trained(run, place, hidden))
    except SamplerError:
        return None


def trained(run: Run, place: Place, hidden: Collection[str] = ()) -> Live:
    """A run, trained to its end, whose sampler does not see some classes of information.

    Raises:
        SamplerError: the sampler breaks its contract.
    """
    lockstep = runs_in_lockstep([run], place)
    (live,) = lockstep.live
    if hidden:
        blindfold(live, hidden)
    while lockstep.active:
        lockstep.advance()
    return live


def blindfold(live: Live, hidden: Collection[str]) -> None:
    """Replace a run's sampler, before round 1, by one that is told zeros in place of what is hidden."""
    cls = type(live.sampler)

    class Blindfolded(cls):
        def observe(self, round: Any, report: Report) -> Any:
            return super().observe(round, hide(report, hidden))

    fed = (
        replace(live.fed, label_counts=np.zeros_like(live.fed.label_counts))
        if "labels" in hidden
        else live.fed
    )
    kind = Blindfolded if cls.observe is not Sampler.observe else cls
    live.sampler = kind(**live.run.method.params)
    live.sampler.setup(fed, stream(live.run.seed, "setup"))


def hide(report: Report, hidden: Collection[str]) -> Report:
    """A report in which the losses or the updates are zeros."""
    names = [*["losses", "squared"] * ("losses" in hidden), *["updates"] * ("updates" in hidden)]
    values = {name: getattr(report, name) for name in names}
    return replace(report, **{name: np.zeros_like(v) for name, v in values.items() if v is not None})


def choices(live: Live) -> list[list[int]]:
    return [[int(k) for k in row["clients"]] for row in live.rows]


def check_contract(run: Run, place: Place) -> None:
    """Check that a sampler keeps its contract where clients are absent, and goes on as before from its saved state.

    Raises:
        SamplerError: it does not.
    """
    rounds = min(run.T, ROUNDS)
    trained(run.model_copy(update={"world": World(mean=0.5), "T": rounds}), place)
    straight, half = runs_in_lockstep([run], place), runs_in_lockstep([run], place)
    while half.live[0].t < rounds // 2:
        half.advance()
    restored = runs_in_lockstep([run], place)
    restored.live[0].load_state_dict(unpack(pack(half.live[0].state_dict())))
    for lockstep in (straight, restored):
        while lockstep.live[0].t < rounds:
            lockstep.advance()
    if choices(straight.live[0]) != choices(restored.live[0]):
        raise SamplerError(
            f"{run.method.sampler} chooses other clients after it was saved and loaded; keep all of its state in "
            "attributes."
        )


def with_data(plan: Plan) -> Place:
    """This machine, one process, with the datasets of a plan prepared. Raises DataError: one cannot be had."""
    place = replace(Place.from_environment(), workers=1, scheduler=None)
    for name in sorted({work.dataset for work in plan.work if work.dataset}):
        datasets.prepare(name, root=place.datasets)
    return place


def run(submission: Submission, scale: Scale, settings: Experiments, tell: Tell) -> Path:
    """Train what a submission's archive lacks, and write the archive; returns its path.

    Raises:
        ConfigError, DataError, Failed: the sampler, its YAML or the data cannot be used, or runs failed.
    """
    submission.load()
    plan = submission.plan(scale, settings)
    place = with_data(plan)
    with tempfile.TemporaryDirectory() as folder:
        simulate(plan, place=place, results=Path(folder), archive=submission.folder, tell=tell)
        table, info = open_results(plan.name, scale, Path(folder))
    table = table.assign(rules=submission.rules.stamp)
    path = archives.write(plan.name, scale, plan.archived, table, info["runs"], submission.folder)
    if better := better_trial(submission, scale):
        tell(
            f"{submission.folder.name}: the best trial is {better}; write it as `parameters`, and run this again."
        )
    return path


def check(
    submission: Submission, scale: Scale, settings: Experiments, tell: Tell, seed: int | None = None
) -> None:
    """Check a submission at a scale: contract, information, archive, and some runs trained again.

    seed: draws the runs; None: one that nobody knows before.

    Raises:
        ConfigError, SamplerError, StoreError: it breaks the rules. DataError: a dataset cannot be had here.
    """
    name, cls = submission.folder.name, submission.load()
    demo = submission.plan("demo", settings)
    place, first = with_data(demo), demo.work[0].run
    assert first  # all work of a submission is a run
    tell(f"{name}: the contract, and what its choices depend on")
    check_contract(first, place)
    check_information(f"{name}.yaml", set(submission.description.information), cls, first, place)
    plan = submission.plan(scale, settings)
    check_archive(submission, plan.work, scale)
    place = with_data(plan)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    sample = retrain.sample(scale, submission.rules.retrained, seed, submission.folder, place)
    for archived in sample:
        tell(f"{name}: {words(archived.record)} is trained again")
        compared = retrain.train_again(archived, len(archived.rows) - 1, place)
        if compared.first_different is not None:
            raise StoreError(
                f"{submission.archive(scale)}: {words(archived.record)} differs from round "
                f"{compared.first_different} on when it is trained again; delete the file and run: fedlib arena run "
                f"{submission.folder} --scale {scale}"
            )
    tell(
        f"{name}: {len(sample)} runs of scale {scale}, drawn with seed {seed}, are the same when trained again"
    )


def check_archive(submission: Submission, planned: tuple[Work, ...], scale: Scale) -> None:
    """Check that an archive holds exactly the planned runs, made by this sampler, and that the best trial is scored.

    Raises:
        StoreError: it does not. ConfigError: another trial is better than the one that is scored.
    """
    submission.rows(scale)
    path = submission.archive(scale)
    mend = f"delete it and run: fedlib arena run {submission.folder} --scale {scale}"
    records = {words(record): record for record in archives.read(path.stem, scale, submission.folder).runs}
    expected = {work.words: work for work in planned}
    for label in sorted(expected.keys() ^ records.keys()):
        verb = "lacks" if label in expected else "holds, without being asked,"
        raise StoreError(f"{path}: {verb} {label}; {mend}")
    for label, record in records.items():
        if record["address"] != expected[label].address(record["data"]["digest"]):
            raise StoreError(
                f"{path}: {label} was made with other settings or by another sampler's file; {mend}"
            )
    if better := better_trial(submission, scale):
        raise ConfigError(
            f"{submission.folder.name}.yaml.parameters: the best trial is {better}; write it, and run the submission "
            "again."
        )


def better_trial(submission: Submission, scale: Scale) -> dict[str, Any] | None:
    """The parameters of the best trial at the scale that is scored, if they are not the submission's."""
    best = (
        submission.best_trial(scale) if scale == submission.rules.scale else submission.description.parameters
    )
    return best if best != submission.description.parameters else None
