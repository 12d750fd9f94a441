"""Who owns what: samples by client and label, before any training (HiCS-FL's Figures 7 and 8; FedCor's Figure 7).

The partitions are the experiments' own; all methods of one seed share them, so each is made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fedlib import data, partition
from fedlib.config import Run, Scale
from fedlib.parallel import Place
from fedlib.params import Experiments
from fedlib.studies import Unit, runs_of
from fedlib.studies.halfway import Halfway


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    seen = set()
    for labels, run in runs_of(settings, experiments, scale):
        place = labels["data"], labels["setting"], labels["seed"]
        if place not in seen:
            seen.add(place)
            yield {"labels": {**labels, "method": ""}, "dataset": run["dataset"], "run": run}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row a client: client, group (of HiCS-FL's alphas, else 0), size, entropy (nats), counts (K,)."""
    run = Run(**unit["run"])
    dataset = data.load(run.dataset, place.datasets)
    parts = partition.make(run.partition, dataset, run.N, run.seed, run.holdout)
    return pd.DataFrame(
        {
            "client": np.arange(run.N),
            "group": 0 if parts.group is None else parts.group,
            "size": parts.sizes,
            "entropy": parts.label_entropy,
            "counts": parts.labels.tolist(),
        }
    )
