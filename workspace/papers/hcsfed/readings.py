"""HCSFed's readings.

Its text is silent on alpha, learning rate, absent clients, accuracy and compression, and its own program is not public:
there is neither a reading "as written" nor one "as run". The program of the paper that the same group wrote just before
it is public (`PROGRAM`), and says how they ran random selection and counted accuracy: the primary reading follows it.
A reading never borrows another one's runs: what has not been run under it is absent.
"""

from __future__ import annotations

from dataclasses import replace

from workspace.analysis.readings import REASONS, Primary, Reading, Swap, grid
from workspace.papers.hcsfed.printed import (
    ABLATION,
    COLUMNS,
    GCS,
    HS,
    OWN_TEST,
    PLAIN,
    RATES,
    TABLE_1,
    hcsfed,
)

# "Stratified Client Selection Scheme in Federated Learning": same clients, shares, batches, rates and rounds.
PROGRAM = ("https://github.com/Rachel-Amber-2024/FL-stratified-client-selection", "9f31452")
FIGURE_3 = ("hcsfed_rounds", "hcsfed_rounds_cnn")
SWEPT = ("hcsfed_sweep_mnist", "hcsfed_sweep_cifar10", "hcsfed_sweep_cifar100")
MEASURED = (TABLE_1, ABLATION[0], *FIGURE_3, *SWEPT)
ALPHAS = ("0.1", "0.01", "0.001")
BY_ALPHA = (
    ABLATION[0],
    SWEPT[0],
    "hcsfed_updates",
)  # their settings are alphas, of which the paper prints none
BY_NAME = [f"MNIST, q = 10 %, alpha = {alpha}" for alpha in ALPHAS]  # whatever a reading's alpha is


def _alpha(alpha: str) -> tuple[Swap, ...]:
    """Table 1 and the figures on MNIST at another alpha."""
    columns = {
        f"{column}{faster}": f"{column}, alpha = {alpha}{faster}"
        for column in COLUMNS
        for faster in ("", ", lr = 0.05")
    }
    settings = {ABLATION[1]: f"alpha = {alpha}"}
    return Swap(TABLE_1, settings=columns), *(Swap(name, settings=settings) for name in BY_ALPHA)


def _faster() -> tuple[Swap, ...]:
    """The larger learning rate, with which only Table 1 has been run."""
    columns = {setting: f"{setting}, lr = 0.05" for setting in (*COLUMNS, *BY_NAME)}
    return Swap(TABLE_1, settings=columns), *_absent(BY_ALPHA, ABLATION[1])


def _absent(experiments: tuple[str, ...], *settings: str) -> tuple[Swap, ...]:
    """Experiments that have not been run under a reading: settings that do not exist."""
    return tuple(
        Swap(name, settings={setting: f"{setting}, not run" for setting in settings}) for name in experiments
    )


def _variant(ending: str, letter: str = "R") -> tuple[Swap, ...]:
    """Another rule for places; only Table 1 and, with fewer clusters, Figure 7 have been run with it."""
    run_with = (TABLE_1, ABLATION[0]) if ending else (TABLE_1,)
    methods = {hcsfed(gc): f"HCSFed-{letter} ({gc}){ending}" for gc in GCS}
    return (
        *(Swap(name, methods=methods) for name in run_with),
        *(
            Swap(name, methods={hcsfed(gc): f"{hcsfed(gc)}, not run" for gc in GCS})
            for name in (ABLATION[0], *FIGURE_3)
            if name not in run_with
        ),
        *_absent(SWEPT, "alpha = 0.01"),
        *(_absent(("hcsfed_updates",), "alpha = 0.01") if ending else ()),
    )


def _compression(gc: str) -> tuple[Swap, ...]:
    parts = ("+cluster", "+cluster+re-allocation", "+cluster+importance")
    swept = [f"H = {H}" for H in HS] + [f"R = {R}" for R in RATES[:-1]]
    return (
        *(Swap(name, methods={"HCSFed": hcsfed(gc)}) for name in (TABLE_1, ABLATION[0], *FIGURE_3)),
        Swap(ABLATION[0], methods={part: f"{part} ({gc})" for part in parts}),
        *(Swap(name, methods={method: f"{gc}, {method}" for method in swept}) for name in SWEPT),
        Swap("hcsfed_updates", methods={"compressed": gc}),
    )


