"""Power-of-Choice, Figure 2: quadratic clients, for which losses, optima and the error floor are known exactly.

Client k has F_k(w) = (h_k / 2) |w - c_k|^2 in five dimensions, with h_k ~ U(1, 20) and c_k = e_k / h_k for
e_k ~ N(0, I); so its least loss is 0. Its share p_k is drawn from the density a x^(a-1) with a = 3. The m selected
clients take tau steps of gradient descent, in closed form, and the server averages their models. The samplers are the
shipped ones, which ask for the losses F_k. The paper's learning rate is 2e-5; a larger one takes the same path in fewer
rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fedlib import samplers
from fedlib.runs.measuring import Halfway
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit
from fedlib.samplers.base import Count, Federation, Losses, Positive, Question, answered
from fedlib.settings.code import code_of
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from fedlib.settings.sections import Study
from fedlib.streams import stream

DIMENSIONS, EVERY = 5, 5


class QuadraticKeys(Study):
    """draws: of the clients. N, m, tau, lr, rounds: of a run. samplers: method -> a sampler with its parameters."""

    draws: Count
    N: Count
    m: Count
    tau: Count
    lr: Positive
    rounds: Count
    samplers: dict[str, dict[str, Any]]


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """One unit for each draw of the clients: all methods run on it."""
    keys = {key: settings[key] for key in ("N", "m", "tau", "lr", "rounds", "samplers")}
    for draw in range(settings["draws"]):
        labels = {"data": "quadratic", "setting": "", "seed": draw}
        yield {"labels": labels, "draw": draw, **keys, "code": code_of(keys["samplers"])}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """Rows (method, round, gap): F(w) - F* after every fifth round."""
    rng = stream(unit["draw"], "probe")
    h = rng.uniform(1, 20, unit["N"])
    c = rng.standard_normal((unit["N"], DIMENSIONS)) / h[:, None]
    sizes = 1 + (10_000 * rng.power(3, unit["N"])).astype(int)
    tables = [
        follow(method, dict(spec), h, c, sizes, unit) for method, spec in sorted(unit["samplers"].items())
    ]
    return pd.concat(tables, ignore_index=True)


def follow(
    method: str, spec: dict[str, Any], h: np.ndarray, c: np.ndarray, sizes: np.ndarray, unit: Unit
) -> pd.DataFrame:
    """One method's gap by round. h (N,): curvatures. c (N, dimensions): the clients' optima. sizes (N,)."""
    name, draw = spec.pop("sampler"), unit["draw"]
    sampler = samplers.find(name)(**spec)
    fed = Federation(sizes, sizes[:, None], unit["m"], unit["rounds"], DIMENSIONS, None, None)
    sampler.setup(fed, stream(draw, "setup"))
    curvature = fed.p @ h
    best = (fed.p * h) @ c / curvature
    shrink = (1 - unit["lr"] * h)[:, None] ** unit["tau"]
    w, rows = np.ones(DIMENSIONS), []

    def losses(question: Question) -> np.ndarray:
        assert isinstance(question, Losses)
        return h[question.clients] / 2 * ((w - c[question.clients]) ** 2).sum(axis=1)

    for t in range(unit["rounds"] + 1):
        if t:
            k = answered(sampler.select(fed.round(t, stream(draw, "select", t))), losses).clients
            w = (c[k] + shrink[k] * (w - c[k])).mean(axis=0)
        if t % EVERY == 0:
            rows.append((method, t, curvature / 2 * float(((w - best) ** 2).sum())))
    return pd.DataFrame(rows, columns=["method", "round", "gap"])
