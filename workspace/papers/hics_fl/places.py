"""Where HiCS-FL's claims are made: the panels of its figures with their labels, and the pages."""

from __future__ import annotations

from functools import partial

from workspace.analysis.claim import Labels, claim_on
from workspace.analysis.readings import Where
from workspace.papers.hics_fl.printed import CIFAR10, CIFAR100, FMNIST

claim = partial(claim_on, "hics", "hics_fl")
PANELS = {
    f"{data} {setting}": panel
    for data, panels in (("Fashion-MNIST", FMNIST), ("CIFAR-10", CIFAR10), ("CIFAR-100", CIFAR100))
    for setting, panel in panels.items()
}
SHOWN = {"Fashion-MNIST": 200, "CIFAR-10": 500, "CIFAR-100": 1000}  # rounds of the figures
ON = {data: [panel for panel in PANELS if panel.startswith(f"{data} ")] for data in SHOWN}
NAMES = {"FMNIST": "Fashion-MNIST"}  # of the data sets in printed tables; the others have one name


def where(panel: str, method: str, column: str = "test_accuracy") -> Where:
    return Where(PANELS[panel].experiment, PANELS[panel].setting, method, column)


def labels(panel: str) -> Labels:
    """What a panel's name says: "Fashion-MNIST (2)"."""
    data, setting = panel.split()
    return {
        "data": data,
        "partition": setting,
        "participation": "q = 20 %" if "CIFAR" in data else "q = 10 %",
    }
