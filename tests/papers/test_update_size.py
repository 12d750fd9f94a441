"""Which clients an estimate of the entropy prefers, and whom HiCS-FL then draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedlib.measure import Missing
from workspace.papers.hics_fl.update_size import balanced_draws, by_size


def test_at_a_high_temperature_short_updates_of_one_label_score_as_balanced_ones_do() -> None:
    scale = np.array([0.001, 0.004, 0.02, 0.03])  # one label each, learned ever less
    bias = [*(s * np.eye(10)[k] for k, s in enumerate(scale)), 0.003 * np.repeat([1.0, 0.0], 5)]
    clients = pd.DataFrame({"bias": bias, "entropy": [0.0] * 4 + [2.0], "group": [0, 0, 1, 1, 4]})
    updates = clients.assign(data="FMNIST (b)", when="warm-up", seed=0)
    found = by_size(updates, "FMNIST (b)", [0.0025, 0.0001]).set_index("T_s")
    assert (found["Spearman with the update's size"] == -1).all()
    assert found["one-label clients above it"].tolist() == [1, 0]
    assert found["one-label clients"].tolist() == [4, 4]


def test_the_share_of_balanced_clients_drawn_is_counted_by_window_on_shared_seeds() -> None:
    owners = pd.DataFrame(
        {"client": range(10), "group": [0] * 8 + [4] * 2, "data": "FMNIST", "setting": "(2)"}
    )
    owners = pd.concat([owners.assign(seed=s) for s in (0, 1)])
    rows = [
        {"method": m, "seed": s, "round": t, "clients": np.array([8, 9] if m == "A" and t > 25 else [0, 8])}
        for m, seeds in (("A", (0,)), ("B", (0, 1)))
        for s in seeds
        for t in range(1, 101)
    ]
    runs = pd.DataFrame(rows).assign(setting="(2)")
    found = balanced_draws(runs, owners, "FMNIST", "(2)", {"A": "a", "B": "b"})
    assert found.index.tolist() == [("a", 0), ("b", 0)]
    assert found.loc[("a", 0)].tolist() == [0.5, 1.0, 1.0, 0.2]
    assert found.loc[("b", 0)].tolist() == [0.5, 0.5, 0.5, 0.2]
    with pytest.raises(Missing, match="no seed"):
        balanced_draws(runs, owners, "FMNIST", "(2)", {"A": "a", "C": "c"})
