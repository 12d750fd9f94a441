"""FedCor, AFL and Power-of-Choice against numbers from the authors' programs (schema: tests/golden/README.md, 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedlib.samplers.fedcor import (
    FedCor,
    choose,
    condition,
    covariance,
    log_leave_one_out,
    log_likelihood,
    posterior,
    prior,
    retained,
    scores,
    train,
)
from fedlib.samplers.loss_based import highest, lottery


def embedding(case: dict[str, Any]) -> np.ndarray:
    """(d, N); the normalised kernel is the plain one of unit columns."""
    X = np.array(case["embedding"])
    return X / np.linalg.norm(X, axis=0) if case["normalize"] else X


def process(case: dict[str, Any], clients: list[int] | None = None):
    X = torch.tensor(embedding(case))
    mean = torch.tensor(case["prior_mean"], dtype=torch.float64)
    keep = torch.tensor(range(X.shape[1]) if clients is None else clients)
    return prior(X[:, keep], mean[keep], case["noise_std"])


def selection_inputs(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if case["kernel"] == "poly":
        Sigma = covariance(embedding(case), case["noise_std"])
    else:
        L = np.diag(case["diagonal"]).astype(float)
        L[np.tril_indices(case["N"], -1)] = case["lower"]
        Sigma = L @ L.T + case["noise_std"] ** 2 * np.eye(case["N"])
    p = np.ones(case["N"]) if case["weights"] is None else np.array(case["weights"])
    return Sigma, p, np.array(case["discount"])


@pytest.mark.golden("fedcor_select*.json")
def test_selection(case: dict[str, Any]) -> None:
    check_sequence(case) if "rounds" in case else check_selection(case)


def check_selection(case: dict[str, Any]) -> None:
    Sigma, p, alpha = selection_inputs(case)
    if "covariance" in case:
        np.testing.assert_allclose(Sigma, case["covariance"], atol=1e-12)
    else:
        np.testing.assert_allclose(Sigma.diagonal(), case["covariance_diag"], atol=1e-12)
        np.testing.assert_allclose(Sigma[0], case["covariance_row0"], atol=1e-12)
    assert choose(Sigma, p, alpha, case["C"]).tolist() == case["selected_f64"]
    for step in case["steps"]:
        score = scores(Sigma, p, alpha)
        assert score[step["selected"]] == pytest.approx(step["best_score"], rel=1e-5)
        if "scores" in step:
            scale = np.abs(step["scores"]).max()
            np.testing.assert_allclose(
                score[step["candidates"]], step["scores"], rtol=1e-5, atol=1e-5 * scale
            )
        Sigma = condition(Sigma, step["selected"])
        assert Sigma.trace() == pytest.approx(step["posterior_variance_sum"], rel=1e-9, abs=1e-12)
        assert Sigma.sum() == pytest.approx(step["posterior_total_sum"], rel=1e-9, abs=1e-11)
        if "posterior_covariance" in step:
            np.testing.assert_allclose(Sigma, step["posterior_covariance"], atol=1e-12)


def check_sequence(case: dict[str, Any]) -> None:
    Sigma = covariance(np.array(case["embedding"]), case["noise_std"])
    alpha, p = np.ones(case["N"]), np.array(case["weights"])
    for round in case["rounds"]:
        chosen = choose(Sigma, p, alpha, case["C"])
        assert chosen.tolist() == round["selected"]
        alpha[chosen] *= case["beta"]
        np.testing.assert_allclose(alpha, round["discount_after"], rtol=1e-6)


@pytest.mark.golden("fedcor_posterior*.json")
def test_posterior(case: dict[str, Any]) -> None:
    values = torch.tensor(case["observed_value"], dtype=torch.float64)
    after = posterior(process(case), torch.tensor(case["observed_index"]), values)
    Sigma = after.lazy_covariance_matrix.to_dense().numpy()
    np.testing.assert_allclose(after.mean.numpy(), case["posterior_mean_f64"], atol=1e-9)
    if "posterior_covariance_f64" in case:
        np.testing.assert_allclose(Sigma, case["posterior_covariance_f64"], atol=1e-9)
    else:
        np.testing.assert_allclose(Sigma.diagonal(), case["posterior_covariance_diag_f64"], atol=1e-9)
        np.testing.assert_allclose(Sigma[0], case["posterior_covariance_row0_f64"], atol=1e-9)


@pytest.mark.golden("fedcor_likelihood*.json")
def test_likelihoods(case: dict[str, Any]) -> None:
    """Samples may be of a subset of the clients; upstream's leave-one-out sum stops at as many as there are samples."""
    S = len(case["samples"])
    mml, loo, upstream = [], 0.0, 0.0
    for sample in case["samples"]:
        at, values = process(case, sample["index"]), torch.tensor([sample["value"]], dtype=torch.float64)
        mml.append(float(log_likelihood(at, values)))
        loo += float(log_leave_one_out(at, values, clients=len(sample["index"])))
        upstream += float(log_leave_one_out(at, values, clients=S))
    assert mml == pytest.approx(case["log_marginal_likelihood_per_sample_f64"], rel=1e-9)
    assert sum(mml) == pytest.approx(case["log_marginal_likelihood_f64"], rel=1e-9)
    assert loo == pytest.approx(case["loo_all_clients_derived_f64"], rel=1e-9)
    assert upstream == pytest.approx(case["loo_upstream_f64"], rel=1e-9)


