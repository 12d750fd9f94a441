"""The errors of the project: each message is one sentence that names the file or key, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ForUsers(Exception):
    """An error whose message is for people: a notebook shows it alone, without the lines of code that led to it."""

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{type(self).__name__}: {self}"]


class ConfigError(ForUsers, ValueError):
    """A setting cannot be used; the message is one sentence for the person who wrote it."""


class DataError(ForUsers, ValueError):
    """Data is missing, damaged or unusable; the message is one sentence for people."""


class StoreError(ForUsers, RuntimeError):
    """Something on disk cannot be used or written; the message is one sentence for people."""


class Unfinished(StoreError):
    """Nothing of an experiment or study is finished."""


class InUse(StoreError):
    """Another process holds a folder."""


class SamplerError(ValueError):
    """A failure in one run's sampler or algorithm: a sentence with its name, seed, round and phase.

    trace: the traceback of the original error, as text.
    """

    trace: str = ""


def meant(name: object, names: Iterable[str]) -> str:
    """What to say after an unknown name: the known names similar to it, or else all of them."""
    names = list(names)
    close = get_close_matches(str(name), names, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(names)}." if names else "there are none."
