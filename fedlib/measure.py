"""Statistics that the papers compute from a curve.

Everything starts from the tidy table of results (`ARCHITECTURE.md`, Results). A *curve* is one column of one run as a
Series indexed by round, without the rounds in which it was not measured. A *statistic* is a function of a curve.

    r = per_run(results, "test_accuracy", rounds_to_target, target=0.8)    # Series by (setting, method, seed)

A diverged run counts as the worst possible: infinite loss and zero accuracy from that round on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its submodules load on first use

Statistic = Callable[..., float]
RUN = ["setting", "method", "seed"]
BYTES = 4  # a parameter is sent as float32


class Missing(LookupError):
    """The requested result needs runs that are missing; the message says which."""


def curve(run: pd.DataFrame, column: str, last: int = 0) -> pd.Series:
    """One run's measured rounds of `column`, indexed by round.

    From divergence on, up to round `last`, it is the worst possible value.
    """
    return _curve(*_columns(run, column), column, last)


def curves(results: pd.DataFrame, column: str, last: Mapping[str, int]) -> dict[tuple, pd.Series]:
    """(setting, method, seed) -> `curve`, in order of appearance; last: by setting."""
    columns = _columns(results, column)
    runs: dict[Any, np.ndarray] = results.groupby(RUN, sort=False).indices
    return {
        key: _curve(*(values[rows] for values in columns), column, last[key[0]])
        for key, rows in sorted(runs.items(), key=lambda run: run[1][0])
    }


def _columns(results: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounds, values, and whether the run has diverged, by row."""
    values, diverged = results[column].to_numpy(dtype=float), results["diverged"].to_numpy(dtype=bool)
    return results["round"].to_numpy(), values, diverged


def _curve(rounds: np.ndarray, values: np.ndarray, diverged: np.ndarray, column: str, last: int) -> pd.Series:
    if diverged.any():
        end = rounds[diverged].min()
        tail = np.arange(end, max(last, end) + 1)
        worst = np.full(len(tail), math.inf if "loss" in column else 0.0)
        values = np.concatenate([values[rounds < end], worst])
        rounds = np.concatenate([rounds[rounds < end], tail])
    order = np.argsort(rounds, kind="stable")
    order = order[~np.isnan(values[order])]
    return pd.Series(values[order], rounds[order])


def per_run(results: pd.DataFrame, column: str, statistic: Statistic, **options: Any) -> pd.Series:
    """`statistic(curve, **options)` of every run -> Series indexed by (setting, method, seed)."""
    last = results.groupby("setting")["round"].max()
    values = {key: statistic(series, **options) for key, series in curves(results, column, last).items()}
    runs = pd.MultiIndex.from_arrays(list(zip(*values, strict=True)) or [[], [], []], names=RUN)
    return pd.Series(list(values.values()), runs, name=column, dtype=float)


def common_end(results: pd.DataFrame) -> int:
    """The last round that all runs have, up to which curves can be compared; diverged runs do not count.

    Some settings or runs (`schema.Until`) are longer, for a table of rounds to a target.
    """
    runs = results.groupby(RUN, sort=False)
    last, diverged = runs["round"].max(), runs["diverged"].any()
    return int((last if diverged.all() else last[~diverged]).min())


