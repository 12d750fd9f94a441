"""A sampler's selection outside a simulation, given the clients' updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlib.samplers import Federation, Sampler, Selection, Updates, answered


def ask(sampler: Sampler, G: np.ndarray, m: int, rng: np.random.Generator, T: int = 100) -> Selection:
    """The clients that a sampler selects out of N of equal size; updates G (N, d) answer all its questions."""
    N, d = G.shape
    sizes = np.full(N, 100)
    nothing = slice(d, d)
    fed = Federation(sizes, np.full((N, 1), 100), m, T, d, nothing, nothing)
    sampler.setup(fed, rng)

    def answer(question: Any) -> np.ndarray:
        updates = G[question.clients]
        return question.encode(updates) if isinstance(question, Updates) else updates

    return answered(sampler.select(fed.round(1, rng)), answer)
