"""Whether the aggregation rule or the selection explains HCSFed's Table 1, and whether re-allocation has an effect."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from fedlib import measure
from fedlib.samplers.hcsfed import allocate
from workspace.analysis import effects, words
from workspace.analysis.claim import Arms
from workspace.analysis.reference import content
from workspace.papers.hcsfed.claims import CLAIMS
from workspace.papers.hcsfed.printed import ACCURACY, COLUMNS, GCS, PRINTED, PROGRAM, TABLE_1, TARGET, hcsfed
from workspace.papers.hcsfed.readings import READINGS, WITH_OWN_TEST

METHODS = {
    "HCSFed-R (GC-A)": "HCSFed (GC-A)",
    "HCSFed-R (GC-B)": "HCSFed (GC-B)",
    "Random": "Random, plain mean",
    "Random, attrition": "Random, attrition",
    "SCAFFOLD": "SCAFFOLD, plain mean",
    "SCAFFOLD, attrition": "SCAFFOLD, attrition",
}


def rule_or_selection(
    results: pd.DataFrame, target: float = TARGET, alpha: float = 0.1, column: str = ACCURACY
) -> pd.DataFrame:
    """Median rounds to a target under the plain mean and attrition: rows are methods, columns are Table 1's settings.

    results: the tidy table of Table 1's experiment. column: the accuracy that is measured. A run that does not arrive
    counts as its last round + 1. Cells without runs are nan.

    Raises:
        Missing: nothing has been run with this alpha.
    """
    settings = {f"{setting}, alpha = {alpha:g}": setting for setting in COLUMNS}
    table = results[results["setting"].isin(settings) & results["method"].isin(METHODS)]
    if table.empty:
        raise measure.Missing(f"alpha = {alpha:g} has not been run")
    rounds = measure.arrivals(table, target, column)
    cap = int(table["round"].max())
    medians = rounds.clip(upper=cap + 1).groupby(["method", "setting"]).median().unstack("setting")
    table_of_medians = medians.reindex(index=list(METHODS), columns=list(settings)).rename(
        index=METHODS, columns=settings
    )
    for method in ("HCSFed", "Random") if target == TARGET else ():
        table_of_medians.loc[f"{method}, printed"] = PRINTED[method]
    return table_of_medians.rename_axis(index="method", columns=None)


def in_words(results: pd.DataFrame) -> str:
    """What Table 1's runs say of selection and aggregation, from the effects under four readings; "" if not run.

    results: the tidy table of Table 1's experiment.
    """
    claim = next(reading for reading in CLAIMS if reading.id == "hcsfed.T1.b")
    cells = pd.DataFrame(effects.rows(claim, Arms({TABLE_1: results})), columns=effects.COLUMNS)
    by_reading = effects.claims(cells).set_index("reading")
    names = {
        (reading.choices["absent clients"], reading.choices["compression"]): reading.name
        for reading in READINGS
        if {key: reading.choices[key] for key in TAKEN} == TAKEN and reading is not WITH_OWN_TEST
    }
    if not set(names.values()) <= set(by_reading.index[by_reading["cells"] == len(COLUMNS)]):
        return ""

    def effect_of(absent: str, gc: str) -> str:
        return words.ratio(by_reading.loc[names[absent, gc]])

    mean, attrition = (
        " and ".join(f"{effect_of(absent, gc)} ({gc})" for gc in GCS)
        for absent in ("not counted", "keep the old model")
    )
    seeds = int(by_reading.loc[names["not counted", "GC-B"], "n"])
    sides = (
        words.side(row["low"], row["high"], row["null"])
        for absent in ("keep the old model", "not counted")
        for row in [by_reading.loc[names[absent, GCS[0]]]]
    )
    return (
        "As the authors' earlier program runs, where absent clients keep the old model under random selection alone, "
        f"random selection needs {attrition} times HCSFed's rounds to 80 %, where the paper prints 2.1 to 10.7; with "
        f"one rule of aggregation for both, the plain mean, {mean}: {words.explained(*sides)}.\n\n"
        f"Mean over six columns, {seeds} seeds, alpha = 0.1, the clients' own test accuracy; judged by {GCS[0]}."
    )


def earlier_program(results: pd.DataFrame, target: float = TARGET) -> pd.DataFrame:
    """First round at a target in the program of the group's earlier paper, with Table 1's model, and in ours alike.

    results: the tidy table of Table 1's experiment. By the clients' own accuracy and, in brackets, by the official test
    set, seed by seed; a run that does not arrive has its last round with a "+".
    """
    ours = results[results["setting"].isin(PROGRAM.settings.values())]
    theirs, rows = content("hcsfed").sort_values("setting", kind="stable"), {}
    groups: list[tuple[Any, pd.DataFrame]] = list(theirs.groupby(["setting", "method"], sort=False))
    for (setting, rule), runs in groups:
        name = PROGRAM.methods.get(str(rule), ("", ""))[1]
        alike = ours[(ours["setting"] == PROGRAM.settings.get(str(setting))) & (ours["method"] == name)]
        rows[str(setting), RULES[str(rule)]] = {
            "the program": first_rounds(runs, target),
            "ours, the same rule": first_rounds(alike, target) or "not run",
        }  # fmt: skip
    frame = pd.DataFrame.from_dict(rows, orient="index")
    return frame.set_axis(pd.MultiIndex.from_tuples(rows, names=["setting", "rule"]))


RULES = {
    "random": "Random: absent clients keep the old model",
    "ours": "their grouping by labels: plain mean",
    "importance": "“importance” (MD): plain mean",
    "uniform_mean": "Random: plain mean",
}


def first_rounds(runs: pd.DataFrame, target: float) -> str:
    """First rounds at a target by seed, "57 (66), 82 (99)": by the clients' own accuracy and the official test set."""
    texts = []
    for _, run in runs.groupby("seed"):
        own, official = (
            f"{first:.0f}" if math.isfinite(first) else f"{run['round'].max()}+"
            for first in (
                run.loc[(run[column] >= target) & (run["round"] > 0), "round"].min() for column in ACCURACIES
            )
        )
        texts.append(f"{own} ({official})")
    return ", ".join(texts)


