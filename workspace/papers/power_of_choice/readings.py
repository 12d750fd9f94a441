"""The readings of Power-of-Choice. Its settings stand in `params.yaml`; what is not printed there is said here."""

from __future__ import annotations

from workspace.analysis.readings import AS_WRITTEN, REASONS, Primary, Reading, Swap

RANDOM = "random selection"
READINGS = [
    Reading(
        AS_WRITTEN,
        "random selection draws with replacement, each time by p_k",
        {RANDOM: "with replacement"},
        {RANDOM: "from memory: only so is the selection skew 1 at every model"},
    ),
    Reading(
        "random without replacement",
        "random selection is Power-of-Choice with d = m",
        {RANDOM: "without replacement"},
        {RANDOM: "from memory: Algorithm 1 draws its candidates so"},
        (Swap("poc_synthetic", methods={"Random": "pow-d, d = m"}),),
    ),
]
PRIMARY = Primary(
    AS_WRITTEN,
    AS_WRITTEN,
    (
        "The paper, as we remember it, defines unbiased selection by draws in proportion to p_k.",
        "With replacement its skew is 1, as the theory has it.",
        "Random selection without replacement is shown beside it where it was run.",
    ),
    {RANDOM: REASONS[0]},
    beside={"random without replacement": "random selection is Power-of-Choice with d = m"},
)
LEFT_OPEN = [
    (
        "learning rate of the quadratic clients",
        "2e-5 for many thousand rounds (from memory)",
        "0.001 for 1,500 rounds: the same path in fewer",
    ),
    (
        "the draw of Synthetic(1, 1)",
        "Li et al. (2020); no seed",
        "one fixed draw; a tenth of each client for tests",
    ),
    ("the loss to be reached", "curves, no number", "0.3, set from one seed that is not judged"),
    (
        "partition of Fashion-MNIST",
        "Dir(alpha), sizes not said",
        "shares ~ Dir(alpha times the prior), unequal sizes",
    ),
    ("learning rate on Fashion-MNIST", "0.005 (from memory); another public program has 0.001", "0.005"),
    ("dropout in the network", "not mentioned", "none"),
    ("rounds on Fashion-MNIST", "curves; the rate halves at 150 and 300", "300"),
    ("candidates of the cheap variants", "differ by figure", "cpow-d 2m, rpow-d 10m; 50 on Fashion-MNIST"),
    ("when adapow-d lowers d", "gradually", "from N to m after half of the rounds"),
]
