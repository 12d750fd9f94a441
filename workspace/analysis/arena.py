"""The arena's board: what everybody's runs come to. `arena/rules.md` says what counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pandas as pd

from fedlib.errors import ConfigError, StoreError
from fedlib.samplers import Information, find, sees
from fedlib.settings.params import Experiments, seeds_of
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import submission
from workspace.analysis.profiles import Profiles
from workspace.analysis.submission import Rules, Submission, accuracies, alike


@dataclass(frozen=True)
class Board:
    """The scores of all, what each cost and may see, and on which further seeds it was checked (`table`).

    accepted: the submissions that were checked, each with the rows of its archive. left_out: who has no score, and why.
    """

    profiles: Profiles
    table: pd.DataFrame
    accepted: list[tuple[Submission, pd.DataFrame]]
    left_out: dict[str, str]


def scored(
    methods: pd.DataFrame, scale: Scale, rules: Rules, settings: Experiments, home: Path | None = None
) -> Board:
    """The scores of the arena's methods and of every submission that was checked at a scale.

    methods: the table of the rules' experiment. Nothing of a submission is executed, and one that is not as it should
    be only loses its own score.

    Raises:
        Missing: the scores are not defined.
    """
    runs, parts = settings.runs(rules.experiment, scale), [accuracies(methods)]
    kinds = {one.method: sees(find(one.run.method.sampler)) for one in runs}
    information = {method: ", ".join(in_order(seen)) or "blind" for method, seen in kinds.items()}
    checked_on: dict[str, str] = {}
    left_out: dict[str, str] = {}
    accepted: list[tuple[Submission, pd.DataFrame]] = []
    spent = [methods]
    taken = {alike(name) for name in information}
    for folder in sorted(((home or submission.HOME) / "submissions").glob("*/")):
        try:
            entry = Submission.open(folder, rules)
            name = entry.description.name
            if alike(name) in taken:
                raise ConfigError(
                    f"{folder.name}.yaml.name: {name!r} is, or looks like, another one's; rename it."
                )
            rows = entry.rows(scale, settings)
            fresh = entry.fresh_rows(scale, settings, home)
        except (ConfigError, StoreError) as error:
            left_out[printable(folder.name)] = printable(str(error).replace(f"{ROOT}/", ""))
            continue
        taken.add(alike(name))
        accepted.append((entry, rows))
        spent.append(rows[rows["method"] == name])
        parts += [accuracies(rows[rows["method"] == name]), accuracies(fresh)]
        information[name] = ", ".join(entry.description.information)
        checked_on[name] = ", ".join(str(seed) for seed in sorted(set(fresh["seed"])))
    together = pd.concat(parts)
    together = together[~together.index.duplicated()]
    seeds = seeds_of(settings.describe(rules.experiment, scale), rules.experiment)
    profiles = Profiles.of(together, rules.baseline, rules.target, rules.reach, seeds)
    left_out |= {name: f"lacks {run}" for name, run in profiles.left_out.items()}
    table = profiles.table()
    table = table.join(costs(pd.concat(spent, ignore_index=True), rules.baseline)).assign(
        information=[information.get(name, "") for name in table.index],
        checked=[checked_on.get(name, "") for name in table.index],
        rules=rules.stamp,
    )
    return Board(profiles, table, accepted, left_out)


def costs(results: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """What each method sent and received (`bytes`) and what its clients computed (`steps`), as multiples of the
    baseline's with the same task and seed: by method, the median over tasks and seeds.
    """
    sent = results["parameters_down"] + results["parameters_up"] + results["scalars_up"]
    spent = results.assign(bytes=sent, steps=results["client_steps"])
    totals = spent.groupby(["setting", "seed", "method"])[["bytes", "steps"]].sum()
    return pd.DataFrame(totals / totals.xs(baseline, level="method")).groupby("method").median()


def printable(text: str) -> str:
    """A text, such as the name of a stranger's folder, without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def in_order(kinds: Collection[Information]) -> list[Information]:
    """Classes of information in the order of the rules."""
    return [kind for kind in get_args(Information) if kind in kinds]
