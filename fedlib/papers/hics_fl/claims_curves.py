"""HiCS-FL's claims on learning curves, rounds to a target, training losses and costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, misses, number
from fedlib.analysis.curves import Panel, by_sign, count, means
from fedlib.analysis.measure import area, kendall, per_run, spearman
from fedlib.papers.hics_fl.claims_tables import after_warm_up, warm_up
from fedlib.papers.hics_fl.printed import (
    BASELINES,
    CAP,
    CIFAR10,
    CIFAR100,
    CLUSTERS,
    EXPERIMENTS,
    FMNIST,
    METHODS,
    OURS,
    PRINTED,
    PRINTED_CLUSTERS,
    SPEED_UP,
    TABLE,
    book,
)

claim = book.claim


# -- Table 1, and the slides' with FedCor and Mini-ImageNet


@claim("hics.T1.a", "table_1", EXPERIMENTS, printed="all datasets")
def _(runs: Runs) -> Verdict:
    """HiCS-FL needs the fewest rounds to the target accuracy on every dataset."""

    def data_set(name: str) -> Verdict:
        rbar = TABLE[name].rbar(runs, list(PRINTED[name]))
        others = rbar.drop(OURS)
        return decide(
            rbar[OURS] < others.min(),
            f"{number(rbar[OURS])} against {number(others.min())} ({others.idxmin()})",
        )

    return count({name: partial(data_set, name) for name in TABLE})


@claim("hics.T1.b", "table_1", EXPERIMENTS, printed="2.5, 7.3, 1.63; Mini-ImageNet 2.2")
def _(runs: Runs) -> Verdict:
    """HiCS-FL speeds up random selection by the printed factors (in part: by a factor above 1)."""

    def data_set(name: str) -> Verdict:
        rbar = TABLE[name].rbar(runs, ["Random", OURS])
        ratio = rbar["Random"] / rbar[OURS]
        if 1 / 1.5 <= ratio / SPEED_UP[name][OURS] <= 1.5:
            return Verdict("held", number(ratio))
        return Verdict("held in part" if ratio > 1 else "not held", number(ratio))

    return count({name: partial(data_set, name) for name in TABLE})


@claim("hics.T1.c", "table_1", EXPERIMENTS, printed="23 entries", informative=True)
def _(runs: Runs) -> Verdict:
    """Each printed number of rounds is reproduced within a factor 2; a run that never arrives reproduces none."""

    def entry(name: str, method: str, printed: int) -> Verdict:
        rounds = TABLE[name].arrived(runs, [method], enough=2 * printed)
        return decide(0.5 <= rounds.mean() / printed <= 2)

    entries = {
        f"{name} {method}": partial(entry, name, method, value)
        for name, row in PRINTED.items()
        for method, value in row.items()
    }
    return combine(entries)


@claim("hics.T1.d", "table_1", EXPERIMENTS, printed="order of the methods")
def _(runs: Runs) -> Verdict:
    """The methods have the printed order on every dataset."""

    def data_set(name: str) -> Verdict:
        rbar = TABLE[name].rbar(runs, list(PRINTED[name]))
        tau = kendall(list(PRINTED[name].values()), rbar.to_numpy())
        return decide(tau >= 0.6, f"tau {tau:.2f}")

    return count({name: partial(data_set, name) for name in TABLE})


@claim(
    "hics.T1.e",
    "table_1",
    EXPERIMENTS,
    printed="DivFL everywhere; pow-d except on FMNIST",
    tolerance=misses(1),
)
def _(runs: Runs, tolerance: int) -> Verdict:
    """DivFL is slower than random selection everywhere, Pow-d except on FMNIST (in all 7 cases but {tolerance})."""

    def slower(name: str, method: str) -> Verdict:
        rbar = TABLE[name].rbar(runs, ["Random", method])
        return decide(
            rbar[method] > rbar["Random"], f"{number(rbar[method])} against {number(rbar['Random'])}"
        )

    parts = {f"{name} DivFL": partial(slower, name, "DivFL") for name in TABLE}
    parts |= {f"{name} Pow-d": partial(slower, name, "Pow-d") for name in TABLE if name != "FMNIST"}
    return count(parts, need=len(parts) - tolerance)


# -- Figures 2 to 5: accuracy curves


def leads(values: pd.Series, unit: str = "points") -> Verdict:
    """The sign rule on HiCS-FL and the baseline with the best mean; values: (method, seed), higher is better."""
    best = str(means(values)[BASELINES].idxmax())
    verdict = by_sign(values, OURS, best, unit)
    return Verdict(verdict.status, f"{verdict.value} ({best})", verdict.interval, verdict.detail)


def gain(runs: Runs, panel: Panel) -> float:
    """Mean accuracy over all rounds of HiCS-FL minus that of the best baseline, in points."""
    auc = means(panel.auc(runs, METHODS))
    return 100 * float(auc[OURS] - auc[BASELINES].max())


def highest(panels: Mapping[str, Panel], runs: Runs) -> dict[str, Callable[[], Verdict]]:
    return {name: lambda panel=panel: leads(100 * panel.auc(runs, METHODS)) for name, panel in panels.items()}


def largest(panels: Mapping[str, Panel], runs: Runs, where: str) -> Verdict:
    gains = {name: gain(runs, panel) for name, panel in panels.items()}
    value = ", ".join(f"{name} {g:+.2f}" for name, g in gains.items())
    ahead = max(gains, key=gains.get) == where and gains[where] > 0  # the least loss is no lead
    return decide(ahead, f"{value} points")


@claim("hics.F2.a", "figure_2", ["hics_fmnist"], printed="3 of 3 settings")
def _(runs: Runs) -> Verdict:
    """On FMNIST HiCS-FL converges fastest in each of the three settings."""
    return count(highest(FMNIST, runs))


@claim("hics.F2.b", "figure_2", ["hics_fmnist"], printed="setting (1)")
def _(runs: Runs) -> Verdict:
    """HiCS-FL's lead over the best baseline is largest in setting (1) of FMNIST."""
    return largest(FMNIST, runs, "(1)")


