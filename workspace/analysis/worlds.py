"""The claim that a method is better than another, in each of several worlds: whether it holds there.

A claim is judged in every world for itself, as claims of papers are (`docs/judging.md`): an effect over paired seeds
with Student's interval, the words of `words.ORDER`, and Holm's correction over the claims of a world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedlib.measure import BYTES
from workspace.analysis.estimators import LEVEL, Effect, holm, outcome

KEYS = ["setting", "method", "seed"]
SENT = ["parameters_down", "parameters_up", "scalars_up"]
SEPARATOR = "\n"
Measure = Callable[[pd.DataFrame], float]
COLUMNS = ["setting", "method", "difference", "low", "high", "seeds", "outcome"]
WORDS = {"higher": "holds", "lower": "contradicted", "unclear": "not shown"}
OPEN = [
    "not after correction",
    "not shown",
    "equal",
]  # a claim of one world that is neither; "equal" is of worlds alone


def mean_of(column: str, last: float = 1.0) -> Measure:
    """A measure of a run: the mean of a column over the last share of its measured rounds, round 0 left out."""

    def measure(run: pd.DataFrame) -> float:
        values = run.loc[run["round"] > 0].sort_values("round")[column].dropna()
        return float(values.iloc[-max(1, round(last * len(values))) :].mean())

    return measure


def measured(table: pd.DataFrame, measure: Measure) -> pd.Series:
    """A measure of every run of an experiment's table, by (setting, method, seed), in the order of the table."""
    runs = table.groupby(KEYS, sort=False)
    return pd.Series({key: measure(run) for key, run in runs}).rename_axis(KEYS)


def at_equal_cost(table: pd.DataFrame, base: str, costs: Sequence[str], column: str) -> pd.Series:
    """Mean of a column over what is spent, from 0 to what a run of `base` spends, by (setting, method, seed).

    costs: columns whose sum is spent in a round. The column is linear between the rounds in which it was measured;
    after the last one it stays as it is. A run without a run of `base` in its setting and seed has no value.
    """
    spent = table.assign(spent=table[list(costs)].sum(axis=1)).sort_values("round", kind="stable")
    spent["spent"] = spent.groupby(KEYS)["spent"].cumsum()
    budget = spent[spent["method"] == base].groupby(["setting", "seed"])["spent"].max()

    def measure(run: pd.DataFrame) -> float:
        limit = budget.get((run["setting"].iloc[0], run["seed"].iloc[0]), np.nan)
        curve = run.dropna(subset=[column])
        if not limit > 0 or curve.empty:
            return np.nan
        x = np.unique(np.append(curve["spent"][curve["spent"] < limit], [0.0, limit]))
        y = np.interp(x, curve["spent"], curve[column])
        return float(np.trapezoid(y, x) / limit)

    return measured(spent, measure)


def across_servers(
    table: pd.DataFrame, base: str, reference: str, costs: Sequence[str], column: str
) -> pd.Series:
    """`at_equal_cost` with one budget for all servers: what a run of `base` spends with the server `reference`.

    A setting is "server, the rest"; the budget is that of the same rest and seed.
    """
    server, rest = (table["setting"].str.split(", ", n=1).str[i] for i in (0, 1))
    joined = table.assign(setting=rest, method=server + SEPARATOR + table["method"])
    values = at_equal_cost(joined, f"{reference}{SEPARATOR}{base}", costs, column).reset_index(name="value")
    values[["server", "method"]] = values["method"].str.split(SEPARATOR, n=1, expand=True)
    values["setting"] = values["server"] + ", " + values["setting"]
    return values.set_index(KEYS)["value"].reindex(measured(table, len).index)


def servers(values: pd.Series, reference: str, unit: float = 1.0) -> pd.DataFrame:
    """What `claims` gives for the claim that a method reaches more with another server than with `reference`.

    values: as of `across_servers`. The column method names method and server, the column setting the rest.
    """
    frame = values.reset_index(name="value")
    frame[["server", "rest"]] = frame["setting"].str.split(", ", n=1, expand=True)
    effects = []
    for method, part in frame.groupby("method", sort=False):
        runs = part.assign(setting=part["rest"], method=part["server"]).set_index(KEYS)["value"]
        effects.append(claims(runs, reference, unit).assign(of=method))
    table = pd.concat(effects, ignore_index=True)
    return table.assign(method=table["of"] + ", " + table["method"]).drop(columns="of")