@pytest.mark.golden("fedcor_training*.json")
def test_training(case: dict[str, Any]) -> None:
    """Schedule "head": retention, weights, mean and Adam's path."""
    sampler = FedCor(schedule="head", window=case["reusable_history_length"], gamma=case["gamma"])
    epochs, values = np.array(case["epochs"]), np.array(case["values"])
    keep, weights = retained(epochs, epochs[-1], sampler)
    assert epochs[keep].tolist() == case["retained_epochs"]
    np.testing.assert_allclose(weights, case["sample_weight_of_retained_epochs"], rtol=1e-12)
    mean = weights @ values[keep] / weights.sum()
    np.testing.assert_allclose(mean, case["mean_if_update_mean"], atol=2e-7)
    mean = mean if case["update_mean"] else np.zeros(case["N"])
    for stage in case["training"]:
        np.testing.assert_allclose(mean, stage["mean_after"], atol=2e-7)
        X, objective = train(
            np.array(case["embedding"]), values[keep], weights, mean, case["noise_std"], stage["iterations"]
        )
        np.testing.assert_allclose(X, stage["embedding_after"], atol=1e-6)
        assert objective == pytest.approx(stage["loss_returned"], rel=1e-6, abs=1e-6)
        if stage["iterations"] == 1:
            assert objective == pytest.approx(case["objective_at_start"], rel=1e-9)


@pytest.mark.golden("fedcor_afl*.json")
def test_afl(case: dict[str, Any]) -> None:
    v = np.sqrt(case["n_samples"]) * np.array(case["losses"])
    np.testing.assert_allclose(v, case["valuation"], rtol=1e-12)
    draw = lottery(v, case["m"], case["alpha1"], case["alpha2"], case["alpha3"])
    assert case["N"] - len(draw.candidates) == case["delete_num"]
    assert draw.sel_num == min(case["sel_num"], len(draw.candidates))
    np.testing.assert_allclose(v[draw.candidates], v[case["candidates"]], rtol=1e-12)
    if not case["has_tied_valuations"]:
        assert draw.candidates.tolist() == case["candidates"]
    assert np.isfinite(draw.probabilities).all()
    assert draw.probabilities.sum() == pytest.approx(1)
    if all(isinstance(value, float) for value in case["probabilities"]):
        np.testing.assert_allclose(draw.probabilities, case["probabilities"], atol=1e-12)
    if "update" in case:
        update = case["update"]
        chosen = update["selected"]
        v[chosen] = np.sqrt(case["n_samples"])[chosen] * update["losses_of_selected_at_received_model"]
        np.testing.assert_allclose(v, update["valuation_after"], rtol=1e-12)


@pytest.mark.golden("fedcor_powd*.json")
def test_power_of_choice(case: dict[str, Any]) -> None:
    losses = np.array(case["losses"])
    for run in case["runs"]:
        A = np.array(run["candidates"])
        ours = highest(A, losses[A], case["m"])
        assert sorted(losses[ours]) == sorted(losses[run["selected"]])
        if not case["has_tied_losses"]:
            assert set(ours.tolist()) == set(run["selected"])
