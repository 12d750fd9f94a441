"""FedCor's readings."""

from __future__ import annotations

from collections.abc import Mapping

from workspace.analysis.readings import AS_WRITTEN, REASONS, Primary, Reading, Swap
from workspace.papers.fedcor.printed import EXPERIMENTS

SCHEDULE, CANDIDATES, RUN, TOY = (
    "how the Gaussian process is trained",
    "how many candidates Pow-d asks",
    "along which run the loss changes are measured",
    "the toy of Figure 1",
)
_TEXT = "in every round of the warm-up, from its first"
_CORRECTED = (
    "the paper's text; the authors' correction of 2022-11-16 (commit 30adb2f) of the code of 2022, whose gpr_begin "
    "it puts from 10 to 0; the newest two samples, gamma 0.8 and 0.97, from that code, where the text is silent"
)


def _instead(methods: Mapping[str, str], settings: Mapping[str, str] | None = None) -> tuple[Swap, ...]:
    """Methods of the experiments of variants for those of Figure 4 and Table 1, on both datasets."""
    return tuple(
        Swap(name, settings or {}, methods, source=f"{name}_variants") for name in EXPERIMENTS.values()
    )


READINGS = [
    Reading(
        AS_WRITTEN,
        "the paper's text; where it is silent, the code of 2022 as its authors corrected it",
        {
            SCHEDULE: _TEXT,
            CANDIDATES: "twice C: 10, and 20 in 1SPC",
            RUN: "uniformly random selection",
            TOY: "gap 4, rate 1",
        },
        {
            SCHEDULE: _CORRECTED,
            CANDIDATES: "the text defines Pow-d with d > C",
            RUN: "not stated",
            TOY: "not stated",
        },
    ),
    Reading(
        "30adb2f",
        "the authors' program of 2022 with their correction: in 1SPC its Pow-d asks as many as it selects",
        {SCHEDULE: _TEXT, CANDIDATES: "10, in 1SPC too"},
        {SCHEDULE: _CORRECTED, CANDIDATES: "every command of the README"},
        _instead({"Pow-d": "Pow-d, d = 10"}, {"1SPC": "1SPC"}),
        "30adb2f",
    ),
    Reading(
        "gpr_begin = 10",
        "the program of 2022 before the authors' correction: nothing is learned from the first ten rounds",
        {SCHEDULE: "from the eleventh round of the warm-up on"},
        {SCHEDULE: "the code of 2022, its default"},
        _instead({"FedCor": "FedCor, gpr_begin = 10"}),
        "a89bd66",
    ),
    Reading(
        "README of 2023",
        "the schedule of the authors' README of 2023",
        {
            SCHEDULE: "once at the end of the warm-up, on a window of 100 (CIFAR-10: 500) rounds, with a trained mean"
        },
        {SCHEDULE: "the README of 2023"},
        _instead({"FedCor": "FedCor, README of 2023"}),
        "d941083",
    ),
    Reading(
        "Pow-d, d = 20",
        "Pow-d asks 20 candidates everywhere",
        {CANDIDATES: "20"},
        {CANDIDATES: "twice the clients of 1SPC, in the other settings too"},
        _instead({"Pow-d": "Pow-d, d = 20"}),
    ),
    Reading(
        "Pow-d, d = 30",
        "Pow-d asks 30 candidates everywhere",
        {CANDIDATES: "30"},
        {CANDIDATES: "the program's default where a command names none"},
        _instead({"Pow-d": "Pow-d, d = 30"}),
    ),
    Reading(
        "along FedCor's own run",
        "the loss changes of Figures 2 and 3 are measured along FedCor's run",
        {RUN: "FedCor's own"},
        {RUN: "not stated"},
        (Swap("fedcor_loss_changes", methods={"Random": "FedCor"}),),
    ),
    *(
        Reading(
            f"toy: {toy}",
            f"Figure 1 with a {toy.replace(', ', ' and a learning ')}",
            {TOY: toy},
            {TOY: "not stated"},
            (Swap("fedcor_toy", settings={"gap 4, rate 1": toy}),),
        )
        for toy in ("gap 2, rate 1", "gap 4, rate 10", "gap 2, rate 10")
    ),
]

PRIMARY = Primary(
    AS_WRITTEN,
    AS_WRITTEN,
    (
        "The text fixes the methods, the settings and that the Gaussian process is trained from the first round of the "
        "warm-up on, which the authors' correction of their program confirms.",
        "Where it is silent on the window and the discount of that training, the corrected program is followed, and so "
        "it is for Pow-d's candidates: ten where five clients train, and twice as many as train where ten do, as the "
        "text asks for more candidates than clients.",
        "How many candidates Pow-d asks is the one choice that moves the comparison with it, so d = 20 in all settings "
        "is shown beside it.",
    ),
    {SCHEDULE: REASONS[0], CANDIDATES: REASONS[3], RUN: REASONS[6], TOY: REASONS[6]},
    beside={"Pow-d, d = 20": "Pow-d asks 20 candidates", "30adb2f": "the authors' program (30adb2f)"},
)

LEFT_OPEN = [
    (
        "the size of the toy of Figure 1",
        "one draw is shown, sizes are not stated",
        "two Gaussians of 20 points; their distance and the learning rate are readings",
    ),
    ("AFL's alphas", "the code: 0.75, 0.01, 0.1", "the code's"),
    ("a fifth of each client's data held out", "the code only", "held out"),
    ("standard deviation over seeds", "of the sample or not: not stated", "of the sample (n - 1)"),
]
