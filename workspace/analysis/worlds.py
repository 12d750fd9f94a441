"""The claim that a method is better than another, in each of several worlds: replicated, refuted or undecided there.

A claim is judged in every world for itself, as claims of papers are (`docs/judging.md`): an effect over paired seeds
with Student's interval, the outcomes of `estimators`, and Holm's correction over the claims of a world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from workspace.analysis.estimators import LEVEL, Effect, holm, outcome

KEYS = ["setting", "method", "seed"]
Measure = Callable[[pd.DataFrame], float]
COLUMNS = ["setting", "method", "difference", "low", "high", "seeds", "outcome"]
WORDS = {"higher": "replicated", "lower": "refuted", "unclear": "undecided"}
LOST = {"refuted": "Refuted elsewhere", "undecided": "Undecided elsewhere", "equal": "No different elsewhere"}


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


def claims(values: pd.Series, base: str, unit: float = 1.0) -> pd.DataFrame:
    """One row per (setting, method): what the claim "higher than `base`" comes to in that setting.

    values: by (setting, method, seed). unit: what a difference is multiplied by (100 for percentage points). Columns:
    difference, low, high (95 % t-interval), seeds, and outcome: replicated, refuted or undecided, by the side of no
    effect on which the interval lies, after Holm's correction over the methods of a setting; "equal" where a method
    and `base` have the same value in every seed.
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
        decided = table["outcome"].isin(["replicated", "refuted"])
        table.loc[weak[decided[weak]], "outcome"] = "undecided"
    return table.drop(columns="p")


def changes(values: pd.Series, base: str, reference: str, unit: float = 1.0) -> pd.DataFrame:
    """One row per (setting, method): its difference from `base` less the same difference in the setting `reference`.

    Columns as those of `claims`; the outcome is of the claim that the difference is larger than in `reference`.
    """
    at_reference = values.xs(reference, level="setting").reindex(values.index.droplevel("setting"))
    moved = (values - at_reference.to_numpy()).drop(reference, level="setting")
    return claims(moved.dropna(), base, unit)


def numbers(effects: pd.DataFrame) -> pd.DataFrame:
    """What `claims` gives, as text for a page: a row per setting and method."""
    intervals = [
        f"{low:+.1f} to {high:+.1f}" for low, high in zip(effects["low"], effects["high"], strict=True)
    ]
    return pd.DataFrame(
        {
            "world": effects["setting"],
            "method": effects["method"],
            "difference": effects["difference"].map("{:+.1f}".format),
            "95 % interval": intervals,
            "seeds": effects["seeds"],
            "outcome": effects["outcome"],
        }
    )


def outcomes(effects: pd.DataFrame) -> pd.DataFrame:
    """The outcomes alone, methods by settings."""
    wide = effects.pivot(index="method", columns="setting", values="outcome")
    return wide.loc[effects["method"].unique(), effects["setting"].unique()].fillna("not run")


def survival(effects: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Of each method: the outcome of its claim in `reference`, and in which other settings it has which outcome."""
    wide = outcomes(effects)
    elsewhere = wide.drop(columns=reference)
    decided = ["replicated", "refuted", "undecided", "equal"]
    where = {word: [", ".join(row.index[row == word]) for _, row in elsewhere.iterrows()] for word in decided}
    return pd.DataFrame({f"in {reference!r}": wide[reference]} | where, index=wide.index)


def finding(effects: pd.DataFrame, reference: str, claim: str) -> str:
    """A sentence: which claims hold in the setting `reference`, and which of them hold in all others too.

    A claim that holds there is refuted elsewhere, else undecided, else without a difference (equal), or survives.

    claim: what every method is said to be ("better than Random").
    """
    wide = outcomes(effects)
    elsewhere = wide.drop(columns=reference)
    hold = wide.index[wide[reference] == "replicated"]
    if not len(hold):
        return f"In “{reference}”, no method is shown to be {claim}."
    lost = {
        word: {name: ", ".join(elsewhere.columns[elsewhere.loc[name] == word]) for name in hold}
        for word in LOST
    }
    first = {name: next((word for word in LOST if lost[word][name]), "") for name in hold}
    stay = [name for name in hold if not first[name]]
    survivors = f" ({', '.join(stay)})" if stay else ""
    text = (
        f"Of {len(wide)} methods, {len(hold)} {verb(hold)} {claim} in “{reference}”; {len(stay) or 'none'} of these "
        f"{verb(stay)} so in all {elsewhere.shape[1]} others as well{survivors}."
    )
    for word, head in LOST.items():
        if names := [name for name in hold if first[name] == word]:
            text += f" {head}: {'; '.join(f'{name} ({lost[word][name]})' for name in names)}."
    return text


def tally(effects: pd.DataFrame, claim: str) -> str:
    """A sentence on one method: in which settings its claim has which outcome.

    claim: "Oort with its clock is better than without it".
    """
    parts = [
        f"{word} in {', '.join(rows['setting'])}"
        for word, rows in effects.groupby("outcome", sort=False)
        if word != "undecided"
    ]
    undecided = int((effects["outcome"] == "undecided").sum())
    if undecided:
        parts.append(f"undecided in {undecided} of {len(effects)}")
    return f"{claim}: {'; '.join(parts)}."


def best(values: pd.Series, groups: Mapping[str, Sequence[str]], unit: float = 1.0) -> pd.DataFrame:
    """One row per setting: the method of the highest mean of each group, and that mean.

    values: by (setting, method, seed).
    """
    means = unit * values.groupby(["setting", "method"], sort=False).mean().unstack("method")
    tops = {}
    for group, names in groups.items():
        level = means[list(names)]
        leaders = zip(level.idxmax(axis=1), level.max(axis=1), strict=True)
        tops[group] = [f"{name} ({mean:.1f})" for name, mean in leaders]
    return pd.DataFrame(tops, list(means.index))


def rivals(
    values: pd.Series, groups: Mapping[str, Sequence[str]], leader: str, unit: float = 1.0
) -> pd.DataFrame:
    """What `claims` gives for the claim that the best of the group `leader` is ahead of the best of each other group.

    The column method names the other group. The best are picked by these very runs, which favours large groups.
    """
    picked = {}
    for setting in dict.fromkeys(values.index.get_level_values("setting")):
        level = values.loc[setting]
        means = level.groupby("method").mean()
        for group, names in groups.items():
            top = level[means[list(names)].idxmax()]
            picked |= {(setting, group, seed): value for seed, value in top.items()}
    effects = claims(-pd.Series(picked).rename_axis(KEYS), leader, unit)
    return effects.assign(method="the best of " + effects["method"])


def verb(names: Sequence[str]) -> str:
    return "is" if len(names) < 2 else "are"