def claims(values: pd.Series, base: str, unit: float = 1.0) -> pd.DataFrame:
    """One row per (setting, method): what the claim "higher than `base`" comes to in that setting.

    values: by (setting, method, seed). unit: what a difference is multiplied by (100 for percentage points). Columns:
    difference, low, high (95 % t-interval), seeds, and outcome: "holds", "contradicted" or "not shown", by the side of
    no effect on which the interval lies; "not after correction" where the interval is on one side, and Holm's
    correction over the methods of a setting takes that back; "equal" where a method and `base` have the same value in
    every seed.
    """
    rows = []
    settings = dict.fromkeys(values.index.get_level_values("setting"))
    for setting in settings:
        level = values.loc[setting]
        names = list(dict.fromkeys(level.index.get_level_values("method")))
        for method in names if base in names else ():
            if method == base:
                continue
            effect = Effect.of((level[method] - level[base]).dropna().to_numpy() * unit)
            rows.append(
                {
                    "setting": setting,
                    "method": method,
                    "difference": effect.estimate,
                    "low": effect.low,
                    "high": effect.high,
                    "seeds": effect.n,
                    "outcome": "equal"
                    if effect.spread == effect.estimate == 0
                    else WORDS.get(outcome(effect), outcome(effect)),
                    "p": min(1.0, 2 * min(effect.p_shown, effect.p_reversed)),
                }
            )
    table = pd.DataFrame(rows, columns=[*COLUMNS, "p"])
    for _, family in table.groupby("setting"):
        weak = family.index[holm(family["p"]) >= 1 - LEVEL]
        decided = table["outcome"].isin(["holds", "contradicted"])
        table.loc[weak[decided[weak]], "outcome"] = "not after correction"
    return table.drop(columns="p")


def changes(values: pd.Series, base: str, reference: str, unit: float = 1.0) -> pd.DataFrame:
    """One row per (setting, method): its difference from `base` less the same difference in the setting `reference`.

    Columns as those of `claims`; the outcome is of the claim that the difference is larger than in `reference`.
    """
    at_reference = values.xs(reference, level="setting").reindex(values.index.droplevel("setting"))
    moved = (values - at_reference.to_numpy()).drop(reference, level="setting")
    return claims(moved.dropna(), base, unit)


def costs(table: pd.DataFrame) -> pd.DataFrame:
    """What a round of each (setting, method) comes to, as a mean over rounds and seeds.

    Columns: arrived (updates that were aggregated) and megabytes (sent in both directions).
    """
    rounds = table[table["round"] > 0]
    rounds = rounds.assign(megabytes=rounds[SENT].sum(axis=1) * BYTES / 1e6)
    return rounds.groupby(["setting", "method"], sort=False)[["arrived", "megabytes"]].mean()


def beside(effects: pd.DataFrame, spent: pd.DataFrame, base: str) -> pd.DataFrame:
    """Effects with the costs of a round (`costs`), of their method and of `base` (arrived_base, megabytes_base)."""
    for names, end in ((effects["method"], ""), ([base] * len(effects), "_base")):
        own = spent.reindex(pd.MultiIndex.from_arrays([effects["setting"], names]))
        effects = effects.assign(**{f"{name}{end}": own[name].to_numpy() for name in spent})
    return effects


def numbers(effects: pd.DataFrame, base: str = "base") -> pd.DataFrame:
    """What `claims` gives, as text for a page: a row per setting and method, with costs where `beside` added them."""
    intervals = [
        f"{low:+.1f} to {high:+.1f}" for low, high in zip(effects["low"], effects["high"], strict=True)
    ]
    shown = pd.DataFrame(
        {
            "world": effects["setting"],
            "method": effects["method"],
            "difference": effects["difference"].map("{:+.1f}".format),
            "95 % interval": intervals,
            "seeds": effects["seeds"],
            "outcome": effects["outcome"],
        }
    )
    for column, title, digits in (("arrived", "updates a round", 1), ("megabytes", "MB a round", 2)):
        if column in effects:
            own, of_base = (
                effects[name].map(f"{{:.{digits}f}}".format) for name in (column, f"{column}_base")
            )
            shown[f"{title} ({base})"] = own + " (" + of_base + ")"
    return shown


