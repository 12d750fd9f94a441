"""Protect runs from each other: a failing run ends alone, and no sampler may draw from a global generator."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedlib.errors import SamplerError
from fedlib.samplers import Sampler
from fedlib.simulation.ledger import Ledger

GLOBAL: dict[str, Callable[[], Any]] = {
    "numpy.random": lambda: np.random.random(),  # noqa: NPY002 - this generator is watched
    "random": random.random,
    "torch": lambda: torch.rand(1),
}
for_main: ContextVar[bool] = ContextVar("for_main", default=False)  # True in a thread that shares its work


class GlobalDraws:
    """Detects draws from a global generator and calls that seed it: their results would not depend on the run alone.

    Workers of a cluster, and the lab, train outside the main thread. Meanwhile, other code draws from Python's
    generator (Dask and Jupyter do). Outside the main thread (`is_main`), only NumPy's and torch's are watched.
    """

    def __init__(self) -> None:
        self.states = states()

    def touched(self) -> list[str]:
        """The global generators that have changed since the last call."""
        last, self.states = self.states, states()
        names = [name for name in self.states if self.states[name] != last.get(name, self.states[name])]
        for name in names:
            GLOBAL[name]()  # so that the next call that sets the same seed is found too
        if names:
            self.states = states()
        return names


def states() -> dict[str, Any]:
    """Values that change with every draw from the generators of `GLOBAL`; Python's in the main thread only.

    NumPy's state of 2,500 bytes is read in place, at the address that NumPy publishes for C: `get_state` takes 100
    microseconds, and it is needed several times a round and run.
    """
    bits = np.random.get_bit_generator()  # ty: ignore[missing-attribute]  # numpy's stubs lack it
    usual = type(bits) is np.random.MT19937
    values = {
        "numpy.random": ctypes.string_at(bits.ctypes.state_address, 2500) if usual else repr(bits.state),
        "torch": torch.default_generator.get_state().numpy().tobytes(),
    }
    if is_main():
        values["random"] = random.getstate()
    return values


def is_main() -> bool:
    """Whether this is the main thread, or one that shares its work."""
    return for_main.get() or threading.current_thread() is threading.main_thread()


class Guarded:
    """A run whose methods are called one after another. `Live` inherits from it and has these attributes."""

    if TYPE_CHECKING:
        name: str
        t: int
        sampler: Any
        ledger: Ledger
    failed: SamplerError | None = None

    @contextmanager
    def trying(self, phase: str, watch: GlobalDraws | None = None) -> Generator[None]:
        """A context for calls of the run's methods: whatever they raise ends this run alone.

        watch: for calls of its sampler, which may not touch a global generator and whose time counts as the server's.
        """
        started = time.perf_counter()
        try:
            try:
                yield
            finally:
                if watch:
                    self.ledger.costs.server_seconds += time.perf_counter() - started
            if watch and (touched := watch.touched()):
                raise SamplerError(
                    f"it drew from the global generator of {' and '.join(touched)}, which other code uses too; draw "
                    "from round.rng, or in setup from rng"
                )
        except (Exception, SystemExit, GeneratorExit) as error:
            self.failed = self._failure(phase, error)
            if watch:
                watch.touched()

    def _failure(self, phase: str, error: BaseException) -> SamplerError:
        where = ", ".join([self.name, *([f"round {self.t}"] if self.t else []), phase])
        words = " ".join(text_of(error).split())[:500].rstrip(".")
        if not isinstance(error, SamplerError):
            kind = "" if type(error) is ValueError and words else type(error).__name__
            words = f"{': '.join(filter(None, [kind, words]))} ({self._line(error)})"
        failure = SamplerError(f"{where}: {words}.")
        failure.__cause__ = error
        failure.trace = "".join(traceback.format_exception(error))  # which copes with a text that raises
        return failure

    def _line(self, error: BaseException) -> str:
        """Where the error was raised: the last line reached in the sampler's own file, or in any file."""
        steps = traceback.extract_tb(error.__traceback__)
        sampler = type(getattr(self, "sampler", self))
        home = getattr(sys.modules.get(sampler.__module__), "__file__", None)
        last = ([step for step in steps if step.filename == home] or steps)[-1]
        return f"{last.filename.rpartition('/')[2]}, line {last.lineno}"


def text_of(error: BaseException) -> str:
    """The text of an error, or what stands for it where making the text fails."""
    try:
        return str(error)
    except Exception as inner:
        return f"its text raises {type(inner).__name__}"


def check_state(sampler: Sampler) -> None:
    """Raise SamplerError if a sampler keeps a generator: its draws would depend on the order of events."""
    for name, value in vars(sampler).items():
        if isinstance(value, np.random.Generator | np.random.RandomState | random.Random | torch.Generator):
            raise SamplerError(
                f"it keeps a generator of its own, self.{name}; draw from round.rng, or in setup from rng"
            )
