"""What a paper leaves open, or its sources disagree on, and what each reading of it gives in our runs.

A `Choice` names the readings that were run, as methods or settings of one experiment, and the one that the pages take.
Choices were written down from the papers and the authors' code, not from results; numbers come from results alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from IPython.display import Markdown, display

from fedlib import measure
from fedlib.artifact import Artifact
from fedlib.claims import STATUSES, number
from fedlib.claims.fedcor_settings import PANELS, printed_cells
from fedlib.claims.hcsfed_readings import COLUMNS, in_print
from fedlib.claims.hcsfed_readings import PRINTED as HCSFED_PRINTED
from fedlib.claims.hics_settings import PRINTED as HICS_PRINTED
from fedlib.tables import reach

UNDECIDED = ("not held", "held in part")


@dataclass(frozen=True)
class Choice:
    """One thing left open.

    sources: what the paper, its code or another text says. taken: the reading of the pages. readings: (setting,
    method) -> the reading's name, in the order shown. target: test accuracy to count rounds to, by setting; where there
    is none, training losses are compared. printed: the paper's number by (setting, method). bears_on: artifacts whose
    claims depend on it.
    """

    paper: str
    title: str
    sources: str
    taken: str
    experiment: str
    readings: Mapping[tuple[str, str], str]
    bears_on: tuple[str, ...]
    target: Mapping[str, float] = field(default_factory=dict)
    printed: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def table(self, results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """A row a (setting, reading): seeds, what it gives (mean over seeds, lowest to highest), what is printed.

        Curves are compared over the rounds that all runs have: of a setting, or without targets of all settings.
        """
        nothing = pd.DataFrame({"setting": [], "method": [], "seed": [], "round": []})
        table = results.get(self.experiment, nothing)
        table = table[table["setting"].isin([setting for setting, _ in self.readings])]
        end = {s: measure.common_end(runs if self.target else table) for s, runs in table.groupby("setting")}
        there = dict(list(table.groupby(["setting", "method"], sort=False)))
        rows = []
        for (setting, method), reading in self.readings.items():
            row = {"setting": setting, "reading": reading, "seeds": "not run"}
            if (setting, method) in there:
                runs = [run for _, run in there[setting, method].groupby("seed")]
                row |= {"seeds": str(len(runs))} | self._found(setting, runs, end[setting])
            if self.printed:
                row["printed"] = self.printed.get((setting, method), "")
            rows.append(row)
        return pd.DataFrame(rows).fillna("").set_index(["setting", "reading"])

    def _found(self, setting: str, runs: list[pd.DataFrame], end: int) -> dict[str, str]:
        def over_seeds(
            column: str, statistic: measure.Statistic, scale: float = 1.0, **options: float
        ) -> str:
            curves = [measure.curve(run[run["round"] <= end], column, end) for run in runs]
            values = [scale * statistic(curve, **options) for curve in curves]
            return spread(np.array(values))

        if setting not in self.target:
            return {
                "mean training loss": over_seeds("train_loss", measure.area),
                "final training loss": over_seeds("train_loss", measure.end_mean),
            }
        goal = self.target[setting]
        rounds = np.sort(
            [measure.rounds_to_target(measure.curve(run, "test_accuracy"), goal) for run in runs]
        )
        median = number(float(np.median(rounds)), "rounds").removesuffix(" rounds")
        return {
            "target": f"{100 * goal:g} %",
            "rounds": median if median == reach(rounds) else f"{median} ({reach(rounds)})",
            "final accuracy (%)": over_seeds("test_accuracy", measure.end_mean, 100, share=0.05),
        }


def spread(values: np.ndarray) -> str:
    """Mean over seeds, and the lowest to the highest of several: "1.234 (1.1\u20131.4)"; diverged where infinite."""
    mean = float(values.mean())
    text = "diverged" if math.isinf(mean) else "not measured" if math.isnan(mean) else f"{mean:.4g}"
    return (
        f"{text} ({values.min():.4g}\u2013{values.max():.4g})"
        if len(values) > 1 and math.isfinite(mean)
        else text
    )


def unsettled(board: pd.DataFrame, paper: str) -> pd.DataFrame:
    """The claims of a paper that did not hold, or held in part: rows of `claims.verdicts`."""
    return board[(board["paper"] == paper) & board["verdict"].isin(UNDECIDED)]


def choices(paper: str) -> list[Choice]:
    return [choice for choice in CHOICES if choice.paper == paper]


def not_varied(paper: str) -> pd.DataFrame:
    """What is open as well, but has no runs of its own: a row each, with what was taken."""
    return pd.DataFrame(
        [row[1:] for row in NOT_VARIED if row[0] == paper], columns=["left open", "sources", "taken here"]
    )


def show(artifact: Artifact, paper: str, board: pd.DataFrame, results: Mapping[str, pd.DataFrame]) -> None:
    """A paper's part of the page: its claims that did not hold, then each choice with what its readings give."""
    open_claims = unsettled(board, paper)
    counts = board[board["paper"] == paper]["verdict"].value_counts()
    said = ", ".join(f"{counts[status]} {status}" for status in STATUSES if status in counts)
    display(Markdown(f"{len(board[board['paper'] == paper])} claims at scale **{artifact.scale}**: {said}."))
    if len(open_claims):
        artifact.board(open_claims, f"{paper}_claims")
    for k, choice in enumerate(choices(paper), start=1):
        concerned = open_claims.loc[open_claims["artifact"].isin(choice.bears_on), "id"]
        bears = f" Bears on {', '.join(f'`{one}`' for one in concerned)}." if len(concerned) else ""
        text = f"### {choice.title}\n\n{choice.sources} **Taken here:** {choice.taken}{bears}"
        display(Markdown(f"{text} Runs: `{choice.experiment}`."))
        artifact.table(choice.table(results), f"{paper}_choice_{k}")
    display(Markdown("### Left open as well, without runs of their own"))
    artifact.table(not_varied(paper), f"{paper}_not_varied", index=False)


