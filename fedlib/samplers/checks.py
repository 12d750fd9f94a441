"""Checks of a sampler's class before it is used: what would otherwise choose or train by other rules in silence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, get_args

from fedlib.samplers.base import Aggregation, Federation, Question, Sampler

CHOICES: dict[str, tuple[Any, ...]] = {
    "aggregation": get_args(Aggregation),
    "draws": ("distinct", "repeated", "random"),
    "fewer": (True, False),
}
SETS = {"needs": {"labels", "output layer"}, "reads": {"losses", "updates", "seconds", "squared"}}
ELSEWHERE = {  # what makes random numbers without the round's generator -> where it is
    "default_rng": "numpy.random",
    "RandomState": "numpy.random",
    "Random": "random",
    "SystemRandom": "random",
    "manual_seed": "torch",
    "urandom": "os",
    "token_bytes": "secrets",
    "randbelow": "secrets",
    "uuid4": "uuid",
}


def check_class(cls: type[Sampler]) -> None:
    """Check what a sampler's class declares, and that its methods make no generator of their own.

    Raises:
        ValueError: a class attribute has a value that means nothing, a parameter is annotated in a class that is no
            dataclass, or a method makes a generator. The sentence says what to write instead.
    """
    name = cls.__name__
    for base in cls.__mro__[: cls.__mro__.index(Sampler)]:
        written = [
            key for key, kind in vars(base).get("__annotations__", {}).items() if "ClassVar" not in str(kind)
        ]
        if written and "__dataclass_fields__" not in vars(base):
            raise ValueError(
                f"{base.__name__} declares {written[0]!r} but is no dataclass, so it would keep the old value; write "
                "@dataclass above the class"
            )
        for method, maker in makers(base):
            raise ValueError(
                f"{base.__name__}.{method} makes a generator with {ELSEWHERE[maker]}.{maker}, so its results would not "
                "depend on the run's seed; draw from round.rng, or in setup from rng"
            )
    check_attributes(cls, name)


def check_attributes(sampler: type[Sampler] | Sampler, name: str) -> None:
    """Check the attributes that say how a sampler is used. Properties can be checked on an instance only.

    Raises:
        ValueError: an attribute has a value that means nothing.
    """
    for key, choices in CHOICES.items():
        value = getattr(sampler, key)
        if not isinstance(value, property) and value not in choices:
            raise ValueError(f"{name}.{key} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    for key, known in SETS.items():
        value = getattr(sampler, key)
        if isinstance(value, property):
            continue
        if isinstance(value, str) or not set(value) <= known:
            raise ValueError(f"{name}.{key} is {value!r}; it may hold {', '.join(map(repr, sorted(known)))}")
    asks = sampler.asks
    if not (asks is None or isinstance(asks, property)) and not all(
        isinstance(kind, type) and issubclass(kind, Question) for kind in asks
    ):
        raise ValueError(
            f"{name}.asks is {asks!r}; it must hold classes of questions, as frozenset({{Losses}})"
        )


def check_choices(sampler: Sampler, name: str, **choices: Iterable[str]) -> None:
    """Check parameters that are one of a few words; settings are checked earlier, but not a program's own sampler.

    Raises:
        ValueError: a parameter is another word.
    """
    for key, words in choices.items():
        value = getattr(sampler, key)
        if value not in words:
            raise ValueError(f"sampler {name!r}: {key} is {value!r}; it must be one of {', '.join(words)}.")


def makers(cls: type) -> Iterator[tuple[str, str]]:
    """(method, name) of every call in a class's own methods that makes a generator of its own."""
    for key, value in vars(cls).items():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield from ((key, name) for name in sorted(names_in(code) & set(ELSEWHERE)))


def names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes that a function, or a function inside it, uses."""
    inner = [names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(sampler: Sampler, fed: Federation, name: str) -> None:
    """Check that the machine has the memory that a sampler needs at least.

    Raises:
        ValueError: it has not; the sentence says how much is needed and how much there is.
    """
    needed, there = 8 * sampler.needed(fed), memory()
    if needed > there:
        raise ValueError(
            f"sampler {name!r} needs at least {needed / 2**30:,.0f} GiB for N = {fed.N:,} clients, but this machine "
            f"has {there / 2**30:,.0f} GiB; take fewer clients, or a sampler whose cost grows with N alone "
            "(docs/samplers.md)"
        )
