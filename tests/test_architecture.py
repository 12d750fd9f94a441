"""The map in `ARCHITECTURE.md`: every room is on it, none imports from a later one, and no files import each other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fedlib.digests import imports
from fedlib.settings.reading import read
from fedlib.settings.schema import ROOT

ROOTS = (ROOT / "fedlib", ROOT / "workspace")  # the library, and what stands on it
WORDS = (  # that say nothing of a thing
    "about above after again another any as asked at been before begun below between both by did done "
    "drawn each else every few for found from given gone got had has have held here in into is it kept "
    "known least left less made many meant might more most much must none nothing now of off on one ones "
    "other others out over own rest said same seen shown so some still such taken that then there these "
    "they this those to told up wanted was were what which who whom whose with within without written yet "
)
VAGUE = set(WORDS.split())
NAMED = (
    "fedlib/data/",
    "fedlib/settings/",
    "fedlib/world/",
    "fedlib/simulation/",
    "fedlib/runs/",
    "fedlib/flower/",
    "fedlib/drawing/",
    "workspace/figures/",
    "workspace/pages/",
    "workspace/lab/",
    "workspace/commands/",
)  # rooms whose names are checked
FILES = sorted(file for root in ROOTS for file in root.rglob("*.py") if file.read_text().strip())


def floors() -> dict[str, int]:
    """Room, as `fedlib/files.py` or `workspace/pages/`, -> its line in the two tables of rooms."""
    rows = [
        (root.name, line)
        for root, table in zip(
            ROOTS, (ROOT / "ARCHITECTURE.md").read_text().split("| room |")[1:], strict=True
        )
        for line in table.split("\n\n")[0].splitlines()
        if line
    ]
    rooms = [
        [f"{root}/{name}" for name in re.findall(r"`([^`]+)`", line.split("|")[1])] for root, line in rows
    ]
    return {room: floor for floor, names in enumerate(rooms) for room in names}


def room_of(file: Path) -> str:
    root, first, *inner = file.relative_to(ROOT).parts
    return f"{root}/{first}/" if inner else f"{root}/{first}"


def imported(file: Path, roots: Sequence[Path] = ROOTS) -> Iterator[Path]:
    """The files below the roots that a file imports, at the top or inside functions, for the type checker or to run."""

    def file_of(name: str) -> Path | None:
        base = roots[0].parent / name.replace(".", "/")
        return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.exists()), None)

    for _, names in imports(file.read_text()):
        module, *members = names
        paths = {file_of(name) or file_of(module) for name in members or [module]} - {None, file}
        yield from paths if module.split(".")[0] in {root.name for root in roots} else ()


def circle(roots: Sequence[Path] = ROOTS) -> list[str]:
    """Files that import each other in a circle; none if there is no circle."""
    graph = {file: set(imported(file, roots)) for root in roots for file in root.rglob("*.py")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [file.relative_to(roots[0].parent).as_posix() for file in error.args[1]]
    return []


def test_the_map_has_every_room_and_little_stands_outside_of_them():
    tops = {f"{root.name}/__init__.py" for root in ROOTS}
    assert set(floors()) | tops == {room_of(file) for file in FILES}
    assert {room for room in floors() if not room.endswith("/")} == {
        *(
            f"fedlib/{name}.py"
            for name in ("digests", "errors", "files", "kinds", "measure", "registry", "released", "streams")
        ),
        "workspace/__main__.py",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_room_imports_only_from_rooms_above_it(file: Path):
    floor = floors()
    if file.parent in ROOTS and file.name == "__init__.py":
        return
    later = {room for room in map(room_of, imported(file)) if floor.get(room, 0) > floor[room_of(file)]}
    assert not later, f"{file.name} imports from {', '.join(sorted(later))}"


def test_the_library_never_imports_the_workspace():
    """Not even by name: what others install is `fedlib` alone."""
    library = [file for file in FILES if file.is_relative_to(ROOTS[0])]
    assert not [
        file for file in library if re.search(r"\bworkspace\.\w|\bimport workspace\b", file.read_text())
    ]


def test_no_files_import_each_other():
    assert circle() == []


@pytest.mark.parametrize(
    "import_a",
    ["from house.b import x", "def f():\n    import house.b", "if TYPE_CHECKING:\n    from house import b"],
)
def test_a_circle_is_found(import_a: str, tmp_path: Path):
    house = tmp_path / "house"
    house.mkdir()
    (house / "a.py").write_text(import_a)
    (house / "b.py").write_text("from house import a\nx = 0")
    assert set(circle([house])) == {"house/a.py", "house/b.py"}


@pytest.mark.parametrize(
    "room", ["kernels", "samplers", "data", "algorithms", "settings", "training", "simulation", "runs"]
)
def test_the_library_knows_no_experiment_and_no_paper(room: str):
    """Neither the name of an experiment nor that of a paper's folder stands in its code; samplers may be called so."""
    written = read(ROOT / "params.yaml")
    papers = {
        path.name
        for path in (ROOT / "workspace" / "papers").iterdir()
        if path.is_dir() and path.name[0] != "_" and room != "samplers"
    }
    for file in (ROOT / "fedlib" / room).rglob("*.py"):
        texts = {n.value for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Constant)}
        assert not texts & {*written["experiments"], *written["studies"], *papers}, file


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by name where their folder is no package, and fails if two share one."""
    files = (ROOT / "tests").rglob("test_*.py")
    names = Counter(path.name for path in files if not (path.parent / "__init__.py").exists())
    assert not [name for name, times in names.items() if times > 1]


def bound(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives: to functions, classes, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("room", [*NAMED, "fedlib/library/"])
def test_names_say_what_a_thing_is(room: str):
    """At most one in a hundred is a word such as `found` or `other`, which says nothing of the thing."""
    files = [file for file in FILES if room_of(file) == room]
    names = [name.strip("_") for file in files for name in bound(ast.parse(file.read_text()))]
    vague = Counter(name for name in names if name in VAGUE)
    assert vague.total() <= max(1, 0.01 * len(names)), vague


ITEM = re.compile(r"(?:^|(?<=\. ))([a-z_]\w*(?:(?:, | and )[a-z_]\w*)*): ")


def explained(function: ast.FunctionDef) -> set[str]:
    """The names that a docstring explains, as `name: what it is`, in the paragraphs that explain a parameter."""
    parameters = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    names: set[str] = set()
    for paragraph in (ast.get_docstring(function) or "").split("\n\n"):
        items = {n for item in ITEM.findall(paragraph.replace("\n", " ")) for n in re.split(", | and ", item)}
        names |= items if items & parameters else set()
    return names


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_a_docstring_explains_names_that_its_function_has(root: Path):
    """Its parameters, or what it names inside: a renamed parameter does not keep its old explanation."""
    wrong = []
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and (names := explained(node)):
                body = ast.unparse([node.args, *node.body[1:]])
                wrong += [f"{file.name}: {node.name}: {n}" for n in names if not re.search(rf"\b{n}\b", body)]
    assert not wrong


def test_a_stale_explanation_is_found():
    code = 'def f(new):\n    """A thing.\n\n    new: is. old: what it was.\n    """\n    return new'
    assert explained(ast.parse(code).body[0]) == {"new", "old"}


def test_no_two_classes_have_one_name():
    """A name stands for one class; `fedlib.Method` is the settings' `Method` as programs write it."""
    names = Counter(
        node.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == ["Method"]


def test_files_are_read_and_written_as_utf_8_whatever_the_locale() -> None:
    """The C locale without UTF-8 mode would otherwise read the project's texts as ASCII."""
    plain = []
    for path in [file for root in ("fedlib", "workspace") for file in sorted((ROOT / root).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                least = {"read_text": 1, "write_text": 2}.get(node.func.attr)
                stated = {keyword.arg for keyword in node.keywords} & {"encoding", None}
                if least and len(node.args) < least and not stated:
                    plain.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert [place for place in plain if not place.startswith(ASCII)] == []


ASCII = "fedlib/data/schemes/given.py:"  # numbers and plain names alone