@claim("hics.F2.c", "figure_2", ["hics_fmnist"], printed="3 of 3 settings")
def _(runs: Runs) -> Verdict:
    """On FMNIST HiCS-FL's accuracy varies least from round to round."""

    def judge(panel: Panel) -> Verdict:
        rough = means(panel.rough(runs, METHODS))
        return decide(
            rough[OURS] <= rough[BASELINES].min(), f"{rough[OURS]:.2g} against {rough[BASELINES].min():.2g}"
        )

    return count({name: partial(judge, panel) for name, panel in FMNIST.items()})


@claim("hics.F3.a", "figure_3", ["hics_cifar10"], printed="3 of 3 settings")
def _(runs: Runs) -> Verdict:
    """On CIFAR-10 HiCS-FL converges fastest and ends highest in each of the three settings."""

    def judge(panel: Panel) -> Verdict:
        auc, fin = (leads(100 * read(runs, METHODS)) for read in (panel.auc, panel.fin))
        decisive = auc if auc.status != "held" else fin
        value = f"{auc.value} over all rounds, {fin.value} at the end"
        return Verdict(decisive.status, value, decisive.interval, decisive.detail)

    return count({name: partial(judge, panel) for name, panel in CIFAR10.items()})


@claim("hics.F3.b", "figure_3", ["hics_cifar10"], printed="modest in (1)")
def _(runs: Runs) -> Verdict:
    """On CIFAR-10 the gain over random selection is larger in settings (2) and (3) than in (1)."""
    gains = {}
    for name, panel in CIFAR10.items():
        auc = means(panel.auc(runs, ["Random", OURS]))
        gains[name] = 100 * float(auc[OURS] - auc["Random"])
    value = ", ".join(f"{name} {g:+.2f}" for name, g in gains.items())
    return decide(min(gains["(2)"], gains["(3)"]) > gains["(1)"], f"{value} points")


@claim("hics.F4.a", "figure_4", ["hics_fmnist"], printed="similar to CS")
def _(runs: Runs) -> Verdict:
    """If all clients are equally skewed (FMNIST (3)), HiCS-FL performs like Clustered Sampling, and smoothly."""
    compared = ["Random", "CS", "DivFL", OURS]
    auc, rough = (means(read(runs, compared)) for read in (FMNIST["(3)"].auc, FMNIST["(3)"].rough))
    apart, scale = abs(auc[OURS] - auc["CS"]), abs(auc["CS"] - auc["DivFL"])
    holds = apart <= 0.02 and apart <= 0.25 * scale and rough[OURS] <= rough["Random"]
    return decide(holds, f"{100 * apart:.2f} points apart, CS and DivFL {100 * scale:.2f}")


def spread(runs: Runs, panel: Panel, method: str, relative: bool = False) -> dict[int, pd.Series]:
    """seed -> std of the local training loss over the selected clients, by round; `relative` to its mean."""
    table = runs.pick(panel.experiment, panel.setting, [method])
    table = table[(table["round"] > 0) & (table["round"] <= panel.until(runs))]
    values = table["local_loss_std"] / (table["local_loss"] if relative else 1)
    by_seed = table.assign(spread=values).groupby("seed")
    return {int(seed): run.set_index("round")["spread"].sort_index() for seed, run in by_seed}


