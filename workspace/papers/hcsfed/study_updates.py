"""HCSFed, Figure 2: all clients' updates, raw and compressed, in the clusters that k-means finds.

Every client trains from the run's model after some rounds. Its update is compressed in both readings of the paper
(`fedlib.samplers.hcsfed`) and clustered as in the sampler. The figure's axes are the two components of the updates, or
the two centres, that vary most over the clients; next to them is the plane of the first two principal components.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from fedlib.runs.measuring import Halfway, everyone, start
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit, units_of
from fedlib.samplers.base import Count, Whole
from fedlib.samplers.hcsfed import compress, deviations, kmeans
from fedlib.samplers.importance import norms
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from fedlib.settings.sections import Study
from fedlib.streams import stream


class UpdatesKeys(Study):
    """after: numbers of rounds after which to look. H: number of clusters. R: compression rate."""

    after: list[Whole]
    H: Count
    R: Annotated[float, Field(gt=0, le=1)]


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """settings: `after`, numbers of rounds after which to look; `H` clusters; `R` compression rate."""
    return units_of(settings, experiments, scale, "after", "H", "R")


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per (round, features, client), with the columns of `describe`."""
    lockstep = start(unit["run"], place)
    live = lockstep.live[0]
    tables = []
    for rounds in unit["after"]:
        while live.t < rounds:
            lockstep.advance()
        G = lockstep.train(everyone(lockstep, live), "probe").updates.cpu().numpy()
        dominant = live.fed.label_counts.argmax(axis=1)
        for name, rate, gc in (("raw", 1.0, "A"), ("GC-A", unit["R"], "A"), ("GC-B", unit["R"], "B")):
            rng = stream(live.run.seed, "probe", live.t, 1)
            features = describe(compress(G, rate, gc), dominant, min(unit["H"], live.fed.N), rng)
            tables.append(features.assign(round=rounds, features=name, update_norm=norms(G)))
    return pd.concat(tables, ignore_index=True)


def describe(X: np.ndarray, dominant: np.ndarray, H: int, rng: np.random.Generator) -> pd.DataFrame:
    """Clusters of features X (N, d') of clients with dominant labels `held` (N,); one row per client.

    Columns: client, label, cluster, norm; sigma: deviation of the client's cluster; ari: agreement of clusters and
    labels; silhouette (nan for a single cluster); component_1, component_2; principal_1, principal_2.
    """
    labels = kmeans(X, H, rng)
    several = 1 < len(np.unique(labels)) < len(X)
    varied = np.sort(np.argsort(X.var(axis=0))[-2:])
    u, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return pd.DataFrame(
        {
            "client": np.arange(len(X)),
            "label": dominant,
            "cluster": labels,
            "norm": norms(X),
            "sigma": deviations(X, labels, H)[labels],
            "ari": adjusted_rand_score(dominant, labels),
            "silhouette": silhouette_samples(X, labels) if several else np.nan,
            "component_1": X[:, varied[0]],
            "component_2": X[:, varied[1]],
            "principal_1": u[:, 0] * s[0],
            "principal_2": u[:, 1] * s[1],
        }
    )
