"""`fedlib arena`: train a submission, check it as it is checked before it is merged, and score all of them.

A submission's sampler runs in processes of its own (`fedlib.isolated`); this one holds the data, trains, and keeps
count. No code of a submission is ever executed here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.data import datasets
from fedlib.errors import ConfigError, SamplerError, StoreError
from fedlib.isolated.sandbox import MECHANISMS
from fedlib.runs import archive as archives
from fedlib.runs import retrain
from fedlib.runs.experiment import Failed, simulate
from fedlib.runs.place import Place, runs_in_lockstep
from fedlib.runs.results import open_results
from fedlib.runs.retrain import ArchivedRun
from fedlib.runs.store import pack, unpack
from fedlib.runs.work import Plan, Work
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Run, Scale
from fedlib.settings.world import World
from fedlib.simulation.live import Live
from workspace.analysis.submission import Submission, accuracies, check_name

Tell = Callable[[str], None]
ROUNDS = 6  # of the runs that check the contract
CHANCE = 0.01  # that the scores of an honest sampler on fresh seeds are so much lower than the archived ones
LACKING = {  # mechanism of the sandbox -> what nothing else refuses where the system lacks it
    "limits": "it could use all of its memory",
    "namespaces": "it could use a network that was open before",
    "landlock": "it could signal other processes of this user",
    "seccomp": "it could signal other processes of this user",
}


def run(submission: Submission, scale: Scale, settings: Experiments, tell: Tell) -> Path:
    """Train what a submission's archive lacks, and write the archive; returns its path.

    Raises:
        ConfigError, SamplerError, DataError, StoreError: the sampler, its YAML or the data cannot be used.
    """
    check_name(submission, settings)
    plan = submission.plan(scale, settings)
    say_what_lacks(submission, tell)
    place = with_data(plan)
    table, records = trained(submission, plan, place, tell, submission.folder)
    path = archives.write(plan.name, scale, plan.archived, table, records, submission.folder)
    if better := better_trial(submission, scale, settings):
        tell(
            f"{submission.folder.name}: the best trial is {better}; write it as `parameters`, and run this again."
        )
    return path


def trained(
    submission: Submission, plan: Plan, place: Place, tell: Tell, archive: Path | None = None
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """The rows of a plan's runs under the rules, and what made them.

    archive: that runs are taken from, as from the store of this machine; None: all are trained now.

    Raises:
        SamplerError: a run failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        at = place if archive else replace(place, runs=where / "runs")
        try:
            simulate(plan, place=at, results=where, archive=archive or where, tell=tell)
        except Failed as failed:
            reason = str(failed).splitlines()[1] if "\n" in str(failed) else str(failed)
            raise SamplerError(f"{submission.code}: {reason}") from None
        table, info = open_results(plan.name, plan.scale, where)
    return table.assign(rules=submission.rules.stamp), info["runs"]


def check(
    submission: Submission,
    scale: Scale,
    settings: Experiments,
    tell: Tell,
    seed: int | None = None,
    record: bool = False,
) -> None:
    """Check a submission at a scale: its files, the contract, its archive, and its runs on seeds that are drawn now.

    seed: draws the fresh seeds; None: one that nobody knows before.
    record: write the runs on the fresh seeds, on which the submission is scored too.

    Raises:
        ConfigError, SamplerError, StoreError: it breaks the rules. DataError: a dataset cannot be had here.
    """
    name = submission.folder.name
    check_name(submission, settings)
    tell(f"{name}: the contract, in a process of its own")
    say_what_lacks(submission, tell)
    demo = submission.plan("demo", settings)
    first = demo.work[0].run
    assert first  # all work of a submission is a run
    check_contract(submission, first, with_data(demo))
    plan = submission.plan(scale, settings)
    table = check_archive(submission, scale, settings)
    place = with_data(plan)
    seeds = fresh_seeds(submission, int.from_bytes(os.urandom(8)) if seed is None else seed)
    fresh = submission.fresh(scale, settings, seeds)
    tell(f"{name}: {len(plan.work)} runs are trained again, and {len(fresh.work)} on seeds {words_of(seeds)}")
    rows, records = trained(submission, replace(plan, work=(*plan.work, *fresh.work)), place, tell)
    for work in plan.work:
        compare(submission, work, table, rows, scale)
    new = rows[rows["seed"].isin(seeds)]
    check_scores(submission, table, new)
    tell(f"{name}: {len(plan.work)} runs of scale {scale} are the same when trained again")
    if record:
        made = [one for one in records if one["seed"] in seeds]
        root = submission.checked(scale).parents[1]
        path = archives.write(plan.name, scale, plan.archived, new.reset_index(drop=True), made, root)
        tell(f"{name}: its runs on seeds {words_of(seeds)} are in {path}")


def fresh_seeds(submission: Submission, seed: int) -> list[int]:
    """Seeds that nobody knows before: there are too many to have an answer ready for each."""
    rng = np.random.default_rng(seed)
    return sorted(int(seed) for seed in rng.integers(2**32, 2**53, submission.rules.fresh))