ATTRITION = (
    *(
        Swap(name, methods={m: f"{m}, attrition" for m in ("Random", "SCAFFOLD")})
        for name in (TABLE_1, *FIGURE_3)
    ),
    Swap(ABLATION[0], methods={m: f"{m}, attrition" for m in ("FedAvg", "SCAFFOLD")}),
)
CLIENTS = tuple(Swap(name, columns={"test_accuracy": "client_accuracy"}) for name in MEASURED)
OPTIONS = {
    "alpha": {"0.1": _alpha("0.1"), "0.01": (), "0.001": _alpha("0.001")},
    "learning rate": {"0.01": (), "0.05": _faster()},
    "absent clients": {"not counted": (), "keep the old model": ATTRITION},
    "accuracy": {"official test set": (), "clients' own": CLIENTS},
    "places": {
        "repaired (R), H = 10": (),
        "as printed (P), H = 10": _variant("", "P"),
        "unbiased (U), H = 10": _variant("", "U"),
        "repaired (R), H = 5": _variant(", H = 5"),
    },
    "compression": {gc: _compression(gc) for gc in GCS},
}
# Which settings the other alphas have is said by their names; at 0.01 the archived name has no alpha.
_NAMED = Swap(
    TABLE_1, settings={f"{BY_NAME[1]}{faster}": f"{COLUMNS[0]}{faster}" for faster in ("", ", lr = 0.05")}
)
# A control compares both rules for absent clients, whichever a reading takes.
_BOTH = Swap(TABLE_1, methods={PLAIN: "Random"})
SOURCES = {
    "alpha": {
        "0.1": "none is printed for MNIST and Fashion-MNIST; full participation reaches the targets with it",
        "0.01": "printed for Figures 3, 5 and 6",
        "0.001": "printed for Figure 3",
    },
    "learning rate": {"0.01": "none is printed for Table 1; Figure 3 has 0.01", "0.05": "Figure 3, CIFAR-10"},
    "absent clients": {
        "not counted": "Algorithm 2, line 15: the mean of the chosen models",
        "keep the old model": "the authors' earlier program, for random selection alone; Clustered Sampling's rule for "
        "FedAvg, whose settings the paper shares",
    },
    "accuracy": {
        "official test set": "not defined; the usual one",
        "clients' own": "the authors' earlier program, and Clustered Sampling's",
    },
    "places": {
        "repaired (R), H = 10": "the proof (equation 8) has a standard deviation; every cluster has a place; H is the "
        "largest that the paper studies",
        "as printed (P), H = 10": "equation 5 has a variance",
        "unbiased (U), H = 10": "the theory needs unbiased weights",
        "repaired (R), H = 5": "the smallest H that the paper studies, with which equation 5 can act",
    },
    "compression": {
        "GC-A": "the text has each client compress its own update",
        "GC-B": "one grouping for all clients keeps the places of what is grouped",
    },
}
READINGS = [
    replace(
        combination,
        swaps=(_NAMED, _BOTH, *combination.swaps),
        sources={choice: SOURCES[choice][it] for choice, it in combination.choices.items()},
    )
    for combination in grid(OPTIONS)
]
AS_RUN_BEFORE = "0.1; 0.01; keep the old model; clients' own; repaired (R), H = 10; GC-A"
_EARLIER = next(reading for reading in READINGS if reading.name == AS_RUN_BEFORE)
_TESTED = "600 training and 600 test samples each"
WITH_OWN_TEST = Reading(
    f"{AS_RUN_BEFORE}; {_TESTED}",
    "as its authors' earlier program runs, also its clients' data and its importance sampling, which is MD's",
    {**_EARLIER.choices, "the clients' data": _TESTED},
    {**_EARLIER.sources, "the clients' data": "the authors' earlier program"},
    (
        Swap(
            TABLE_1,
            settings={
                **{f"{column}, alpha = 0.1": f"{column}, alpha = 0.1{OWN_TEST}" for column in COLUMNS},
                **{name: f"{name}, not run" for name in (*COLUMNS, BY_NAME[2])},
            },
        ),
        *_absent(BY_ALPHA, ABLATION[1], "alpha = 0.1", "alpha = 0.001"),
        *_absent(SWEPT, "alpha = 0.01", "alpha = 0.1"),
        *(Swap(name, methods={hcsfed("GC-A"): "HCSFed, not run"}) for name in FIGURE_3),
        Swap(TABLE_1, methods={"Importance": "MD"}),
        *_EARLIER.swaps,
    ),
)
READINGS.append(WITH_OWN_TEST)
ONE_RULE = "0.1; 0.01; not counted; clients' own; repaired (R), H = 10; GC-A"
PRIMARY = Primary(
    AS_RUN_BEFORE,
    "as its authors' earlier program runs",
    (
        "The text gives neither alpha nor learning rate nor the rule for absent clients nor the accuracy of Table 1; "
        "alpha = 0.1 is the only one of its values at which full participation and random selection come within reach "
        "of the targets, and 0.01 the rate that it prints for Figure 3.",
        "The program of the same group's paper before it lets absent clients keep the old model in random selection, "
        "takes the plain mean for its own method and counts the clients' own accuracy.",
        "Places are those of the proof, with a standard deviation and one place for every cluster; each client "
        "compresses its own update, as the text says (GC-A), into H = 10 clusters, the largest number that it studies.",
    ),
    {
        "alpha": REASONS[2],
        "learning rate": REASONS[4],
        "absent clients": REASONS[4],
        "accuracy": REASONS[4],
        "places": REASONS[1],
        "compression": REASONS[0],
    },
    beside={
        ONE_RULE: "with one rule of aggregation for both",
        WITH_OWN_TEST.name: "the program, also its clients' data",
    },
    control=("hcsfed.T1.b", ONE_RULE),
)

LEFT_OPEN = [
    (
        "importance sampling",
        "the rule is not given; the ablation names it after a part of HCSFed, and after related work",
        "related work's, unbiased; the plain mean and HCSFed's part are on the pages of Table 1 and Figure 7; the "
        "authors' earlier program draws clients by their data and takes the plain mean",
    ),
    ("batch and local steps of Table 1", "not given", "50 and 50, those of Figure 3"),
    ("number of clusters and compression rate", "ranges only", "10 clusters, 10 %; Figures 4 to 6 vary them"),
    (
        "what the server knows of a client before it trains",
        "not given",
        "all clients train in every round, which is counted",
    ),
    (
        "the other hyper-parameters",
        "the text says that they follow FedProx, whose published ones are for 1,000 devices and other models",
        "those that the captions of Figures 3 and 7 print; no reading varies this",
    ),
    ("IFCA's number of models", "not given", "4"),
    ("SCAFFOLD's control variates and server step", "not given", "option II, 1"),
]
