"""What FedCor's Table 1 comes to, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from scipy import stats

from fedlib.analysis.claims import Missing, Runs
from fedlib.analysis.headline import fewer
from fedlib.papers.fedcor.claims_curves import over_pow_d
from fedlib.papers.fedcor.printed import EXPERIMENTS

NAMES = {"FMNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10"}


def said(results: Mapping[str, pd.DataFrame]) -> str:
    """How much faster than Pow-d FedCor is on each dataset, as in its claim T1.b; what has not been run is named."""
    runs, sentences = Runs(dict(results)), []
    for data in EXPERIMENTS:
        try:
            ratios, printed = over_pow_d(runs, data)
        except Missing:
            sentences.append(f"{NAMES[data]} has not been run." if sentences else "")
            continue
        sentences.append(
            f"On {NAMES[data]} FedCor reaches the target in {fewer(stats.gmean(ratios), 'Pow-d')}, the fastest "
            f"baseline in print (geometric mean over three partitions; printed: {printed:.2f})."
        )
    return " ".join(filter(None, sentences))
