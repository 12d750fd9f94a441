"""FedCor's panels and what the paper prints (Tang et al., CVPR 2022, Figure 4 and Table 1)."""

from __future__ import annotations

from dataclasses import replace

from workspace.analysis.curves import Panel

BASELINES = ["Random", "AFL", "Pow-d"]
METHODS = [*BASELINES, "FedCor"]
SETTINGS = ["2SPC", "1SPC", "Dir"]
EXPERIMENTS = {"FMNIST": "fedcor_fmnist", "CIFAR-10": "fedcor_cifar10"}
INTERVAL = {data: f"{name}_interval" for data, name in EXPERIMENTS.items()}
ANNEALING = {data: f"{name}_annealing" for data, name in EXPERIMENTS.items()}
INTERVALS = ["FedCor, Δt", "FedCor, 2Δt", "FedCor, no update"]
BETAS = {data: [f"FedCor, β = {b}" for b in betas] for data, betas in {
    "FMNIST": (0.5, 0.75, 0.9), "CIFAR-10": (0.9, 0.95, 0.99)}.items()}  # fmt: skip
T = {"FMNIST": 500, "CIFAR-10": 2000}
TARGETS = {"FMNIST": (0.69, 0.62, 0.64), "CIFAR-10": (0.62, 0.36, 0.54)}
PANELS = {
    f"{data} {setting}": Panel(experiment, setting, target, T[data])
    for data, experiment in EXPERIMENTS.items()
    for setting, target in zip(SETTINGS, TARGETS[data], strict=True)
}
# Table 1: rounds, mean and standard deviation over 5 seeds; None where the paper prints N/A.
PRINTED: dict[str, dict[str, tuple[float, float] | None]] = {
    "FMNIST 2SPC": {"Random": (295.8, 92.0), "AFL": (218.6, 117.3), "Pow-d": (126.6, 78.2), "FedCor": (94.8, 18.4)},
    "FMNIST 1SPC": {"Random": None, "AFL": None, "Pow-d": (167.2, 72.3), "FedCor": (84.0, 53.1)},
    "FMNIST Dir": {"Random": (141.0, 73.0), "AFL": (169.0, 166.1), "Pow-d": (123.0, 101.0), "FedCor": (68.8, 27.5)},
    "CIFAR-10 2SPC": {
        "Random": (1561.2, 236.2), "AFL": None, "Pow-d": (1558.2, 227.0), "FedCor": (1033.4, 123.7)},
    "CIFAR-10 1SPC": {
        "Random": (1750.4, 190.3), "AFL": (1845.2, 28.8), "Pow-d": (1752.2, 186.2), "FedCor": (1269.2, 70.6)},
    "CIFAR-10 Dir": {
        "Random": None, "AFL": (1524.4, 267.9), "Pow-d": (1355.2, 151.3), "FedCor": (1076.8, 262.8)},
}  # fmt: skip
MAIN = list(EXPERIMENTS.values())
VARIANTS = ["FedCor", "FedCor, README of 2023", "Pow-d, d = 10", "Pow-d, d = 20", "Pow-d, d = 30", "Random"]
VARIANT_PANELS = {
    name: replace(panel, experiment=f"{panel.experiment}_variants") for name, panel in PANELS.items()
}


def printed_cells() -> dict[tuple[str, str], str]:
    """Table 1's cells as printed, by (panel, method)."""
    cells = {(name, m): value for name, row in PRINTED.items() for m, value in row.items()}
    return {key: f"{value[0]} ± {value[1]}" if value else "N/A" for key, value in cells.items()}
