"""Label counts of the clients before training (HiCS-FL's Figures 7 and 8; FedCor's Figure 7).

The partitions are those of the experiments. All methods of one seed share a partition, so each is made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fedlib.data import datasets, partition
from fedlib.runs.measuring import Halfway
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit, units_of
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Run, Scale


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    digests = set()
    for unit in units_of(settings, experiments, scale):
        place = tuple(unit["labels"][key] for key in ("data", "setting", "seed"))
        if place not in digests:
            digests.add(place)
            yield unit | {"labels": unit["labels"] | {"method": ""}}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per client: client, group (of HiCS-FL's alphas, else 0), size, entropy (nats), counts (K,)."""
    run = Run(**unit["run"])
    dataset = datasets.load(run.dataset, place.datasets)
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
