"""What HCSFed prints: Table 1, and the names of its settings and of our methods for it."""

from __future__ import annotations

from math import inf

GCS = ("GC-A", "GC-B")
FRACTIONS = ("10 %", "30 %", "50 %")
TABLE_1 = "hcsfed_table_1"
ABLATION = ("hcsfed_ablation", "alpha = 0.01")
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
