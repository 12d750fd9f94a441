"""What HiCS-FL's Table 1 comes to, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Runs
from fedlib.analysis.headline import fewer, middle, of_seeds
from fedlib.analysis.readings import named
from fedlib.papers.hics_fl.headline import HEADLINE

RANDOM = "random selection"


def said(results: Mapping[str, pd.DataFrame]) -> str:
    """HiCS-FL's rounds against random selection's on Fashion-MNIST, as written and as its authors' program runs."""
    runs, effect = Runs(dict(results)), HEADLINE.effects[0]
    (written, n), (run, m) = (middle(effect, reading, runs) for reading in named("hics_fl"))
    if np.isnan(written):
        return ""
    lead = "" if written > 1 else "HiCS-FL fails as written: "
    text = (
        f"{lead}on Fashion-MNIST it needs {fewer(written, RANDOM)} to the target ({of_seeds(n)}; printed: "
        f"{effect.printed:.2f} times fewer)."
    )
    text = text if lead else f"HiCS-FL holds as written: {text}"
    if not np.isnan(run):
        text += f" As its authors' program runs, it needs {fewer(run, RANDOM)} ({of_seeds(m)})."
    return text
