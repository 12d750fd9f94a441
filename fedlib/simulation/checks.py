"""Checks of what a run's sampler returns, keeps and asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedlib.errors import SamplerError
from fedlib.samplers import Question, Round, Selection
from fedlib.settings.schema import MOST_QUESTIONS

if TYPE_CHECKING:
    from fedlib.simulation.live import Live


def check_clients(live: Live, role: str, clients: Any, minimum: int = 1) -> np.ndarray:
    """The clients that a selection or a question names, as a separate array.

    Raises:
        SamplerError: they are not whole numbers, are fewer than `minimum`, or do not exist.
    """
    clients = np.array(clients)
    if clients.ndim != 1 or (len(clients) and not np.issubdtype(clients.dtype, np.integer)):
        raise SamplerError(f"the {role} must be a list of whole numbers")
    if len(clients) < minimum:
        raise SamplerError(f"the {role} must not be empty")
    if len(clients) and (clients.min() < 0 or clients.max() >= live.fed.N):
        unknown = clients[(clients < 0) | (clients >= live.fed.N)][0]
        raise SamplerError(f"the {role} must be 0 to {live.fed.N - 1}; there is no client {unknown}")
    return clients.astype(int)


def check(live: Live, selection: Any, round: Round | None = None) -> Selection:
    """The selection, if it keeps the sampler's contract, with arrays that the sampler cannot change.

    round: of a run in a world, where a sampler may choose fewer than the round's m, and only those that are available.

    Raises:
        SamplerError: it is not a Selection; it names unknown or repeated clients, too few or too many; or its weights
            or expected draws are unusable.
    """
    if not isinstance(selection, Selection):
        raise SamplerError(f"select must return a Selection, not {type(selection).__name__}")
    draws, m = live.sampler.draws, round.m if round else live.fed.m
    minimum = 0 if draws == "random" or round else 1
    clients = check_clients(live, "clients of its Selection", selection.clients, minimum)
    if round and not np.isin(clients, round.available).all():
        absent = np.setdiff1d(clients, round.available)[0]
        raise SamplerError(f"it chose client {absent}, who is absent; choose among round.available")
    if draws != "repeated" and len(np.unique(clients)) < len(clients):
        raise SamplerError("a client was chosen twice; a sampler that allows this sets draws = 'repeated'")
    numbers: dict[str, np.ndarray | None] = {}
    for name, values in (("weights", selection.weights), ("expected", selection.expected)):
        numbers[name] = values = None if values is None else np.array(values)
        if values is not None and (values.shape != clients.shape or not np.isfinite(values).all()):
            raise SamplerError(f"its {name} must be one finite number per draw")
    if (weights := numbers["weights"]) is not None and (weights < 0).any():
        raise SamplerError(
            f"the weight of client {clients[weights < 0][0]} is {weights.min():g}; weights of updates must be 0 or more"
        )
    if (expected := numbers["expected"]) is not None and not (expected > 0).all():
        raise SamplerError(
            "its expected draws must be above zero: each drawn client is expected, and ipw divides by them"
        )
    if draws != "random" and not (len(clients) == m or ((live.sampler.fewer or round) and len(clients) < m)):
        raise SamplerError(
            f"it chose {len(clients)} clients, but m is {m}; a sampler that picks any number sets draws = 'random', "
            "one that may pick fewer sets fewer = True"
        )
    if live.rule == "ipw" and numbers["weights"] is None and expected is None:
        raise SamplerError("it states no expected draws, which aggregation ipw divides by; name another rule")
    return Selection(clients, **numbers, notes=selection.notes)


def plain(value: Any) -> Any:
    """A numpy or torch value as plain numbers, for JSON.

    Raises:
        TypeError: it is another object, whose text may differ from run to run.
    """
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither a number, a text, a list nor a mapping of these")


def accept(live: Live, question: Any) -> None:
    """Check that a run's sampler yielded a question, and not more questions than allowed.

    Raises:
        SamplerError: it is not a question, is one too many, or names clients that do not exist.
    """
    kind = type(question)
    if not isinstance(question, Question):
        raise SamplerError(f"it yielded a {kind.__name__}, which is not a question")
    if live.sampler.asks is not None and kind not in live.sampler.asks:
        raise SamplerError(f"it yielded {kind.__name__}, which its `asks` does not list; add it there")
    allowed = live.run.questions or MOST_QUESTIONS
    live.questions += 1
    if live.questions > allowed:
        raise SamplerError(
            f"it asked more than {allowed} questions in one round; if it must, set `questions`"
        )
    for sent in ("parameters", "scalars"):
        count = getattr(question, sent, 0)
        if count is not None and (not isinstance(count, int | np.integer) or count < 0):
            raise SamplerError(
                f"{sent} of its {kind.__name__} is {count!r}; it must be how many numbers a client sends, 0 or more"
            )
    for named in ("clients", "train"):
        if hasattr(question, named):
            clients = check_clients(live, f"{named} of its {kind.__name__}", getattr(question, named))
            if live.presence:
                live.presence.check_named(clients, f"{named} of its {kind.__name__}")