def outcomes(effects: pd.DataFrame) -> pd.DataFrame:
    """The outcomes alone, methods by settings."""
    wide = effects.pivot(index="method", columns="setting", values="outcome")
    return wide.loc[effects["method"].unique(), effects["setting"].unique()].fillna("not run")


def survival(effects: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Of each method: the outcome of its claim in `reference`, and in which other settings it has which outcome."""
    wide = outcomes(effects)
    elsewhere = wide.drop(columns=reference)
    words = [word for word in ("holds", "contradicted", *OPEN) if (elsewhere == word).any(axis=None)]
    where = {word: [", ".join(row.index[row == word]) for _, row in elsewhere.iterrows()] for word in words}
    return pd.DataFrame({f"in {reference!r}": wide[reference]} | where, index=wide.index)


def finding(effects: pd.DataFrame, reference: str, claim: str) -> str:
    """A sentence: which claims hold in the setting `reference`, and which of them hold in all others too.

    claim: what every method is said to be ("better than Random"). Of a claim that does not hold everywhere, the
    settings are named where it is contradicted, or, where it is nowhere, those where it is not shown; of a claim that
    does not hold in `reference`, those where it holds.
    """
    wide = outcomes(effects)
    elsewhere = wide.drop(columns=reference)
    hold = wide.index[wide[reference] == "holds"]

    def settings(name: str, of: Sequence[str]) -> str:
        return ", ".join(elsewhere.columns[elsewhere.loc[name].isin(of)])

    gained = [(name, settings(name, ["holds"])) for name in wide.index.difference(hold, sort=False)]
    gains = "; ".join(f"{name} ({names})" for name, names in gained if names)
    gains = f" Only elsewhere: {gains}." if gains else ""
    if not len(hold):
        return f"In “{reference}”, no method is shown to be {claim}.{gains}"
    where = {
        word: {name: settings(name, of) for name in hold}
        for word, of in (("Contradicted", ["contradicted"]), ("Not shown", OPEN))
    }
    stay = [name for name in hold if not any(names[name] for names in where.values())]
    survivors = f" ({', '.join(stay)})" if stay else ""
    others = elsewhere.shape[1]
    text = (
        f"Of {len(wide)} methods, {len(hold)} {verb(hold)} {claim} in “{reference}”; {len(stay) or 'none'} of these "
        f"{verb(stay)} so in {f'all {others} others' if others > 1 else f'“{elsewhere.columns[0]}”'} as "
        f"well{survivors}."
    )
    told = set(stay)
    for word, names in where.items():
        if lost := [name for name in hold if names[name] and name not in told]:
            told |= set(lost)
            text += f" {word} elsewhere: {'; '.join(f'{name} ({names[name]})' for name in lost)}."
    return text + gains


def tally(effects: pd.DataFrame, claim: str) -> str:
    """A sentence on one method: in how many settings its claim has which outcome, and where it is decided.

    claim: "Oort with its clock is better than without it".
    """
    parts = []
    for word in ("holds", "contradicted", *OPEN, "one seed"):
        if len(rows := effects[effects["outcome"] == word]):
            named = f" ({'; '.join(rows['setting'])})" if word in ("holds", "contradicted") else ""
            parts.append(f"{word} in {len(rows)} of {len(effects)}{named}")
    return f"{claim}: {'; '.join(parts)}."


def behind(effects: pd.DataFrame) -> str:
    """Part of a sentence: each method whose claim is contradicted, in how many settings, and by how many points."""
    lost = effects[effects["outcome"] == "contradicted"].groupby("method", sort=False)["difference"]
    settings = effects["setting"].nunique()
    parts = [
        f"{method} in {len(by)} of {settings} settings (by up to {-by.min():.1f} points)"
        for method, by in sorted(lost, key=lambda part: -len(part[1]))
    ]
    return ", ".join(parts) or "no method in any setting"


def ahead_of_all(effects: pd.DataFrame) -> str:
    """Part of a sentence on one method against several rivals: where its mean is above all of theirs, and how surely.

    effects: a row per setting and rival, in points. A setting counts by its smallest difference, and its interval
    excludes 0 if that against every rival does.
    """
    settings = effects.groupby("setting", sort=False)
    least = settings["difference"].min()
    ahead, apart = least[least > 0], settings["low"].min() > 0
    by = f" (by {span(ahead)} points)" if len(ahead) else ""
    return (
        f"in {len(ahead)} of {len(least)} worlds{by}; the 95 % intervals exclude 0 in {apart.sum()} of these"
    )


def span(values: pd.Series) -> str:
    """The least and the largest of several values: "9.2 to 10.6"."""
    ends = list(dict.fromkeys(f"{end:.1f}" for end in (values.min(), values.max())))
    return " to ".join(ends)


def best(
    values: pd.Series, groups: Mapping[str, Sequence[str]], spent: pd.DataFrame, unit: float = 1.0
) -> pd.DataFrame:
    """One row per setting: the method of the highest mean of each group, and that mean.

    values: by (setting, method, seed). spent: of `costs`, which stand beside the mean.
    """
    means = unit * values.groupby(["setting", "method"], sort=False).mean().unstack("method")
    tops = {}
    for group, names in groups.items():
        level = means[list(names)]
        leaders = zip(level.index, level.idxmax(axis=1), level.max(axis=1), strict=True)
        tops[group] = [
            f"{name}: {mean:.1f} ({spent.at[(setting, name), 'arrived']:.1f} updates, "
            f"{spent.at[(setting, name), 'megabytes']:.2f} MB a round)"
            for setting, name, mean in leaders
        ]
    return pd.DataFrame(tops, list(means.index))


def rivals(
    values: pd.Series,
    groups: Mapping[str, Sequence[str]],
    spent: pd.DataFrame,
    leader: str,
    unit: float = 1.0,
) -> pd.DataFrame:
    """What `claims` gives for the claim that the best of the group `leader` is ahead of the best of each other group.

    spent: of `costs`; those of the best stand beside. The column method names the other group. The best are picked by
    these very runs, which favours large groups.
    """
    picked, rounds = {}, {}
    for setting in dict.fromkeys(values.index.get_level_values("setting")):
        level = values.loc[setting]
        means = level.groupby("method").mean()
        for group, names in groups.items():
            name = means[list(names)].idxmax()
            picked |= {(setting, group, seed): value for seed, value in level[name].items()}
            rounds[setting, group] = spent.loc[(setting, name)]
    effects = claims(-pd.Series(picked).rename_axis(KEYS), leader, unit)
    effects = beside(effects, pd.DataFrame(rounds).T, leader)
    return effects.assign(method="the best of " + effects["method"])


def rates(search: pd.DataFrame, runs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row per world and method: mean test accuracy over rounds (%) at each learning rate, and the rate that is used.

    search: the table of the search, whose settings are called "<world>, lr = <rate>". runs: records of the runs that
    are judged. A run that diverged has no value.
    """
    values = 100 * measured(
        search[~search["diverged"].groupby([search[key] for key in KEYS]).transform("any")],
        mean_of("test_accuracy"),
    )
    values = values.groupby(["setting", "method"], sort=False).mean().reset_index(name="accuracy")
    values[["world", "rate"]] = values["setting"].str.rsplit(", lr = ", n=1, expand=True)
    wide = values.pivot(index=["world", "method"], columns="rate", values="accuracy").round(1)
    used = {(run["setting"], run["method"]): run["run"]["local"]["lr"] for run in runs}
    order = list(dict.fromkeys(zip(values["world"], values["method"], strict=True)))
    wide = wide.loc[order, sorted(wide, key=float)].rename(columns="lr = {}".format)
    return wide.assign(used=[used.get(row) for row in order]).reset_index()


def verb(names: Sequence[str]) -> str:
    return "is" if len(names) < 2 else "are"
