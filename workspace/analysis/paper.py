"""A paper as seen by the other rooms: a folder of `workspace/papers/`, found by listing it."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from fedlib.settings.schema import ROOT


@dataclass(frozen=True)
class Paper:
    """A paper: its short title, year, citation, the id of its main claim, and where to find it.

    measured: what the main claim's effect is, in plain words. says, ratio: the claim and its effect in a line each, for
    a figure that has no room for more ("": the claim's own words).
    url: of the paper. code: (address, commit) of the authors' repository as followed here; empty if none is public.
    """

    title: str
    year: int
    citation: str
    headline: str = ""
    measured: str = ""
    says: str = ""
    ratio: str = ""
    url: str = ""
    code: tuple[str, str] | tuple[()] = ()


@cache
def papers() -> dict[str, Paper]:
    """Folder name -> paper, oldest first."""
    folder = importlib.import_module("workspace.papers")
    folders = {module.name: part(module.name).PAPER for module in pkgutil.iter_modules(folder.__path__)}
    return dict(sorted(folders.items(), key=lambda item: (item[1].year, item[1].title)))


def part(paper: str, name: str = "") -> ModuleType:
    """The folder of a paper, or one of its modules, such as `claims`.

    Raises:
        ModuleNotFoundError: the paper has no such module.
    """
    return importlib.import_module(".".join(filter(None, ["workspace.papers", paper, name])))


def parts(name: str) -> dict[str, ModuleType]:
    """Paper -> the module of that name in its folder, for the papers that have one."""
    return {paper: part(paper, name) for paper in papers() if find_spec(f"workspace.papers.{paper}.{name}")}


def printed_curves(place: str, root: Path = ROOT) -> Path:
    """The file of the printed curves of an artifact, as somebody read them off; place: "fedcor/figure_4"."""
    return root / "data" / "printed" / f"{place}.csv"
