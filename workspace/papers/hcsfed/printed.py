"""What HCSFed prints: Table 1 and the sweeps of Figures 4 to 6, by the names of params.yaml."""

from __future__ import annotations

from math import inf

import pandas as pd

from fedlib.measure import best, per_run, rounds_to_best
from workspace.analysis.headline import Headline, Row
from workspace.analysis.reference import Program

GCS = ("GC-A", "GC-B")
FRACTIONS = ("10 %", "30 %", "50 %")
TABLE_1 = "hcsfed_table_1"
ABLATION = ("hcsfed_ablation", "alpha = 0.01")
TARGET = 0.8  # of Table 1 and Figure 7
ACCURACY = "client_accuracy"  # that of the tested reading
COLUMNS = [f"{data}, q = {q}" for data in ("MNIST", "FMNIST") for q in FRACTIONS]
PLAIN = "Random, plain mean"  # random selection under the plain mean, also where absent clients keep the old model
BASELINES = ("Random", "SCAFFOLD", "Importance", "Cluster")
PRINTED = {  # Table 1: rounds to 80 %, in the order of COLUMNS; 201 stands for "200+"
    "Random": (96, 42, 28, 201, 201, 158),
    "SCAFFOLD": (74, 36, 21, 180, 144, 115),
    "Importance": (35, 24, 22, 180, 116, 100),
    "Cluster": (31, 16, 8, 145, 104, 75),
    "HCSFed": (9, 8, 8, 81, 80, 75),
}
SPEED_UPS = {  # Table 1, as printed
    "Random": ("1.0", "1.0", "1.0", "1.0", "1.0", "1.0"),
    "SCAFFOLD": ("1.3", "1.2", "1.3", ">1.1", ">1.4", "1.4"),
    "Importance": ("2.7", "1.8", "1.3", ">1.1", ">1.7", "1.6"),
    "Cluster": ("3.1", "2.6", "3.5", ">1.4", ">1.9", "2.1"),
    "HCSFed": ("10.7", "5.2", "3.5", ">2.5", ">2.5", "2.1"),
}


def hcsfed(gc: str) -> str:
    return f"HCSFed-R ({gc})"


def in_print(table: dict[str, tuple], method: str, column: str) -> object:
    """The entry of PRINTED or SPEED_UPS for one of our methods; None if the paper has none."""
    name = "HCSFed" if method.startswith("HCSFed-") else method.split(", attrition")[0]
    return table[name][COLUMNS.index(column)] if name in table else None


def rounds(method: str, column: str) -> float:
    """Table 1's rounds to 80 %; inf for "200+"."""
    number = PRINTED[method][COLUMNS.index(column)]
    return inf if number > 200 else float(number)


def _row(k: int, column: str) -> Row:
    cells = {method: rounds[k] for method, rounds in PRINTED.items()}
    texts = {m: "200+" if n > 200 else str(n) for m, n in cells.items()}
    printed = {m: inf if n > 200 else float(n) for m, n in cells.items()}
    return Row(column, TABLE_1, column, TARGET, texts, printed, 200)


ROWS = tuple(_row(k, column) for k, column in enumerate(COLUMNS))
HEADLINE = Headline(
    "HCSFed, Table 1",
    "Rounds to 80 %. The paper states neither seeds nor alpha, and leaves open how absent clients count, how updates "
    "are compressed and which accuracy is meant. The program of the group's earlier paper is public.",
    "median",
    ROWS,
    tuple(("hcsfed.T1.b", f"{row.name}, Random over HCSFed") for row in (ROWS[0], ROWS[3])),
)

OWN_TEST = ", 600 own test samples"  # the clients' data of the authors' earlier program
# The program of the group's earlier paper with Table 1's model, no program of HCSFed. Its own grouping, by the counts
# of labels, has no runs of ours beside it.
PROGRAM = Program(
    digest="0748b752f34f91f46c790155bbbbf7f31d826b78956e46e48902944263939b39",
    settings={f"{column}, alpha = 0.1": f"{column}, alpha = 0.1{OWN_TEST}" for column in COLUMNS[:4]},
    methods={
        "random": (TABLE_1, "Random, attrition"),
        "importance": (TABLE_1, "MD"),
        "uniform_mean": (TABLE_1, "Random"),
    },
    columns={"client_accuracy": "client_accuracy", "test_accuracy": "test_accuracy"},
)

HS = range(5, 11)
RATES = ("5 %", "10 %", "20 %", "40 %", "100 %")


def sweep(gc: str, letter: str) -> dict[str, str]:
    """Value of H or R -> method, for one reading (R = 100 % is the same in both)."""
    if letter == "H":
        return {str(H): f"{gc}, H = {H}" for H in HS}
    return {R: "R = 100 %" if R == "100 %" else f"{gc}, R = {R}" for R in RATES}


SWEEPS = {
    name: {hcsfed(gc): sweep(gc, letter) for gc in GCS}
    for letter, name in {"H": "clusters H (count)", "R": "compression rate R"}.items()
}


def swept(results: pd.DataFrame, share: float = 0.95) -> dict[str, pd.Series]:
    """Figures 4 to 6 by (method, seed): best accuracy (%) of the clients' own test parts, rounds to it and to a share.

    At alpha = 0.1, which is tested, or at the first alpha that has runs.
    """
    ran = list(results["setting"].unique())
    rows = results[results["setting"] == ("alpha = 0.1" if "alpha = 0.1" in ran else ran[0])]
    return {
        name: values.droplevel("setting")
        for name, values in {
            "best test accuracy (%)": 100 * per_run(rows, ACCURACY, best),
            "rounds to the best accuracy": per_run(rows, ACCURACY, rounds_to_best),
            f"rounds to {100 * share:g} % of the best": per_run(rows, ACCURACY, rounds_to_best, share=share),
        }.items()
    }
