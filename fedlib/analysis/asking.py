"""A sampler's selection outside a simulation, given the clients' updates."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from fedlib.samplers import Federation, Sampler, Selection, Updates


def ask(sampler: Sampler, G: np.ndarray, m: int, rng: np.random.Generator, T: int = 100) -> Selection:
    """The clients that a sampler selects out of N of equal size; updates G (N, d) answer all its questions."""
    N, d = G.shape
    sizes = np.full(N, 100)
    nothing = slice(d, d)
    fed = Federation(sizes, np.full((N, 1), 100), m, T, d, nothing, nothing)
    sampler.setup(fed, rng)
    answer: Any = sampler.select(fed.round(1, rng))
    if isinstance(answer, Generator):
        try:
            question = next(answer)
            while True:
                updates = G[question.clients]
                question = answer.send(question.encode(updates) if isinstance(question, Updates) else updates)
        except StopIteration as stop:
            answer = stop.value
    return answer
