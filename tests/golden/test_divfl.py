"""DivFL's distances and greedy choices against HiCS-FL's code of it (tests/golden/README.md, 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlib.samplers.divfl import best_of, distances, lazy_greedy


def objective(D: np.ndarray, chosen: list[int] | np.ndarray) -> float:
    return float(D[:, np.asarray(chosen)].min(axis=1).sum())


@pytest.mark.golden("divfl*.json")
def test_distances(case: dict[str, Any]) -> None:
    if "gradients" not in case:
        assert np.array(case["distance_matrix"]).shape == (case["n"], case["n"])
        return
    G = np.array([np.concatenate([np.ravel(layer) for layer in client]) for client in case["gradients"]])
    np.testing.assert_allclose(distances(G), case["distance_matrix"], atol=1e-10)


@pytest.mark.golden("divfl*.json")
def test_lazy_greedy(case: dict[str, Any]) -> None:
    """The same order where it is unique; else every step no worse than any other client."""
    D, theirs = np.array(case["distance_matrix"], dtype=float), case["greedy"]
    ours = lazy_greedy(D, case["k"])
    assert len(set(ours.tolist())) == case["k"]
    for i, k in enumerate(ours):
        others = np.setdiff1d(np.arange(case["n"]), ours[:i])
        best = min(objective(D, [*ours[:i], other]) for other in others)
        assert objective(D, [*ours[:i], k]) <= best + 1e-9
    if theirs["status"] == "ok" and theirs["unique"]:
        assert ours.tolist() == theirs["order"]
        assert objective(D, ours) == pytest.approx(theirs["objective"], abs=1e-10)
        for i, step in enumerate(theirs["steps"]):
            assert objective(D, ours[: i + 1]) == pytest.approx(step["objective_after"], abs=1e-10)


@pytest.mark.golden("divfl*.json")
def test_steps_of_stochastic_greedy(case: dict[str, Any]) -> None:
    """Given their random subsets, each of our steps is theirs unless candidates tie."""
    D = np.array(case["distance_matrix"], dtype=float)
    for run in case["stochastic_greedy"]:
        nearest = np.full(case["n"], np.inf)
        assert run["candidate_subset_size"] == max(case["k"], case["n"] // 10)
        for candidates, k in zip(run["candidates"], run["order"], strict=True):
            ours, _ = best_of(D, nearest, np.sort(candidates))
            if run["exact_output_portable"] and (run["min_relative_gap"] or 0) > 1e-9:
                assert ours == k
            reached = np.minimum(nearest, D[ours]).sum()
            nearest = np.minimum(nearest, D[k])
            assert reached == pytest.approx(nearest.sum(), abs=1e-9)
        assert nearest.sum() == pytest.approx(run["objective"], abs=1e-10)
