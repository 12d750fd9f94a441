"""The data of each client, and logistic regression in plain NumPy."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

TEST = 360  # samples that the server keeps
STEPS, RATE = 5, 0.5


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (n, 64) and labels (n,), then those of the test set."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    return x[:-TEST], y[:-TEST], x[-TEST:], y[-TEST:]


def client_data(client: int, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's images and labels: a part of the training set sorted by label."""
    x, y, _, _ = digits()
    mine = np.array_split(np.argsort(y, kind="stable"), clients)[client]
    return x[mine], y[mine]


def loss_and_gradients(
    weight: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean cross-entropy, and its gradients by weight (10, 64) and bias (10,)."""
    logits = x @ weight.T + bias
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = float(-np.log(p[np.arange(len(y)), y]).mean())
    p[np.arange(len(y)), y] -= 1
    return loss, p.T @ x / len(y), p.mean(axis=0)


def train(
    weight: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The model after some steps on all samples, and the mean loss of these steps."""
    losses = []
    for _ in range(STEPS):
        loss, by_weight, by_bias = loss_and_gradients(weight, bias, x, y)
        weight, bias = weight - RATE * by_weight, bias - RATE * by_bias
        losses.append(loss)
    return weight, bias, float(np.mean(losses))
