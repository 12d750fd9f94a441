"""How a setting that cannot be used is told."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ConfigError(ValueError):
    """A setting that cannot be used; the message is one sentence for the person who wrote it."""


def meant(name: object, known: Iterable[str]) -> str:
    """What to say after an unknown name: the known ones that look like it, or all of them."""
    known = list(known)
    close = get_close_matches(str(name), known, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}." if known else "there are none."
