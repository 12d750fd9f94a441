"""HiCS-FL's theory in numbers: bias gradients and updates, the steps of Theorem 1, the marginals of the sampling.

Chen and Vikalo, equations 4-8, 10 and the appendix's 6.3-6.9; used by the theory notebook. D: label shares (C,) of a
client; E: (C,) mean softmax output for class i over samples of other labels; kappa = eta R / T_s.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from fedlib.data.partition import make
from fedlib.data.schemes.dirichlet import DirichletClasses
from fedlib.kernels.threads import one_thread
from fedlib.samplers.hics_fl import estimated_entropy
from fedlib.samplers.oracle import label_entropy
from fedlib.samplers.weighted import draw_distinct
from fedlib.training.chain import torch_default


def bias_gradients(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per-sample gradient of the cross-entropy by the output bias: autograd's and equation 4's -> two (n, C)."""
    q = torch.tensor(logits, dtype=torch.float64)
    bias = torch.zeros_like(q, requires_grad=True)
    F.cross_entropy(q + bias, torch.tensor(y), reduction="sum").backward()
    assert bias.grad is not None
    return bias.grad.numpy(), softmax(logits, axis=1) - np.eye(logits.shape[1])[y]


class Digits(NamedTuple):
    """scikit-learn's handwritten digits, split over clients in groups of increasing concentration.

    x: (n, 64) float32; y: (n,); parts: each client's samples; entropy: (N,) label entropy; group: (N,).
    """

    x: torch.Tensor
    y: torch.Tensor
    parts: list[np.ndarray]
    entropy: np.ndarray
    group: np.ndarray


def digits(alphas: list[float], per_group: int, seed: int = 0) -> Digits:
    """The digits, `per_group` clients for each alpha, by HiCS-FL's partition."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    spec = DirichletClasses(scheme="dirichlet_classes", alphas=alphas)
    split = make(spec, SimpleNamespace(y_train=y, y_test=y), per_group * len(alphas), seed)
    assert split.group is not None
    pixels = torch.tensor(x / 16, dtype=torch.float32)
    return Digits(pixels, torch.tensor(y), split.train, label_entropy(split.labels), split.group)


def network(seed: int, scale: float = 1.0) -> nn.Sequential:
    """A 64-32-10 perceptron; scale: factor of its random output weights."""
    generator = torch.Generator().manual_seed(seed)
    hidden, output = skip_init(nn.Linear, 64, 32), skip_init(nn.Linear, 32, 10)
    for layer in (hidden, output):
        torch_default(layer, generator)
    model = nn.Sequential(hidden, nn.ReLU(), output)
    with torch.no_grad():
        output.weight *= scale
        output.bias.zero_()
    return model


class LastLayer(NamedTuple):
    """Update of the output layer by training: (C,) bias, row means of the weight, sum of the bias' batch gradients."""

    bias: np.ndarray
    rows: np.ndarray
    gradients: np.ndarray