def comparable(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of each setting, on the seeds that all its methods have and the rounds that all these runs have.

    A setting whose methods have no seed in common is left out.
    """
    groups = [results.iloc[:0]]
    for _, table in results.groupby("setting", sort=False):
        methods = table.groupby("seed")["method"].transform("nunique")
        shared = table[methods == table["method"].nunique()]
        if len(shared):
            groups.append(shared[shared["round"] <= common_end(shared)])
    return pd.concat(groups)


def rounds_to_target(curve: pd.Series, target: float, consecutive: int = 1) -> float:
    """First round t >= 1 of `consecutive` measured rounds in a row at or above `target`; inf if none."""
    rounds, values = curve.index.to_numpy(), curve.to_numpy()
    rounds, hits = rounds[rounds >= 1], values[rounds >= 1] >= target
    if len(hits) < consecutive:
        return math.inf
    rows = np.lib.stride_tricks.sliding_window_view(hits, consecutive).all(axis=1)
    return float(rounds[rows.argmax()]) if rows.any() else math.inf


def arrivals(results: pd.DataFrame, target: float, column: str = "test_accuracy") -> pd.Series:
    """`rounds_to_target` of every run -> Series by (setting, method, seed); inf if never reached."""
    arrived = (results[column] >= target) & (results["round"] >= 1) & ~results["diverged"].astype(bool)
    first = results["round"].where(arrived).groupby([results[key] for key in RUN], sort=False).min()
    return first.fillna(math.inf)


def followed(results: pd.DataFrame, rounds: pd.Series) -> int:
    """The last round for which it is known which runs have arrived.

    It is the end of the shortest run that never arrives or, if all arrive, of the longest run.

    rounds: by (setting, method, seed), inf if a run of `results` never arrives; diverged runs never would.
    """
    if np.isfinite(rounds).all():
        return int(results["round"].max())
    runs = results.groupby(RUN, sort=False)
    last = runs["round"].max()
    waiting = np.isinf(rounds.reindex(last.index))
    if results["diverged"].any():
        waiting &= ~runs["diverged"].any()
    return int(last[waiting].min() if waiting.any() else last.max())


def rounds_below(curve: pd.Series, level: float) -> float:
    """First round t >= 1 with a loss at or below `level`; inf if there is none."""
    return rounds_to_target(-curve, -level)


def rounds_to_best(curve: pd.Series, share: float = 1.0) -> float:
    """First round t >= 1 at `share` of the run's own best value."""
    return rounds_to_target(curve, share * curve[curve.index >= 1].max())


def best(curve: pd.Series) -> float:
    return float(curve[curve.index >= 1].max())


def at_start(curve: pd.Series) -> float:
    return float(curve.loc[0])


def end_mean(curve: pd.Series, share: float = 0.2) -> float:
    """Mean over the last `share` of the rounds (L_end and A_end with 0.2, FedCor's `fin` with 0.05)."""
    return float(curve[curve.index > curve.index.max() * (1 - share)].mean())


def area(curve: pd.Series, first: int = 1, last: float = math.inf) -> float:
    """Mean over the measured rounds first..last: the normalised area under the curve, round 0 left out."""
    return float(curve[(curve.index >= first) & (curve.index <= last)].mean())


def roughness(curve: pd.Series, start: float = 0.5) -> float:
    """Mean |x_{j+1} - x_j| of consecutive measurements after `start` of the rounds."""
    late = curve[curve.index > curve.index.max() * start]
    return float(late.diff().abs().mean()) if np.isfinite(late).all() else math.inf


def jitter(curve: pd.Series, start: float = 0.25) -> float:
    """Standard deviation of x_{j+1} - x_j after `start` of the rounds (FedCor's and HiCS-FL's roughness)."""
    return float(curve[curve.index > curve.index.max() * start].diff().std())


def rolling(curve: pd.Series, half: int | None = None) -> pd.Series:
    """Centred moving mean over the measurements within `half` rounds to either side.

    Default of `half`: Clustered Sampling's 50 rounds, or a quarter of the run if that is less.
    """
    if half is None:
        half = min(25, int(curve.index.max()) // 8)
    rounds, sums = curve.index.to_numpy(), np.concatenate([[0.0], np.cumsum(curve.to_numpy())])
    first = np.searchsorted(rounds, rounds - half, side="left")
    past = np.searchsorted(rounds, rounds + half, side="right")
    return pd.Series((sums[past] - sums[first]) / (past - first), curve.index)


def savitzky_golay(curve: pd.Series, window: int = 13, order: int = 3) -> pd.Series:
    """Savitzky-Golay filter over `window` measurements (HiCS-FL's figures); short curves are unchanged."""
    if len(curve) < window:
        return curve
    return pd.Series(scipy.signal.savgol_filter(curve.to_numpy(), window, order), curve.index)


def speed_up(
    base: Sequence[float] | np.ndarray, compared: Sequence[float] | np.ndarray, cap: int
) -> tuple[float, bool]:
    """Median rounds of `base` divided by median rounds of `compared`, and whether that is a lower bound (HCSFed).

    If the base does not arrive within `cap` rounds, it counts as cap and the ratio is a strict lower bound. If the
    other one does not arrive, there is no speed-up: nan.
    """
    b, o = np.median(base), np.median(compared)
    if o > cap:
        return math.nan, False
    return float(min(b, cap) / o), bool(b > cap)


def capped_mean(rounds: Sequence[float], cap: int) -> float:
    """Mean over seeds; a run that does not arrive by `cap` counts as cap + 1 (FedCor's and HiCS-FL's Rbar)."""
    return float(np.minimum(np.asarray(rounds, dtype=float), cap + 1).mean())


def gini(counts: Sequence[float] | np.ndarray) -> float:
    """Gini coefficient of (N,) counts: 0 if all are equal, (N - 1) / N if one has everything."""
    x = np.sort(np.asarray(counts, dtype=float))
    ranks = np.arange(1, len(x) + 1)
    return float(2 * (ranks @ x) / (len(x) * x.sum()) - (len(x) + 1) / len(x)) if x.sum() else 0.0


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    return float(scipy.stats.kendalltau(a, b).statistic)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    return float(scipy.stats.spearmanr(a, b).statistic)


def selection_counts(run: pd.DataFrame, N: int, first: int = 1) -> np.ndarray:
    """(N,) how often each client was drawn in rounds >= first, in the rows of one or several runs."""
    selections = [np.asarray(c, dtype=int) for c in run.loc[run["round"] >= first, "clients"]]
    return np.bincount(np.concatenate(selections), minlength=N) if selections else np.zeros(N, dtype=int)


def dominant_labels(partitions: pd.DataFrame, data: str) -> dict[tuple[str, int], np.ndarray]:
    """(setting, seed) -> (N,) the most frequent label of each client, from a study of partitions.

    Raises:
        Missing: the study has no partition of `data`.
    """
    table = partitions[partitions["data"] == data].sort_values("client")
    if table.empty:
        raise Missing(f"the partitions of {data} have not been measured")
    groups = table.groupby(["setting", "seed"])
    return {key: np.stack(rows["counts"]).argmax(axis=1) for key, rows in groups}


def add_distinct(
    results: pd.DataFrame, labels: dict[tuple[str, int], np.ndarray] | None = None
) -> pd.DataFrame:
    """The table with `distinct_clients` and, if `labels` is given, `distinct_classes`.

    labels: (setting, seed) -> (N,) dominant label of each client. In round 0 no client is drawn: NaN.
    """

    def count(ids: np.ndarray) -> float:
        return float(len(set(ids.tolist()))) if len(ids) else math.nan

    selections = [np.asarray(c if c is not None else [], dtype=int) for c in results["clients"]]
    counts = results.assign(distinct_clients=[count(ids) for ids in selections])
    if labels is not None:
        keys = zip(results["setting"], results["seed"], strict=True)
        counts["distinct_classes"] = [
            count(labels[key][ids]) for key, ids in zip(keys, selections, strict=True)
        ]
    return counts


def cumulative_cost(results: pd.DataFrame) -> pd.DataFrame:
    """The table with each run's totals so far: `rounds`, `megabytes`, `uplink_megabytes`, client-steps `work`."""
    uplink = BYTES * (results["parameters_up"] + results["scalars_up"]) / 1e6
    total = uplink + BYTES * results["parameters_down"] / 1e6
    spent = pd.DataFrame({"megabytes": total, "uplink_megabytes": uplink, "work": results["client_steps"]})
    order = results.sort_values("round", kind="stable").index
    keys = [results[k] for k in ["experiment", *RUN]]
    return results.assign(rounds=results["round"], **spent.loc[order].groupby(keys, sort=False).cumsum())


def cost_to_target(results: pd.DataFrame, target: float, cost: str) -> pd.Series:
    """Running total `cost` (of `cumulative_cost`) at the first round at `target`, by run; inf if never reached."""
    arrived = arrivals(results, target)
    spent = results.set_index([*RUN, "round"])[cost]
    runs: Iterable[tuple[Any, float]] = arrived.items()
    return arrived.copy().where(np.isinf(arrived), [spent.get((*k, t), math.inf) for k, t in runs])


def advantage(results: pd.DataFrame, base: str, cost: str) -> pd.DataFrame:
    """How many times less `cost` each method needs than `base` to reach the final accuracy of `base`.

    -> one row per setting, one column per method: median cost of `base` divided by median cost of the method; 0 if the
    median run never arrives. The accuracy is the mean over the last 5 % of the rounds of `base`'s worst seed, so that
    all its runs arrive.
    """
    rows = {}
    for setting, table in cumulative_cost(results).groupby("setting", sort=False):
        if base not in set(table["method"]):
            continue
        ends = per_run(table[table["method"] == base], "test_accuracy", end_mean, share=0.05)
        needed = cost_to_target(table, float(ends.min()), cost).groupby("method", sort=False).median()
        rows[setting] = needed[base] / needed
    return pd.DataFrame(rows).T.rename_axis("setting")


def cases(
    tables: Mapping[str, pd.DataFrame], methods: Sequence[str], statistic: Statistic, **options: Any
) -> pd.DataFrame:
    """A statistic of the test accuracy, mean over seeds: one row per (experiment, setting), one column per method.

    It has those of `methods` that have run at all, and the settings in which all of these have run.
    """
    runs = {name: per_run(table, "test_accuracy", statistic, **options) for name, table in tables.items()}
    means = pd.concat(runs, names=["experiment"]).groupby(["experiment", "setting", "method"]).mean()
    unstacked = means.unstack("method")
    return unstacked[[method for method in methods if method in unstacked]].dropna()


def mean_ranks(scores: pd.DataFrame) -> pd.Series:
    """Mean rank of each method (column) over the cases (rows) of `scores`, 1 = highest; ties share ranks."""
    return scores.rank(axis=1, ascending=False).mean().sort_values()


def friedman(scores: pd.DataFrame) -> float:
    """p-value of Friedman's test that all methods (columns) have equal ranks over the cases (rows).

    Raises:
        Missing: there are fewer than three methods.
    """
    if len(scores.columns) < 3:
        raise Missing("fewer than three methods have been run in the same settings")
    return float(scipy.stats.friedmanchisquare(*scores.to_numpy().T).pvalue)


def critical_difference(methods: int, cases: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks (Demsar 2006, section 3.2.2)."""
    q = scipy.stats.studentized_range.ppf(1 - level, methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * cases)))
