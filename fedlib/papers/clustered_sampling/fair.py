"""Laws from Clustered Sampling's printed numbers, by which its rules are tested (`fedlib/analysis/fairness.py`).

The paper prints no loss and no accuracy; what it prints about the draws follows from the way clients are drawn.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import BEFORE, PAPER, Law
from fedlib.papers.clustered_sampling.book import ALG1, ALG2, FIRST, MD, TARGET

SEEDS, T, N, m = 5, 200, 100, 10


def draws(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """The clients drawn in Figure 1's 200 rounds: each holds one digit, ten share a digit, ids are random."""
    runs, owners = [], []
    for seed in range(SEEDS):
        digit = rng.permutation(N) // (N // 10)
        of_digit = np.stack([np.flatnonzero(digit == k) for k in range(10)])
        strata = rng.permutation(N).reshape(m, N // m)
        pick = np.arange(m)
        for t in range(1, T + 1):
            found = of_digit[pick, rng.integers(N // 10, size=m)]
            drawn = {
                MD: rng.integers(N, size=m),
                TARGET: found,
                ALG1: strata[pick, rng.integers(N // m, size=m)],
                ALG2: found if t > 5 else rng.permutation(N)[:m],  # in its first rounds it knows no digit
            }
            runs += [(method, seed, t, clients) for method, clients in drawn.items()]
        owners += [(seed, k, np.eye(10, dtype=int)[digit[k]]) for k in range(N)]
    table = pd.DataFrame(runs, columns=["method", "seed", "round", "clients"])
    clients = pd.DataFrame(owners, columns=["seed", "client", "counts"])
    return {
        FIRST[0]: table.assign(experiment=FIRST[0], setting=FIRST[1], diverged=False),
        "cs_partitions": clients.assign(data=FIRST[0], setting=FIRST[1], method=""),
    }


NO_LAW = dict.fromkeys(("cs.F5.a", "cs.F5.b"), "the numbers are settings: nothing is printed of the outcome")

LAWS = [
    Law(
        "Figure 1: clients of 200 rounds and five seeds, drawn as each sampler draws",
        {f"cs.F1.{part}": BEFORE for part in "efgi"} | {"cs.F1.h": PAPER},
        draws,
        draws=20,
    )
]