def trained(
    model: nn.Sequential,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    lr: float,
    epochs: int,
    batch: int,
    adam: bool = False,
) -> tuple[nn.Sequential, LastLayer]:
    """A copy of the model after local training by mini-batch SGD or Adam, and its output layer's update."""
    model = copy.deepcopy(model)
    last = model[-1]
    assert isinstance(last, nn.Linear)
    start = copy.deepcopy(last)
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(model.parameters(), lr=lr)
    gradients, rng = torch.zeros_like(last.bias), np.random.default_rng(0)
    with one_thread():
        for _ in range(epochs):
            for part in np.array_split(rng.permutation(len(y)), -(-len(y) // batch)):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), y[part]).backward()
                assert last.bias.grad is not None
                gradients += last.bias.grad
                optimizer.step()
    with torch.no_grad():
        bias, rows = last.bias - start.bias, (last.weight - start.weight).mean(dim=1)
    return model, LastLayer(bias.numpy(), rows.numpy(), gradients.numpy())


def error_of_equation_6(data: Digits, model: nn.Sequential) -> tuple[float, float, float]:
    """Median and maximum relative error of equation 6 over clients, and lowest correlation with the exact vector."""
    with torch.no_grad():
        s = torch.softmax(model(data.x).double(), dim=1).numpy()
    pairs = [expected_update(s[part], data.y.numpy()[part]) for part in data.parts]
    errors = [np.linalg.norm(exact - printed) / np.linalg.norm(exact) for exact, printed in pairs]
    return float(np.median(errors)), float(max(errors)), min(np.corrcoef(*pair)[0, 1] for pair in pairs)


def expected_update(s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[Delta b] / (eta R) from softmax outputs s (n, C) and labels: exactly, and by equation 6 -> two (C,)."""
    C = s.shape[1]
    D = np.bincount(y, minlength=C) / len(y)
    E = np.array([s[y != i, i].mean() if (y != i).any() else 1 / C for i in range(C)])
    return D - s.mean(axis=0), D * E.sum() - E


def random_pair(rng: np.random.Generator, C: int) -> tuple[np.ndarray, np.ndarray]:
    """Label shares of two clients with concentrations between 0.01 and 100, the more balanced one first."""
    pair = rng.gamma(10.0 ** rng.uniform(-2, 2, (2, 1)), size=(2, C)) + 1e-300
    pair /= pair.sum(axis=1, keepdims=True)
    return tuple(pair[np.argsort(-estimated_entropy(np.log(pair), 1.0))])


def theorem_1(Du: np.ndarray, Dk: np.ndarray, kappa: float, with_ln_C: bool) -> tuple[float, float]:
    """H^_u - H^_k with Delta b = its expectation at E_i = 1 / C, and the bound from steps 28-50 of the proof.

    The bound: (kappa / C)^2 |D_k - U|^2 / 2 - kappa |D_u - U|_inf, the last term times ln C as in the proof.
    """
    C = len(Du)
    difference = np.subtract(*estimated_entropy(kappa * (np.stack([Du, Dk]) - 1 / C), 1.0))
    far = kappa * np.abs(Du - 1 / C).max() * (np.log(C) if with_ln_C else 1.0)
    return float(difference), float(0.5 * (kappa / C) ** 2 * ((Dk - 1 / C) ** 2).sum() - far)


def midpoint_failures(rng: np.random.Generator, C: int, pairs: int, scale: float) -> float:
    """Share of random pairs at whose midpoint |softmax(x) - U|^2 exceeds the mean of its values at the two ends."""
    a, b = scale * rng.normal(size=(2, pairs, C))
    value = [((softmax(x, axis=1) - 1 / C) ** 2).sum(axis=1) for x in (a, b, (a + b) / 2)]
    return float((value[2] > (value[0] + value[1]) / 2 + 1e-12).mean())


def inclusion(
    log_pi: np.ndarray, sizes: list[int], K: int, rng: np.random.Generator, runs: int
) -> np.ndarray:
    """Share of `runs` rounds in which equation 10 (equal p_k) draws a client of each cluster among the K."""
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    weights = (log_pi - np.log(sizes))[cluster]
    draws = np.concatenate([draw_distinct(rng, weights, K) for _ in range(runs)])
    return np.bincount(cluster[draws], minlength=len(sizes)) / runs / sizes


def displacements(eta: float, mu: float, R: int) -> dict[str, np.ndarray]:
    """|theta_r - theta^t| after r = 1..R steps under a constant unit gradient, simulated and by formula -> (R,) each.

    FedProx and FedDyn with weight mu (no previous gradient), momentum mu dampened as in the paper or as in PyTorch.
    """
    r = np.arange(1, R + 1)
    prox, dampened, plain = np.zeros(R + 1), np.ones(R), np.ones(R)
    for i in range(R):
        prox[i + 1] = prox[i] + eta * (1 - mu * prox[i])
    for i in range(1, R):
        dampened[i] = mu * dampened[i - 1] + (1 - mu)
        plain[i] = mu * plain[i - 1] + 1
    return {
        "steps": r,
        "FedProx, FedDyn": prox[1:],
        "FedProx by formula": eta * np.cumsum((1 - eta * mu) ** (r - 1)),
        "dampened momentum": eta * np.cumsum(dampened),
        "by formula": eta * r,
        "PyTorch's momentum": eta * np.cumsum(plain),
        "its formula": eta * np.cumsum((1 - mu**r) / (1 - mu)),
    }