def compare(
    submission: Submission, work: Work, table: pd.DataFrame, rows: pd.DataFrame, scale: Scale
) -> None:
    """Compare a run of the archive with the same one, trained again.

    Raises:
        StoreError: a number differs.
    """
    old, new = (
        part[(part[list(work.columns)] == list(work.columns.values())).all(axis=1)] for part in (table, rows)
    )
    record = {"data": {"name": work.dataset}}
    archived = ArchivedRun(work.name, old.reset_index(drop=True), record)
    compared = retrain.compare(archived, new.reset_index(drop=True), informed=False, whole=True)
    if compared.first_different is not None:
        raise StoreError(
            f"{submission.archive(scale)}: {work.words} differs from round {compared.first_different} on when it is "
            f"trained again; delete the file and run: fedlib arena run {submission.folder} --scale {scale}"
        )


def check_scores(submission: Submission, archived: pd.DataFrame, fresh: pd.DataFrame) -> None:
    """Check that a submission's accuracies on fresh seeds are not lower than those of the archive by more than chance.

    A sampler that recognises the published seeds does well on these alone. In each task, the accuracies above the mean
    of the fresh ones are compared by a one-sided t-test with a common variance.

    Raises:
        StoreError: they are.
    """
    name = submission.description.name
    known = accuracies(archived[archived["method"] == name]).droplevel("method")
    new = accuracies(fresh[fresh["method"] == name]).droplevel("method")
    target = accuracies(fresh[fresh["method"] == submission.rules.target]).droplevel("method")
    start = accuracies(fresh[fresh["method"] == submission.rules.baseline]).droplevel("method")
    reach = np.maximum((target - start).groupby(level=0).mean(), submission.rules.reach)
    gaps, variance, free = [], 0.0, 0
    for task in reach.index:
        one, two = known.loc[[task]].to_numpy() / reach[task], new.loc[[task]].to_numpy() / reach[task]
        gaps.append((one.mean() - two.mean(), 1 / len(one) + 1 / len(two)))
        variance += ((one - one.mean()) ** 2).sum() + ((two - two.mean()) ** 2).sum()
        free += len(one) + len(two) - 2
    gap, inverse = np.mean([g for g, _ in gaps]), sum(i for _, i in gaps) / len(gaps) ** 2
    error = float(np.sqrt(max(variance / max(free, 1), 1e-6) * inverse))
    if free and gap / error > stats.t.ppf(1 - CHANCE, free):
        raise StoreError(
            f"{submission.code}: on seeds that were drawn for this check its score is lower by {gap:.2f} than on the "
            f"published ones, which by chance is so in fewer than 1 of {1 / CHANCE:g} checks; does it know these seeds?"
        )


def check_contract(submission: Submission, run: Run, place: Place) -> None:
    """Check that a sampler keeps its contract where clients are absent, and goes on as before from its saved state.

    Raises:
        SamplerError: it does not.
    """
    rounds = min(run.T, ROUNDS)
    try:
        played(run.model_copy(update={"world": World(mean=0.5), "T": rounds}), place, rounds)
        straight, half = played(run, place, rounds), played(run, place, rounds // 2)
        restored = played(run, place, 0)
        restored.load_state_dict(unpack(pack(half.state_dict())))
        if choices(straight) != choices(played(run, place, rounds, restored)):
            raise SamplerError(
                f"{run.method.sampler} chooses other clients after it was saved and loaded; keep all of its state in "
                "attributes."
            )
    except SamplerError as error:
        raise SamplerError(f"{submission.code}: {error}") from None


def played(run: Run, place: Place, rounds: int, live: Live | None = None) -> Live:
    """A run after its first rounds. live: one to continue."""
    lockstep = runs_in_lockstep([run], place)
    if live:
        lockstep.live = [live]
    while lockstep.active and lockstep.live[0].t < rounds:
        lockstep.advance()
    return lockstep.live[0]


def choices(live: Live) -> list[list[int]]:
    return [[int(k) for k in row["clients"]] for row in live.rows]


def say_what_lacks(submission: Submission, tell: Tell) -> None:
    """Start the sampler's process once, and tell what this system cannot refuse it."""
    held = submission.load().begun().held
    for mechanism in MECHANISMS:
        if mechanism not in held:
            tell(f"{submission.folder.name}: this system has no {mechanism}, so {LACKING[mechanism]}")


def with_data(plan: Plan) -> Place:
    """This machine, one process, with the datasets of a plan prepared. Raises DataError: one cannot be had."""
    place = replace(Place.from_environment(), workers=1, scheduler=None)
    for name in sorted({work.dataset for work in plan.work if work.dataset}):
        datasets.prepare(name, root=place.datasets)
    return place


def check_archive(submission: Submission, scale: Scale, settings: Experiments) -> pd.DataFrame:
    """The rows of an archive that holds exactly the planned runs, and scores the best trial.

    Raises:
        StoreError: it does not. ConfigError: another trial is better than the one that is scored.
    """
    table = submission.rows(scale, settings)
    if better := better_trial(submission, scale, settings):
        raise ConfigError(
            f"{submission.folder.name}.yaml.parameters: the best trial is {better}; write it, and run the submission "
            "again."
        )
    return table


def better_trial(submission: Submission, scale: Scale, settings: Experiments) -> dict[str, Any] | None:
    """The parameters of the best trial at the scale that is scored, if they are not the submission's."""
    if scale != submission.rules.scale:
        return None
    best = submission.best_trial(scale, settings)
    return best if best != submission.description.parameters else None


def words_of(seeds: Sequence[int]) -> str:
    return " and ".join(map(str, seeds))
