"""What the theory notebooks compute, at a few points known by hand or from the papers' specifications."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlib.samplers.fedcor import choose
from workspace.papers.fedcor import theory as theory_gp
from workspace.papers.hics_fl import theory as theory_hics


def test_lemma_2_and_the_closed_form_are_algorithm_1() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        problem = theory_gp.random_problem(rng)
        assert theory_gp.algorithm_1(problem, 2) == theory_gp.lemma_2(problem)
        ours = choose(problem.Sigma, problem.p, problem.alpha, 5)
        assert theory_gp.algorithm_1(problem, 5) == ours.tolist()


def test_recovery_of_perfect_and_of_opposite_embeddings() -> None:
    group = np.array([0, 0, 1, 1])
    assert theory_gp.recovery(np.array([[1.0, 2, 0, 0], [0, 0, 1, 3]]), group) == (1.0, 1.0)
    cosine, found = theory_gp.recovery(np.array([[1.0, 0, 2, 0], [0, 1, 0, 2]]), group)
    assert (cosine, found) == (0.0, 0.0)


def test_bound_of_theorem_1_by_hand() -> None:
    """Uniform against one label, C = 10: |D_k - U|^2 = 0.9, so the bound is 0.0045 kappa^2; false at kappa = 25."""
    uniform, single = np.full(10, 0.1), np.eye(10)[0]
    left, right = theory_hics.theorem_1(uniform, single, 15, with_ln_C=True)
    assert right == pytest.approx(0.0045 * 15**2)
    assert left == pytest.approx(np.log(10), abs=1e-4)
    left, right = theory_hics.theorem_1(uniform, single, 25, with_ln_C=False)
    assert left < right


def test_equation_4_is_autograds_gradient() -> None:
    rng = np.random.default_rng(0)
    auto, printed = theory_hics.bias_gradients(rng.normal(size=(20, 10)), rng.integers(0, 10, 20))
    np.testing.assert_allclose(auto, printed, atol=1e-12)


def test_equation_6_is_exact_for_constant_outputs() -> None:
    s = np.tile(np.random.default_rng(0).dirichlet(np.ones(4)), (12, 1))
    exact, printed = theory_hics.expected_update(s, np.repeat([0, 1, 2, 3], [1, 2, 3, 6]))
    np.testing.assert_allclose(exact, printed, atol=1e-12)


def test_displacements_equal_their_formulas() -> None:
    moved = theory_hics.displacements(0.1, 0.5, 8)
    np.testing.assert_allclose(moved["FedProx, FedDyn"], moved["FedProx by formula"])
    np.testing.assert_allclose(moved["dampened momentum"], moved["by formula"])
    np.testing.assert_allclose(moved["PyTorch's momentum"], moved["its formula"])


def test_sgd_moves_the_bias_by_the_batches_gradients() -> None:
    """Equation 5 without its division by the number of batches."""
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(45, 64)), dtype=torch.float32), torch.tensor(rng.integers(0, 10, 45))
    _, layer = theory_hics.trained(theory_hics.network(0), x, y, lr=0.1, epochs=2, batch=10)
    np.testing.assert_allclose(layer.bias, -0.1 * layer.gradients, atol=1e-6)


def test_inclusion_at_gamma_0_depends_on_the_clusters_size() -> None:
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(theory_hics.inclusion(np.zeros(2), [2, 2], 2, rng, 2000), 0.5, atol=0.05)
    large, small = theory_hics.inclusion(np.zeros(2), [8, 2], 1, rng, 2000)
    assert large == pytest.approx(1 / 16, abs=0.02)
    assert small == pytest.approx(1 / 4, abs=0.05)
