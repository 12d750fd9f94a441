"""HiCS-FL's estimate, distances, clusters and draws against the authors' code (tests/golden/README.md, 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from fedlib.samplers.clustered_sampling import ward_tree
from fedlib.samplers.hics_fl import (
    annealed,
    cluster_means,
    cut,
    distances,
    draw_by_cluster,
    estimated_entropy,
    magnitudes,
)


def kept(case: dict[str, Any]) -> tuple[np.ndarray, str]:
    """The updates as the sampler keeps them, and what the estimate is made of."""
    bias = np.array(case["bias_updates"])
    if case["variant"] == "bias_only_paper":
        return bias, "bias"
    return np.hstack([np.array(case["weight_updates"]).reshape(len(bias), -1), bias]), "weight"


@pytest.mark.golden("hics_*.json")
def test_estimate_distance_and_clusters(case: dict[str, Any]) -> None:
    updates, of = kept(case)
    for at in case["by_temperature"]:
        magnitude = magnitudes(updates, case["n_classes"], of)
        H = estimated_entropy(magnitude, at["temperature"])
        D = distances(updates, H, case["lambda"])
        labels = cut(ward_tree(D), case["n_clusters"])
        assert np.isfinite(H).all()
        assert len(set(labels)) == case["n_clusters"]
        if at["clustering_status"] != "ok":  # the authors' softmax overflows
            continue
        np.testing.assert_allclose(magnitude, at["magnitudes"], atol=1e-12)
        np.testing.assert_allclose(H, at["estimated_entropy"], atol=1e-10)
        assert H.var() == pytest.approx(at["entropy_variance"], abs=1e-10)
        assert (H.var() < 0.1) == (at["upstream_branch"] == "hics_clusters")
        np.testing.assert_allclose(D, at["distance_matrix"], atol=1e-7)
        if at["merge_height_above_cut"] > at["merge_height_below_cut"]:
            ours = {frozenset(np.flatnonzero(labels == g).tolist()) for g in range(case["n_clusters"])}
            assert ours == {frozenset(cluster) for cluster in at["clusters"]}


def by_their_clusters(case: dict[str, Any], at: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Their labels, and the mean entropy of each of their clusters."""
    labels = np.zeros(case["n"], dtype=int)
    for g, cluster in enumerate(at["clusters"]):
        labels[cluster] = g
    return labels, cluster_means(np.array(at["estimated_entropy"]), labels)


@pytest.mark.golden("hics_*.json")
def test_cluster_probabilities(case: dict[str, Any]) -> None:
    for at in case["by_temperature"]:
        if at["clustering_status"] == "ok":
            _, average = by_their_clusters(case, at)
            np.testing.assert_allclose(average, at["cluster_average_entropy"], atol=1e-10)
            for row in at["cluster_probabilities"]:
                gamma = row["gamma"] * annealed(row["epoch"], case["rounds_total"])
                assert gamma == pytest.approx(row["annealed_gamma"], abs=1e-12)
                np.testing.assert_allclose(softmax(gamma * average), row["p_cluster"], atol=1e-10)


@pytest.mark.golden("hics_*.json")
def test_draws_use_the_same_clusters_as_theirs(case: dict[str, Any]) -> None:
    """Theirs: K distinct clients, counts by cluster. Ours, over many seeds: the first cluster drawn has their law."""
    K = case["n_sampled"]
    for at in case["by_temperature"]:
        if at["clustering_status"] != "ok":
            continue
        labels, average = by_their_clusters(case, at)
        for theirs in at["draws"]:
            if theirs["status"] == "ok":
                counts = np.bincount(labels[theirs["selected"]], minlength=case["n_clusters"])
                assert counts.tolist() == theirs["per_cluster_counts"]
        log_pi = np.log(softmax(4 * average))
        once = np.zeros(case["n_clusters"])
        for seed in range(200):
            rng = np.random.default_rng(seed)
            chosen = draw_by_cluster(rng, log_pi, labels, K)
            assert len(set(chosen.tolist())) == K
            once[labels[draw_by_cluster(rng, log_pi, labels, 1)[0]]] += 1 / 200
        np.testing.assert_allclose(once, np.exp(log_pi), atol=0.16)