@claim("hics.F4.b", "figure_4", ["hics_cifar10"], printed="grows as gamma decays")
def _(runs: Runs) -> Verdict:
    """On CIFAR-10 the variability of HiCS-FL's training loss, relative to the loss, grows with the rounds."""

    def judge(panel: Panel) -> Verdict:
        rows = runs.pick(panel.experiment, panel.setting, [OURS])
        curves = spread(runs, panel, OURS, relative=True)
        T = panel.until(runs)
        first = warm_up(rows[rows["seed"] == rows["seed"].min()])
        if first >= 0.2 * T:
            raise Missing("the warm-up takes a fifth of the run")
        late = {("late", s): float(c[c.index > 0.8 * T].mean()) for s, c in curves.items()}
        early = {
            ("early", s): float(c[(c.index > first) & (c.index <= 0.2 * T)].mean()) for s, c in curves.items()
        }
        rule = by_sign(pd.Series(late | early), "late", "early")
        trend = float(np.mean([spearman(c.index, c) for c in curves.values()]))
        return decide(
            rule.status == "held" and trend > 0,
            f"{rule.value} of the loss, Spearman {trend:.2f}",
            rule.interval,
            rule.detail,
        )

    return count({f"CIFAR-10 {name}": partial(judge, panel) for name, panel in CIFAR10.items()})


@claim("hics.F5.a", "figure_5", ["hics_cifar100"], printed="2 of 2 settings, more in (2)")
def _(runs: Runs) -> Verdict:
    """On CIFAR-100 HiCS-FL is above all baselines in both settings, by more in (2)."""
    return count({**highest(CIFAR100, runs), "gain": lambda: largest(CIFAR100, runs, "(2)")})


@claim("hics.S.a", "slides_cifar100", ["hics_cifar100"], printed="medium and severe")
def _(runs: Runs) -> Verdict:
    """On CIFAR-100 HiCS-FL converges to a higher accuracy under medium and severe heterogeneity."""

    def judge(setting: str) -> Verdict:
        fin = means(Panel("hics_cifar100", setting).fin(runs, METHODS))
        margin = float(fin[OURS] - fin[BASELINES].max())
        return decide(margin > 0, f"{100 * margin:+.2f} points")

    return count({"medium": partial(judge, "(2)"), "severe": partial(judge, "severe")})


# -- Figures 13 to 17: training loss and its spread


def lowest_loss(panel: Panel, runs: Runs, column: str = "train_loss") -> Verdict:
    """The sign rule on the mean training loss over the measured rounds, against the lowest baseline."""
    table = panel.within(runs, METHODS)
    if table[column].isna().all():
        raise Missing(f"{column} has not been measured in {panel.experiment}")
    return leads(-per_run(table, column, area).droplevel("setting"), "nats")


for id_, artifact, panels_ in (
    ("hics.F13.a", "figure_13", FMNIST),
    ("hics.F15.a", "figure_15", CIFAR10),
    ("hics.F17.a", "figure_17", CIFAR100),
):

    @claim(id_, artifact, [panels_["(1)"].experiment], printed="lowest in every panel")
    def _(runs: Runs, panels: Mapping[str, Panel] = panels_) -> Verdict:
        """HiCS-FL has the lowest mean training loss, of the global model over all clients' data, in every panel."""

        def judged(column: str) -> Verdict:
            return count({name: partial(lowest_loss, panel, runs, column) for name, panel in panels.items()})

        verdict, local = judged("train_loss"), judged("local_loss")
        other = f"By the selected clients' own loss, which the paper may mean: {local.value}."
        return replace(verdict, detail=f"{verdict.detail} {other}")


def mean_spread(runs: Runs, panel: Panel) -> pd.Series:
    """Mean over rounds and seeds of the selected clients' loss spread, by method."""
    return pd.Series({m: np.mean([c.mean() for c in spread(runs, panel, m).values()]) for m in METHODS})


@claim("hics.F14.a", "figure_14", ["hics_fmnist", "hics_cifar10"], printed="almost all of 6 panels")
def _(runs: Runs) -> Verdict:
    """HiCS-FL has the lowest spread of the training loss in almost all settings (Figures 14 and 16: 5 of 6 panels)."""

    def judge(panel: Panel) -> Verdict:
        values = mean_spread(runs, panel)
        least = values[BASELINES].min()
        return decide(values[OURS] < least, f"{values[OURS]:.2g} against {least:.2g}")

    parts = {f"FMNIST {k}": partial(judge, p) for k, p in FMNIST.items()}
    parts |= {f"CIFAR-10 {k}": partial(judge, p) for k, p in CIFAR10.items()}
    return count(parts, need=5)


