"""The claims of Power-of-Choice (Cho et al., AISTATS 2022).

The paper shows curves; numbers are printed only in its abstract ("up to 3 times faster", "10 % higher test accuracy"),
which name no setting. So the claims are about order, and no cell has a printed size. Targets are ours: a training loss
of 0.3 on Synthetic(1, 1), which random selection reached between rounds 100 and 200 in one seed that is not judged
(100), and 60 % test accuracy on Fashion-MNIST.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from fedlib.measure import area, end_mean
from workspace.analysis.claim import ROUNDS, Cell, Labels, Level, Measurement, Rounds, claim_on, versus
from workspace.analysis.readings import Where

claim = partial(claim_on, "poc", "power_of_choice")
TWO, FIVE, TEN = "pow-d, d = 2m", "pow-d, d = 5m", "pow-d, d = 10m"
PLACES = ("m = 1", "m = 2", "m = 3")
ALPHAS = ("alpha = 2", "alpha = 0.3")

# -- Figure 2


def early(rows: pd.DataFrame) -> float:
    """Mean gap over the first 100 rounds."""
    return float(rows.loc[rows["round"].between(1, 100), "gap"].mean())


def floor(rows: pd.DataFrame) -> float:
    """Mean gap over the last tenth of the rounds."""
    return float(rows.loc[rows["round"] > 0.9 * rows["round"].max(), "gap"].mean())


def quadratic(larger: str, smaller: str) -> Cell:
    a, b = (Where("poc_quadratic", "", method, "gap") for method in (larger, smaller))
    return versus(f"{larger} and {smaller}", a, b, data="quadratic", participation="m = 3 of 30")


EARLY, FLOOR = (Measurement("method", f, "times", log=True) for f in (early, floor))
IN_FIGURE_2 = [
    claim("F2.a", "On quadratic clients Power-of-Choice lowers the global loss faster than random selection, and the "
          "more candidates the faster (mean gap over the first 100 rounds).", "core", EARLY,
          [quadratic("Random", TWO), quadratic(TWO, TEN)]),
    claim("F2.b", "On quadratic clients the error floor rises with the number of candidates.", "core", FLOOR,
          [quadratic(TWO, "Random"), quadratic(TEN, TWO)]),
]  # fmt: skip

# -- Figure 3


def labels(setting: str) -> Labels:
    return {"data": "Synthetic(1, 1)", "participation": f"{setting} of 30"}


def synthetic(larger: str, smaller: str) -> list[Cell]:
    """Two methods' training losses, in every setting."""
    cells = []
    for setting in PLACES:
        a, b = (Where("poc_synthetic", setting, method, "train_loss") for method in (larger, smaller))
        cells.append(versus(f"{setting}, {larger} and {smaller}", a, b, **labels(setting)))
    return cells


TO_LOSS = Rounds(0.3, T=800)
FIRST, END = Level(area, "times", log=True, until=100), Level(end_mean, "times", log=True)
IN_FIGURE_3 = [
    claim("F3.a", "On Synthetic(1, 1) Power-of-Choice needs fewer rounds to a training loss of 0.3 than random "
          "selection, with two and with ten times as many candidates as places.", "core", TO_LOSS,
          [*synthetic("Random", TWO), *synthetic("Random", TEN)], ROUNDS),
    claim("F3.b", "On Synthetic(1, 1) the final training loss rises with the number of candidates: Power-of-Choice "
          "trades speed for bias.", "core", END, [*synthetic(TWO, "Random"), *synthetic(TEN, TWO)]),
    claim("F3.c", "On Synthetic(1, 1) ten times as many candidates as places lower the training loss faster at first "
          "than two times as many (mean over the first 100 rounds).", "supporting", FIRST, synthetic(TWO, TEN)),
    claim("F3.d", "The cheap variants cpow-d and rpow-d need fewer rounds to a training loss of 0.3 than random "
          "selection, too.", "core", TO_LOSS,
          [*synthetic("Random", "cpow-d, d = 2m"), *synthetic("Random", "rpow-d, d = 10m")], ROUNDS),
    claim("F3.e", "Lowering d from N to m after half of the rounds ends at a lower training loss than ten candidates "
          "for each place.", "supporting", END, synthetic(TEN, "adapow-d")),
]  # fmt: skip

# -- Figure 4


def fashion(larger: str, smaller: str) -> list[Cell]:
    """Two methods' test accuracies, with every alpha."""
    data, m = "Fashion-MNIST", "m = 3 of 100"
    cells = []
    for setting in ALPHAS:
        a, b = (Where("poc_fmnist", setting, method) for method in (larger, smaller))
        cells.append(
            versus(f"{setting}, {larger} and {smaller}", a, b, data=data, partition=setting, participation=m)
        )
    return cells


FIN = Level(end_mean, "points", 100)
TO_60 = Rounds(0.6, T=300)
IN_FIGURE_4 = [
    claim("F4.a", "On Fashion-MNIST Power-of-Choice ends at a higher test accuracy than random selection, with two "
          "and with five times as many candidates as places.", "core", FIN,
          [*fashion(TWO, "Random"), *fashion(FIVE, "Random")]),
    claim("F4.b", "On Fashion-MNIST Power-of-Choice needs fewer rounds to 60 % test accuracy than random selection.",
          "core", TO_60, [*fashion("Random", TWO), *fashion("Random", FIVE)], ROUNDS),
    claim("F4.c", "On Fashion-MNIST the cheap variants cpow-d and rpow-d end at a higher test accuracy than random "
          "selection, too.", "supporting", FIN,
          [*fashion("cpow-d, d = 2m", "Random"), *fashion("rpow-d, d = 50", "Random")]),
]  # fmt: skip

CLAIMS = (*IN_FIGURE_2, *IN_FIGURE_3, *IN_FIGURE_4)
