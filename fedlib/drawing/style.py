"""The style of all pictures: a method has the same colour on every page of every paper.

A method's family is the beginning of its label ("FedCor, beta 0.5" belongs to FedCor). Variants share the family's
colour and differ by dashes. The colours are those of Okabe and Ito and of Tol, which colour-blind readers can
distinguish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import seaborn as sns

Look = dict[str, Any]

# family -> (colour, marker, dashes of its headline variant)
FAMILIES: dict[str, tuple[str, str, str]] = {
    "Full participation": ("#000000", "", ":"),
    "Random": ("#7f7f7f", "o", "-"),
    "MD": ("#4d4d4d", "s", "--"),
    "FedAvg": ("#7f7f7f", "o", "-"),
    "Target": ("#999933", "*", "-."),
    "Algorithm 1": ("#E69F00", "^", "-"),
    "Algorithm 2": ("#009E73", "v", "-"),
    "Clustered Sampling (Algorithm 1)": ("#E69F00", "^", "-"),
    "Clustered Sampling (Algorithm 2)": ("#009E73", "v", "-"),
    "Cluster": ("#009E73", "v", "-"),
    "CS": ("#009E73", "v", "-"),
    "+cluster": ("#009E73", "<", "--"),
    "+cluster+re-allocation": ("#44AA99", "^", "-"),
    "+cluster+importance": ("#332288", "p", "-"),
    "Importance": ("#AA4499", "P", "-"),
    "+importance": ("#AA4499", "P", "-"),
    "HCSFed": ("#D55E00", "D", "-"),
    "SCAFFOLD": ("#882255", "X", "-"),
    "IFCA": ("#44AA99", "p", "-."),
    "AFL": ("#56B4E9", ">", "--"),
    "Pow-d": ("#CC79A7", "h", "-"),
    "pow-d": ("#CC79A7", "h", "-"),
    "cpow-d": ("#CC79A7", "h", "--"),
    "rpow-d": ("#CC79A7", "h", "-."),
    "adapow-d": ("#CC79A7", "h", ":"),
    "FedCor": ("#0072B2", "d", "-"),
    "DivFL": ("#AA8800", "H", "-"),
    "HiCS-FL": ("#CC3311", "8", "-"),
    "Oort": ("#332288", "1", "-"),
    "Oracle": ("#661100", "2", "-."),
    "FedDyn": ("#117733", "3", "--"),
    "Moon": ("#DDAA33", "4", "--"),
    "FedProx": ("#88CCEE", "s", "--"),
    "F3AST": ("#6699CC", "x", "-"),
    "DELTA": ("#EE7733", "+", "-"),
    "Fed-CBS": ("#225522", "*", "--"),
    "FedAU": ("#994455", "<", "-"),
    "FedVARP": ("#BBAA00", ">", "-"),
    "MIFA": ("#0077BB", "^", "-."),
    "FedAWE": ("#EE3377", "v", "-."),
    "FedGS": ("#009988", "p", "--"),
    "GreedyFed": ("#BB5566", "P", "-"),
    "S-FedAvg": ("#004488", "X", "--"),
    "GC-A": ("#D55E00", "D", "-"),
    "GC-B": ("#D55E00", "s", "--"),
    "Centralised": ("#000000", "", "-"),
}
NAMES = {  # a method's name where the methods of several papers stand side by side
    "Algorithm 1": "Clustered Sampling (Algorithm 1)",
    "Algorithm 2": "Clustered Sampling (Algorithm 2)",
}
DASHES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)), (0, (3, 4, 1, 4))]


def style() -> None:
    """Set the style of the pictures that follow, in a notebook or a script."""
    sns.set_theme(context="notebook", style="ticks", palette="colorblind", font_scale=0.95)
    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.bbox": "tight",
            "svg.hashsalt": "fedlib",
            "svg.fonttype": "none",
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.spines.top": False,
            "axes.formatter.min_exponent": 4,  # 0.01, not a power of ten with a small exponent
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )


def family(method: str) -> str:
    """The longest family name with which a method's label begins, or the label itself."""
    families = [
        name for name in FAMILIES if method == name or method.startswith((f"{name} ", f"{name},", f"{name}-"))
    ]
    return max(families, key=len, default=method)


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """Colour, dashes and marker of each method: its family's colour; methods of one colour differ by dashes.

    A family's bare label always has the family's own dashes. A label of no known family is black.
    """
    worn = {method: FAMILIES.get(family(method), ("#000000", "", "-")) for method in methods}
    looks_of: dict[str, Look] = {}
    for method in sorted(worn, key=lambda method: method not in FAMILIES):
        colour, marker, headline = worn[method]
        used = [look["linestyle"] for look in looks_of.values() if look["color"] == colour]
        free = [dashes for dashes in [headline, *DASHES] if dashes not in used]
        looks_of[method] = {"color": colour, "linestyle": (free or DASHES)[0], "marker": marker}
    return {method: looks_of[method] for method in methods}


def sweep(labels: Sequence[str]) -> dict[str, Look]:
    """Looks for one method at several values of a parameter: a light-to-dark ramp instead of method colours."""
    ramp = sns.color_palette("viridis_r", len(labels) + 1)[1:]
    return {
        label: {"color": colour, "linestyle": DASHES[i % 4], "marker": "o"}
        for i, (label, colour) in enumerate(zip(labels, ramp, strict=True))
    }
