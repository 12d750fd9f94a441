"""Sources of datasets. To add one, put a file here that registers a reader; nothing else needs an edit."""

from typing import Any

from fedlib.data.sources.base import SCALINGS, Arrays, Found, Kind, find, load_all, register


def __getattr__(name: str) -> Any:
    """`KINDS`, name -> kind of every dataset; its files are loaded when it is first asked for."""
    if name == "KINDS":
        return load_all()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["KINDS", "SCALINGS", "Arrays", "Found", "Kind", "find", "load_all", "register"]
