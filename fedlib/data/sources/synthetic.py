"""Synthetic(alpha, beta): clients that differ in their models (alpha) and in their data (beta).

Source: Shamir, Srebro, Zhang, ICML 2014; Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
section 5.1: y = argmax softmax(W_k x + b_k) with W_k, b_k ~ N(u_k, 1), u_k ~ N(0, alpha); x ~ N(v_k, Sigma) with Sigma
diagonal, Sigma_jj = j^-1.2, v_k ~ N(B_k, 1), B_k ~ N(0, beta). 30 clients, whose sizes follow a power law. As in the
program of Li et al., alpha and beta are standard deviations, and n_k = 50 + floor(exp(N(4, 2))). A tenth of each
client's samples is for tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Arrays, Found, Kind, register

N, FEATURES, K = 30, 60, 10
TEST_SHARE = 0.1
CLASSES = tuple(str(label) for label in range(K))


def draw(alpha: float, beta: float, number: int = 0) -> Arrays:
    """The samples of all clients, in the order of their ids. number: of the draw; another gives another federation."""
    rng = np.random.default_rng((number, round(1000 * alpha), round(1000 * beta)))
    sizes = 50 + np.exp(rng.normal(4, 2, N)).astype(int)
    scale = np.arange(1, FEATURES + 1) ** -0.6
    parts: dict[str, list[np.ndarray]] = {}
    for k, n in enumerate(sizes):
        u, B = rng.normal(0, alpha), rng.normal(0, beta)
        W, b, v = rng.normal(u, 1, (K, FEATURES)), rng.normal(u, 1, K), rng.normal(B, 1, FEATURES)
        x = (v + scale * rng.standard_normal((n, FEATURES))).astype(np.float32)
        y = (x @ W.T + b).argmax(axis=1).astype(np.int64)
        cut = n - max(1, int(TEST_SHARE * n))
        for part, rows in (("train", slice(cut)), ("test", slice(cut, None))):
            values = {"x": x[rows], "y": y[rows], "owner": np.full(len(y[rows]), k)}
            for name, value in values.items():
                parts.setdefault(f"{name}_{part}", []).append(value)
    return {name: np.concatenate(pieces) for name, pieces in parts.items()}


def add(name: str, alpha: float, beta: float) -> None:
    """Register one fixed draw."""
    title = f"Synthetic({alpha:g}, {beta:g})"
    shape, source = (FEATURES,), "fedlib"

    @register(name, Kind(0, 0, shape, CLASSES, title=title, embedded=source, values="numbers", owners=N))
    def read(name: str, kind: Kind, folder: Path) -> Found:
        """Drawn when it is prepared."""
        sentence = (
            f"{title}: drawn here as by Li et al. (2020), {N} clients, {FEATURES} features, {K} classes"
        )
        return Found(draw(alpha, beta), CLASSES, sentence)


add("synthetic_0_0", 0.0, 0.0)
add("synthetic_05_05", 0.5, 0.5)
add("synthetic_1_1", 1.0, 1.0)