@claim("hics.F14.b", "figure_14", ["hics_fmnist", "hics_cifar10"], printed="little effect on FMNIST")
def _(runs: Runs) -> Verdict:
    """The heterogeneity of the setting changes the spread of the loss less on FMNIST than on CIFAR-10."""

    def relative(panels: Mapping[str, Panel]) -> float:
        table = pd.DataFrame({name: mean_spread(runs, panel) for name, panel in panels.items()})
        return float(((table.max(axis=1) - table.min(axis=1)) / table.mean(axis=1)).mean())

    fmnist, cifar = relative(FMNIST), relative(CIFAR10)
    return decide(fmnist < cifar, f"relative spread {fmnist:.2f} against {cifar:.2f}")


# -- The server's cost, and the variants


@claim(
    "hics.C.a",
    "cost_comparison",
    ["hics_fmnist", "hics_cifar10"],
    printed="no extra communication, least overhead",
)
def _(runs: Runs) -> Verdict:
    """HiCS-FL sends nothing extra; its server works less than Clustered Sampling's, which works less than DivFL's.

    The values are medians over the rounds after the warm-up, because other work on the machine lengthens single rounds.
    """

    def medians(experiment: str) -> pd.DataFrame:
        table = after_warm_up(runs.pick(experiment, "(2)", ["Random", "CS", "DivFL", OURS]))
        sent = table["parameters_up"] + table["parameters_down"] + table["scalars_up"]
        rounds = table.assign(sent=sent, ms=1000 * table["server_seconds"]).groupby("method")
        return rounds[["sent", "ms"]].median()

    def traffic(experiment: str) -> Verdict:
        sent = medians(experiment)["sent"]
        return decide(sent[OURS] == sent["Random"], f"{sent[OURS] / sent['Random']:.4g} of Random's")

    def order(experiment: str) -> Verdict:
        ms = medians(experiment)["ms"]
        text = ", ".join(f"{m} {ms[m]:.2f}" for m in (OURS, "CS", "DivFL"))
        return decide(ms[OURS] < ms["CS"] < ms["DivFL"], f"{text} ms")

    rules = {"traffic": traffic, "order of the servers": order}
    return combine(
        {
            f"{data}, {part}": partial(rule, experiment)
            for data, experiment in (("FMNIST", "hics_fmnist"), ("CIFAR-10", "hics_cifar10"))
            for part, rule in rules.items()
        }
    )


@claim(
    "hics.N.M",
    "table_n3",
    ["hics_cifar10_clusters"],
    printed="M = 0.5 K to K within 2.7, 2.3, 5.0 points, 0.3 K not better",
    informative=True,
)
def _(runs: Runs) -> Verdict:
    """On CIFAR-10 M = 0.5 K to K are within 3 points, or as close as printed, and 0.3 K is not better."""

    def judge(setting: str) -> Verdict:
        fin = 100 * means(Panel("hics_cifar10_clusters", setting).fin(runs, CLUSTERS))
        apart, few = float(np.ptp(fin[CLUSTERS[1:]])), fin[CLUSTERS[0]]
        allowed = max(3.0, float(np.ptp(PRINTED_CLUSTERS["hics_cifar10_clusters", setting][1:])))
        return decide(
            apart <= allowed and few <= fin[CLUSTERS[1:]].max(),
            f"{apart:.2f} points apart, M = 0.3K {few:.1f} %",
        )

    return count({setting: partial(judge, setting) for setting in ("(1)", "(2)", "(3)")})


def branches(runs: Runs) -> float:
    """Share of the rounds after the warm-up in which the published code runs Clustered Sampling."""
    notes = runs.pick("hics_cifar10_variants", "(2)", ["HiCS-FL, C"])["notes"].dropna()
    taken = [branch for note in notes if (branch := json.loads(note).get("branch"))]
    if not taken:
        raise Missing("the run ends within the warm-up")
    return float(np.mean([branch == "clustered_sampling" for branch in taken]))


@claim("hics.V.a", "variants", ["hics_cifar10_variants"], printed="")
def _(runs: Runs) -> Verdict:
    """The switch on the variance of the estimates turns the published code into Clustered Sampling on CIFAR-10 (2)."""
    panel = Panel("hics_cifar10_variants", "(2)", 0.6, CAP)

    def branch() -> Verdict:
        share = branches(runs)
        return decide(share > 0.9, f"taken in {100 * share:.0f} % of rounds")

    def pace() -> Verdict:
        rbar = panel.rbar(runs, ["CS", OURS, "HiCS-FL, C0", "HiCS-FL, C"])
        value = f"P {rbar[OURS]:.0f}, C0 {rbar['HiCS-FL, C0']:.0f}, C {rbar['HiCS-FL, C']:.0f}, CS {rbar['CS']:.0f}"
        return decide(abs(rbar["HiCS-FL, C"] / rbar["CS"] - 1) <= 0.1, value)

    return combine({"its branch": branch, "rounds to 60 %": pace}, some_of=2)