ACCURACIES = ("client_accuracy", "test_accuracy")
TAKEN = {
    "alpha": "0.1",
    "learning rate": "0.01",
    "accuracy": "clients' own",
    "places": "repaired (R), H = 10",
}


def reallocated(m: int, H: int, draws: int = 1000, seed: int = 0) -> float:
    """Share of random clusters (H of them, N = 100) in which equation 5 gives some cluster more than one place."""
    rng = np.random.default_rng(seed)
    acts = 0
    for _ in range(draws):
        sizes = np.bincount(rng.integers(H, size=100 - H), minlength=H) + 1
        acts += allocate(sizes, rng.uniform(0.1, 2, H), m, at_least_one=True).max() > 1
    return acts / draws


def fewer_clusters(results: pd.DataFrame, H: int = 5, target: float = TARGET) -> pd.DataFrame:
    """Median rounds to a target with as many clusters as places (H = 10) and with fewer, where equation 5 acts.

    results: the tidy table of Table 1's or Figure 7's experiment. A row a setting, compression and accuracy, over the
    seeds that both arms have; a run that does not arrive counts as one round more than it has. Empty if not run.
    """
    arms = {gc: (hcsfed(gc), f"{hcsfed(gc)}, H = {H}") for gc in GCS}
    rows = []
    for gc, (ten, fewer) in arms.items():
        table = results[results["method"].isin((ten, fewer))]
        for accuracy, column in (("official test set", "test_accuracy"), ("clients' own", "client_accuracy")):
            rounds = measure.arrivals(table, target, column)
            rounds = rounds.clip(upper=int(results["round"].max()) + 1).unstack("method")
            if not {ten, fewer} <= set(rounds):
                continue
            for setting, pair in rounds[[ten, fewer]].dropna().groupby("setting"):
                rows.append(
                    {
                        "setting": setting,
                        "compression": gc,
                        "accuracy": accuracy,
                        "seeds": len(pair),
                        "H = 10": pair[ten].median(),
                        f"H = {H}": pair[fewer].median(),
                        f"seeds later with H = {H}": int((pair[fewer] > pair[ten]).sum()),
                    }
                )
    return pd.DataFrame(rows)


def places_said(arms: pd.DataFrame, H: int = 5, m: int = 10) -> str:
    """What H = m means for re-allocation, and what the arm with fewer gives, in words: from `fewer_clusters`."""
    text = (
        f"With H = {m} clusters, {m} places and one place for every cluster first, all places are ones, in every round "
        f"by construction: equation 5 gives some cluster a second place in {reallocated(m, m):.0%} of random cases. "
        f"With H = {H}, {m - H} of the {m} places are left for it to give. "
    )
    if arms.empty:
        return text + f"The arm H = {H} has not been run here."
    later = int((arms[f"H = {H}"] > arms["H = 10"]).sum())
    ratio = float((arms[f"H = {H}"] / arms["H = 10"]).median())
    return text + (
        f"In {later} of the {len(arms)} rows below the arm in which re-allocation acts arrives later than the one in "
        f"which it cannot, in {ratio:.2f} times as many rounds (median over the rows). It has fewer clusters too: this "
        f"is not the effect of equation 5 alone."
    )