def _grid(settings: list[str], methods: Mapping[str, str]) -> dict[tuple[str, str], str]:
    return {(setting, method): reading for setting in settings for method, reading in methods.items()}


def _hcsfed_printed() -> dict[tuple[str, str], str]:
    """Table 1's cells by the setting and the method of our non-IID runs, whatever their alpha."""
    methods = (
        "Random",
        "Random, attrition",
        "Importance",
        "Importance, mean",
        "HCSFed-R (GC-A)",
        "HCSFed-R (GC-B)",
    )
    settings = {column: column for column in COLUMNS} | {
        s: s.split(" %")[0] + " %" for s, alpha in _ALPHAS.items() if alpha != "IID"
    }
    cells = {
        (s, m): in_print(HCSFED_PRINTED, m.split(", ")[0], c) for s, c in settings.items() for m in methods
    }
    return {key: "200+" if rounds > 200 else str(rounds) for key, rounds in cells.items()}


def _fedcor_printed(data: str, names: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Table 1's cells, by the setting and the method of the experiments that vary a choice."""
    cells = printed_cells()
    return {
        (panel.setting, variant): cells[place, method]
        for place, panel in PANELS.items()
        if place.startswith(data)
        for variant, method in names.items()
    }


_MNIST = [f"MNIST, q = {q} %" for q in (10, 30, 50)]
_FMNIST = [f"FMNIST, q = {q} %" for q in (10, 30, 50)]
_ALPHAS = {  # setting -> alpha
    "MNIST, q = 10 %": "0.01",
    "MNIST, q = 10 %, alpha = 0.1": "0.1",
    "MNIST, q = 10 %, alpha = 0.001": "0.001",
    "MNIST, q = 10 %, IID": "IID",
    "FMNIST, q = 10 %": "0.01",
    "FMNIST, q = 10 %, alpha = 0.1": "0.1",
    "FMNIST, q = 10 %, alpha = 0.001": "0.001",
}
_TO_80 = dict.fromkeys([*_MNIST, *_FMNIST, *_ALPHAS], 0.8)
_HICS = dict.fromkeys(["(2)"], 0.6)
_HICS_TABLE = HICS_PRINTED["CIFAR-10"]


def _hics(
    title: str, sources: str, taken: str, methods: Mapping[str, str], printed: str = "HiCS-FL"
) -> Choice:
    return Choice(
        "hics_fl",
        title,
        sources,
        taken,
        "hics_cifar10_variants",
        _grid(["(2)"], methods),
        ("hics_fl/variants", "hics_fl/table_1", "hics_fl/figure_3"),
        _HICS,
        {("(2)", method): str(_HICS_TABLE["CS" if method == "CS" else printed]) for method in methods},
    )


def _fedcor(data: str, title: str, sources: str, taken: str, names: Mapping[str, str], of: str) -> Choice:
    experiment = "fedcor_fmnist_variants" if data == "FMNIST" else "fedcor_cifar10_variants"
    targets = {panel.setting: panel.target for place, panel in PANELS.items() if place.startswith(data)}
    return Choice(
        "fedcor",
        f"{data}: {title}",
        sources,
        taken,
        experiment,
        _grid(list(targets), names),
        ("fedcor/table_1", "fedcor/figure_4"),
        targets,
        _fedcor_printed(data, dict.fromkeys(names, of)),
    )


_SCHEDULE = (
    "how the Gaussian process is trained",
    "The paper gives neither how many past samples count nor how fast they fade (gamma). The code nearest to "
    "publication keeps the newest two, with gamma 0.8 (Fashion-MNIST) and 0.97 (CIFAR-10) a round; the README of 2023 "
    "has windows of 100 and 500 rounds with 0.95 and 0.99.",
    "The code nearest to publication.",
    {"FedCor": "code of 2022", "FedCor, README of 2023": "README of 2023"},
    "FedCor",
)
_CANDIDATES = (
    "how many candidates Pow-d asks",
    "The README has d = 10; with C = 10 clients a round (1SPC) that is random selection, but the paper prints other "
    "rounds for the two on Fashion-MNIST.",
    "Twice C: 10, and 20 for 1SPC.",
    {f"Pow-d, d = {d}": f"d = {d}" for d in (10, 20, 30)},
    "Pow-d",
)

CHOICES = [
    Choice(
        "clustered_sampling",
        "The order of clients of equal size in Algorithm 1",
        "All MNIST clients have 500 samples, and the paper does not say how ties are broken. The authors sort with "
        "numpy's unstable sort, clients numbered by digit.",
        "At random, clients numbered at random: a server does not know the labels.",
        "cs_mnist",
        {
            ("random ids", "MD"): "MD sampling, for comparison",
            ("random ids", "Algorithm 1"): "at random",
            ("ids sorted by digit", "Algorithm 1, ties at random"): "at random",
            ("ids sorted by digit", "Algorithm 1, authors' tie order"): "as numpy 1.24 sorts",
            ("ids sorted by digit", "Algorithm 1, ties by id"): "by id",
            ("random ids", "Target"): "target sampling, which knows the labels",
        },
        ("clustered_sampling/figure_1",),
    ),
    Choice(
        "clustered_sampling",
        "The learning rate at the two ends of alpha",
        "The paper's text and list of runs have 0.1 at alpha = 10 and 0.05 at alpha = 0.001; the plotting program has "
        "the reverse. The paper's criterion is the final training loss of MD sampling.",
        "The text's.",
        "cs_rates",
        {
            (f"alpha = {alpha}, lr = {lr}", "MD"): where
            for alpha, named in (("10", ("0.1", "0.05")), ("0.001", ("0.05", "0.1")))
            for lr, where in zip(named, ("the text's", "the plotting program's"), strict=True)
        },
        tuple(f"clustered_sampling/figure_{n}" for n in (2, 7)),
    ),
    Choice(
        "hcsfed",
        "How Random is aggregated",
        "The paper's Algorithm 2 averages the chosen models. Its printed rounds fall like 1/q, which the plain average "
        "does not give, and attrition does: absent clients count with the old model.",
        "The plain average, as printed; attrition stands beside it, and claims are decided for both.",
        "hcsfed_table_1",
        _grid(
            [*_MNIST, *_FMNIST],
            {"Random": "average of the chosen", "Random, attrition": "absent clients keep the old model"},
        ),
        ("hcsfed/table_1", "hcsfed/figure_3", "hcsfed/figure_7"),
        _TO_80,
        _hcsfed_printed(),
    ),
    Choice(
        "hcsfed",
        "What the compression keeps of an update",
        "The paper keeps the centres of groups of like components, and does not say whether each client has groups of "
        "its own (GC-A) or all clients share them (GC-B).",
        "Neither: GC-A and GC-B stand side by side, and claims are decided for both.",
        "hcsfed_table_1",
        _grid([*_MNIST, *_FMNIST], {f"HCSFed-R ({gc})": gc for gc in ("GC-A", "GC-B")}),
        ("hcsfed/table_1", "hcsfed/figure_3", "hcsfed/figure_4", "hcsfed/figure_7"),
        _TO_80,
        _hcsfed_printed(),
    ),
    Choice(
        "hcsfed",
        "How places are dealt to clusters and updates weighed",
        "As printed, a cluster's spread is a variance, a cluster may get no place, and the average is biased.",
        "R, repaired: spread as a standard deviation, one place for every cluster.",
        "hcsfed_table_1",
        _grid(
            _MNIST,
            {
                f"HCSFed-{variant} ({gc})": f"{words} ({gc})"
                for variant, words in (("R", "repaired"), ("P", "as printed"), ("U", "unbiased"))
                for gc in ("GC-A", "GC-B")
            },
        ),
        ("hcsfed/table_1", "hcsfed/figure_7"),
        _TO_80,
    ),
    Choice(
        "hcsfed",
        "Which alpha Table 1 has",
        "The paper names none for MNIST and Fashion-MNIST.",
        "0.01.",
        "hcsfed_table_1",
        {
            (setting, method): f"{method}, alpha = {alpha}".replace("alpha = IID", "IID")
            for method in (
                "Random",
                "Random, attrition",
                "HCSFed-R (GC-A)",
                "HCSFed-R (GC-B)",
                "Full participation",
            )
            for setting, alpha in _ALPHAS.items()
        },
        ("hcsfed/table_1",),
        _TO_80,
        _hcsfed_printed(),
    ),
    Choice(
        "hcsfed",
        "How importance sampling weighs updates",
        "The paper does not give the rule.",
        "Unbiased weights.",
        "hcsfed_table_1",
        _grid(_MNIST, {"Importance": "unbiased weights", "Importance, mean": "plain average"}),
        ("hcsfed/table_1", "hcsfed/figure_7"),
        _TO_80,
        _hcsfed_printed(),
    ),
    *(_fedcor(data, *choice) for choice in (_SCHEDULE, _CANDIDATES) for data in ("FMNIST", "CIFAR-10")),
    _hics(
        "The switch on the spread of the estimates",
        "The paper has none. The published code runs plain Clustered Sampling unless the estimated entropies vary "
        "little, and keeps the updates of its warm-up alone; the code just before has no switch.",
        "The paper's.",
        {
            "HiCS-FL": "the paper's",
            "HiCS-FL, C0": "the code's, before the switch",
            "HiCS-FL, C": "the published code's",
            "CS": "Clustered Sampling, for comparison",
        },
    ),
    _hics(
        "What the label entropy is estimated from",
        "The paper: the update of the output layer's bias. The code: the update of its weights.",
        "The bias.",
        {"HiCS-FL": "bias", "HiCS-FL, weight estimate": "weights"},
    ),
    _hics(
        "The temperature",
        "The conference version and the code have different ones.",
        "0.0015, the conference version's.",
        {
            "HiCS-FL, T_s = 0.001": "0.001",
            "HiCS-FL": "0.0015",
            "HiCS-FL, T_s = 0.0025": "0.0025",
            "HiCS-FL, T_s = 0.005": "0.005",
        },
    ),
    _hics(
        "The weight of the proximal term",
        "The conference version: 0.1. The code: 0.5.",
        "0.1.",
        {"HiCS-FL": "0.1", "HiCS-FL, μ = 0.5": "0.5"},
    ),
    _hics(
        "How many candidates Pow-d asks",
        "The paper: all clients. The code: twice as many as are chosen.",
        "All clients.",
        {"Pow-d": "all", "Pow-d, d = 2K": "2K"},
        "Pow-d",
    ),
    _hics(
        "Which gradients DivFL compares",
        "The paper: of one step at the current model. The code: all clients' updates of the round before, with a "
        "stochastic greedy choice.",
        "The paper's.",
        {"DivFL": "one step at the model", "DivFL, as the code": "updates of the round before"},
        "DivFL",
    ),
    _hics(
        "The likelihood of FedCor as a baseline",
        "The paper's code takes FedCor's leave-one-out likelihood, whose sum runs over the samples where it should run "
        "over the clients.",
        "The marginal likelihood.",
        {"FedCor": "marginal likelihood", "FedCor, LOO": "leave-one-out, as the code has it"},
        "FedCor",
    ),
]

NOT_VARIED = [
    (
        "clustered_sampling",
        "rows or condensed distances for Ward's tree",
        "the paper: a similarity matrix; the code hands its rows to scipy",
        "rows, as the code",
    ),
    ("clustered_sampling", "dropout while measuring", "the code leaves it on", "off"),
    (
        "clustered_sampling",
        "test samples of an MNIST client",
        "the paper: 100; the code: 80",
        "80: five digits have fewer than 1,000 test images",
    ),
    (
        "clustered_sampling",
        "number of seeds",
        "one, with the draws of MD sampling reseeded by the round",
        "5 seeds, every draw from the run's seed",
    ),
    ("hcsfed", "rate, batch and local steps of Table 1", "not given", "0.01, 50 and 50, those of Figure 3"),
    (
        "hcsfed",
        "number of clusters and compression rate",
        "ranges only",
        "10 clusters, 10 %; Figures 4 to 6 vary them",
    ),
    (
        "hcsfed",
        "what the server knows of a client before it trains",
        "not given",
        "all clients train in every round, which is counted",
    ),
    ("hcsfed", "accuracy", "not defined", "official test set"),
    ("fedcor", "mean of the prior", "the paper: 0; the README of 2023 updates it", "0"),
    ("fedcor", "AFL's alphas", "the code: 0.75, 0.01, 0.1", "the code's"),
    ("fedcor", "a fifth of each client's data held out", "the code only", "held out"),
    (
        "fedcor",
        "the run along which Figures 2 and 3 are measured",
        "not stated",
        "uniformly random selection; at scale paper FedCor's own run stands beside it",
    ),
    ("fedcor", "standard deviation over seeds", "of the sample or not: not stated", "of the sample (n - 1)"),
    (
        "hics_fl",
        "halving the learning rate every 10 iterations",
        "the conference version; the code never does; read as rounds, a whole run would be worth 20 rounds",
        "constant; halving within a round has not been tried",
    ),
    (
        "hics_fl",
        "local epochs on Fashion-MNIST and clients a round",
        "the conference version: 2 and 5; the code: 1 and 10",
        "2 and 5",
    ),
    ("hics_fl", "the draw within a cluster", "the paper: by data share; the code: uniform", "by data share"),
    (
        "hics_fl",
        "the warm-up's order",
        "the paper: random; the code: by client id, which is by alpha",
        "random",
    ),
    (
        "hics_fl",
        "the round of Figures 9 to 12",
        "not stated",
        "the end of the warm-up; a common start, other temperatures and the code's estimator stand on their pages",
    ),
    ("hics_fl", "Adam's state between rounds", "the code keeps it at the client", "fresh in every round"),
]
