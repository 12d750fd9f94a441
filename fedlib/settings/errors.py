"""How an unusable setting is reported."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ConfigError(ValueError):
    """A setting cannot be used; the message is one sentence for the person who wrote it."""


def meant(name: object, known: Iterable[str]) -> str:
    """What to say after an unknown name: the known names similar to it, or else all of them."""
    known = list(known)
    close = get_close_matches(str(name), known, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}." if known else "there are none."
