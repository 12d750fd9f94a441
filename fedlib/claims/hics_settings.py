"""HiCS-FL's panels and what the paper prints (Chen and Vikalo, Table 1, the slides' table and Figure 6)."""

from __future__ import annotations

from fedlib.claims import Book
from fedlib.claims.curves import Panel

book = Book("hics_fl")

BASELINES = ["Random", "Pow-d", "CS", "DivFL"]
METHODS = [*BASELINES, "HiCS-FL"]
OURS = "HiCS-FL"
CAP = 2000  # rounds to which the tables follow a run
FMNIST = {f"({i})": Panel("hics_fmnist", f"({i})", 0.75) for i in (1, 2, 3)}
CIFAR10 = {f"({i})": Panel("hics_cifar10", f"({i})", 0.6) for i in (1, 2, 3)}
CIFAR100 = {f"({i})": Panel("hics_cifar100", f"({i})", 0.3) for i in (1, 2)}
TABLE = {  # Table 1 and the slides' table, setting (2) of each data set
    "FMNIST": FMNIST["(2)"],
    "CIFAR-10": CIFAR10["(2)"],
    "CIFAR-100": CIFAR100["(2)"],
    "Mini-ImageNet": Panel("hics_mini_imagenet", "(2)", 0.5),
}
EXPERIMENTS = [panel.experiment for panel in TABLE.values()]
PRINTED = {  # rounds to the target; FedCor's are the slides'
    "FMNIST": {"Random": 149, "Pow-d": 79, "CS": 114, "DivFL": 478, "FedCor": 88, "HiCS-FL": 60},
    "CIFAR-10": {"Random": 898, "Pow-d": 1037, "CS": 748, "DivFL": 1417, "FedCor": 711, "HiCS-FL": 123},
    "CIFAR-100": {"Random": 549, "Pow-d": 770, "CS": 530, "DivFL": 1345, "HiCS-FL": 336},
    "Mini-ImageNet": {"Random": 191, "Pow-d": 432, "CS": 186, "DivFL": 726, "FedCor": 229, "HiCS-FL": 86},
}
SPEED_UP = {"FMNIST": 2.5, "CIFAR-10": 7.3, "CIFAR-100": 1.63, "Mini-ImageNet": 2.2}
ENVELOPES = {  # Figure 6: beta, rho, kappa of the upper and the lower curve (conference version)
    "FMNIST": {"upper": (1.0, 0.13, 0.14), "lower": (1.5, 0.025, 0.022)},
    "CIFAR-10": {"upper": (2.0, 0.30, 0.36), "lower": (1.8, 0.15, 0.20)},
}
TEMPERATURES = (0.001, 0.0015, 0.0025, 0.005)
