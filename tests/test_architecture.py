"""The map in `ARCHITECTURE.md`: every room is on it, and none imports from a room that comes later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fedlib import uses
from fedlib.config import ROOT

HOUSE = ROOT / "fedlib"


def floors() -> dict[str, int]:
    """Room, as `engine.py` or `samplers/`, -> its line in the table of rooms."""
    table = (ROOT / "ARCHITECTURE.md").read_text().split("| room |")[1].split("\n\n")[0]
    lines = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in table.splitlines() if line]
    rooms = [(room, floor) for floor, line in enumerate(lines) for room in line]
    assert len(rooms) == len(dict(rooms)), "a room is on the map twice"
    return dict(rooms)


def room_of(file: Path) -> str:
    first, *inner = file.relative_to(HOUSE).parts
    return f"{first}/" if inner else first


def imports(file: Path) -> set[str]:
    """Rooms that a file imports from, at whatever time."""
    nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Import | ast.ImportFrom)]
    return {room_of(found) for found in uses.imported("\n".join(map(ast.unparse, nodes)), ROOT)}


FILES = sorted(file for file in HOUSE.rglob("*.py") if file.read_text().strip())


def test_every_room_is_on_the_map():
    assert set(floors()) == {room_of(file) for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(HOUSE).as_posix())
def test_a_room_imports_only_from_rooms_above_it_or_beside_it(file: Path):
    floor = floors()
    later = {room for room in imports(file) if floor[room] > floor[room_of(file)]}
    assert not later, f"{file.name} imports from {', '.join(sorted(later))}"
