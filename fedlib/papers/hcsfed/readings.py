"""HCSFed's readings. No program of its authors is public, so there is no reading "as run"."""

from __future__ import annotations

from fedlib.analysis.readings import AS_WRITTEN, Reading, Swap, grid
from fedlib.papers.hcsfed.printed import ABLATION, COLUMNS, GCS, TABLE_1, hcsfed

FIGURE_3 = ("hcsfed_rounds", "hcsfed_rounds_cnn")
MEASURED = (TABLE_1, ABLATION[0], *FIGURE_3, "hcsfed_sweep_mnist")
_BARE = [*COLUMNS, *(f"{column}, lr = 0.05" for column in COLUMNS)]


def _alpha(alpha: str) -> tuple[Swap, ...]:
    """Table 1 and Figure 7 at another alpha."""
    columns = {bare: f"{', '.join(bare.split(', ')[:2])}, alpha = {alpha}{bare[len(', '.join(bare.split(', ')[:2])):]}"
               for bare in _BARE}  # fmt: skip
    return Swap(TABLE_1, settings=columns), Swap(ABLATION[0], settings={ABLATION[1]: f"alpha = {alpha}"})


def _variant(ending: str, letter: str = "R") -> tuple[Swap, ...]:
    methods = {hcsfed(gc): f"HCSFed-{letter} ({gc}){ending}" for gc in GCS}
    return (Swap(TABLE_1, methods=methods), *([Swap(ABLATION[0], methods=methods)] if ending else []))


ATTRITION = (
    Swap(TABLE_1, methods={m: f"{m}, attrition" for m in ("Random", "SCAFFOLD")}),
    Swap(ABLATION[0], methods={m: f"{m}, attrition" for m in ("FedAvg", "SCAFFOLD")}),
    *(
        Swap(name, methods={"Random": "Random, attrition"}) for name in FIGURE_3
    ),  # SCAFFOLD is not run this way
)
CLIENTS = tuple(Swap(name, columns={"test_accuracy": "client_accuracy"}) for name in MEASURED)
OPTIONS = {
    "alpha": {"0.01": (), "0.1": _alpha("0.1"), "0.001": _alpha("0.001")},
    "learning rate": {
        "0.01": (),
        "0.05": (Swap(TABLE_1, settings={column: f"{column}, lr = 0.05" for column in COLUMNS}),),
    },
    "absent clients": {"not counted": (), "keep the old model": ATTRITION},
    "accuracy": {"official test set": (), "clients' own": CLIENTS},
    "places": {
        "repaired (R), H = 10": (),
        "as printed (P), H = 10": _variant("", "P"),
        "unbiased (U), H = 10": _variant("", "U"),
        "repaired (R), H = 5": _variant(", H = 5"),
    },
    "compression": {gc: (Swap(TABLE_1, methods={"HCSFed": hcsfed(gc)}),) for gc in GCS},
}
WRITTEN = Reading(
    AS_WRITTEN,
    "the paper's text, with the primary choice where it is silent or contradicts itself",
    {
        "alpha": "0.01",
        "learning rate": "0.01",
        "absent clients": "not counted",
        "accuracy": "official test set",
        "places": "repaired (R), H = 10",
        "compression": "GC-A",
    },
    {
        "alpha": "none is printed for MNIST and Fashion-MNIST; Figures 3, 5 and 6 have 0.01",
        "learning rate": "none is printed for Table 1; Figure 3 has 0.01",
        "absent clients": "Algorithm 2, line 15: the mean of the chosen models",
        "accuracy": "not defined; the usual one",
        "places": "equation 5 has a variance, its proof (equation 8) a standard deviation, which is taken; every "
        "cluster has a place; H is the largest that the paper studies",
        "compression": "the text has each client compress its own update",
    },
    OPTIONS["compression"]["GC-A"],
)
READINGS = [WRITTEN, *(one for one in grid(OPTIONS) if one.choices != WRITTEN.choices)]

LEFT_OPEN = [
    (
        "importance sampling",
        "the rule is not given; the ablation names it after a part of HCSFed, and after related work",
        "related work's, unbiased; the plain mean and HCSFed's part are on the pages of Table 1 and Figure 7",
    ),
    ("batch and local steps of Table 1", "not given", "50 and 50, those of Figure 3"),
    ("number of clusters and compression rate", "ranges only", "10 clusters, 10 %; Figures 4 to 6 vary them"),
    (
        "what the server knows of a client before it trains",
        "not given",
        "all clients train in every round, which is counted",
    ),
    ("IFCA's number of models", "not given", "4"),
    ("SCAFFOLD's control variates and server step", "not given", "option II, 1"),
]
