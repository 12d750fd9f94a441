"""What a run's methods may not do to others: who fails ends its own run; nobody draws from a global generator."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

GLOBAL: dict[str, Callable[[], Any]] = {
    "numpy.random": lambda: np.random.random(),  # noqa: NPY002 - it is what is watched
    "random": random.random,
    "torch": lambda: torch.rand(1),
}


class SamplerError(ValueError):
    """What went wrong in one run's sampler or algorithm: a sentence with its name, seed, round and phase.

    trace: the traceback of what was raised, as text.
    """

    trace: str = ""


class Watch:
    """Finds out who draws from a global generator, or seeds it: the answer to that is not the run's own.

    Workers of a cluster and the lab train in another thread than the main one, in which others draw from
    Python's generator meanwhile (Dask and Jupyter do): there only NumPy's and torch's generators are watched.
    """

    def __init__(self) -> None:
        self.known = states()

    def touched(self) -> list[str]:
        """The global generators that have changed since the last look."""
        before, self.known = self.known, states()
        if before == self.known:
            return []
        names = [name for name, old, new in zip(GLOBAL, before, self.known, strict=True) if old != new]
        if threading.current_thread() is not threading.main_thread():
            names = [name for name in names if name != "random"]
        for name in names:
            GLOBAL[name]()  # so that the next one who seeds it alike is found, too
        self.known = states()
        return names


def states() -> tuple[Any, Any, Any]:
    """What every draw from the global generators of `GLOBAL` changes, in a few microseconds.

    NumPy takes longer to copy its state of 2,500 bytes into an array than a small round takes: it is read in place.
    """
    bits = np.random.get_bit_generator()
    usual = type(bits) is np.random.MT19937
    numpys = ctypes.string_at(bits.ctypes.state_address, 2500) if usual else repr(bits.state)
    _, words, gauss = random.getstate()
    return numpys, (words[0], words[-1], gauss), torch.default_generator.get_state().numpy().tobytes()


class Guarded:
    """A run whose methods are called one after the other. A base of `Live`, which has these attributes."""

    if TYPE_CHECKING:
        name: str
        t: int
        sampler: Any
        costs: Any
    failed: SamplerError | None = None

    @contextmanager
    def trying(self, phase: str, watch: Watch | None = None) -> Iterator[None]:
        """What one of its methods does. Whatever this raises ends this run alone.

        watch: of a call of its sampler, which may touch no global generator, and whose time is the server's.
        """
        started = time.perf_counter()
        try:
            try:
                yield
            finally:
                if watch:
                    self.costs.server_seconds += time.perf_counter() - started
            if watch and (touched := watch.touched()):
                raise SamplerError(
                    f"it drew from the global generator of {' and '.join(touched)}, which others draw from too; draw "
                    "from round.rng, or in setup from rng"
                )
        except (Exception, SystemExit) as error:
            self.failed = self._failure(phase, error)
            if watch:
                watch.touched()

    def _failure(self, phase: str, error: BaseException) -> SamplerError:
        where = ", ".join([self.name, *([f"round {self.t}"] if self.t else []), phase])
        words = " ".join(str(error).split())[:500].rstrip(".")
        if not isinstance(error, SamplerError):
            kind = "" if type(error) is ValueError and words else f"{type(error).__name__}: "
            words = f"{kind}{words} ({self._line(error)})"
        failure = SamplerError(f"{where}: {words}.")
        failure.__cause__ = error
        failure.trace = "".join(traceback.format_exception(error))
        return failure

    def _line(self, error: BaseException) -> str:
        """Where it was raised: the last line of the sampler's own file that was reached, or of any."""
        steps = traceback.extract_tb(error.__traceback__)
        sampler = type(getattr(self, "sampler", self))
        home = getattr(sys.modules.get(sampler.__module__), "__file__", None)
        last = ([step for step in steps if step.filename == home] or steps)[-1]
        return f"{last.filename.rpartition('/')[2]}, line {last.lineno}"
