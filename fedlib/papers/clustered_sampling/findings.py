"""What Clustered Sampling's Figure 1 comes to, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Runs
from fedlib.analysis.headline import middle, of_seeds
from fedlib.analysis.readings import named
from fedlib.papers.clustered_sampling.headline import HEADLINE


def said(results: Mapping[str, pd.DataFrame]) -> str:
    """How much lower than MD sampling's the training loss of the two algorithms is."""
    runs = Runs(dict(results))
    (first, _), (second, n) = (
        middle(effect, named("clustered_sampling")[0], runs) for effect in HEADLINE.effects
    )
    if np.isnan(first) or np.isnan(second):
        return ""
    way = "lower" if second > 0 else "higher"
    return (
        f"With one digit of MNIST a client, the training loss of Algorithm 2 is {abs(second):.2f} nats {way} than that "
        f"of MD sampling (mean over 200 rounds; {of_seeds(n)}).\n\n"
        f"That of Algorithm 1 is {abs(first):.2f} nats {'lower' if first > 0 else 'higher'}."
    )
