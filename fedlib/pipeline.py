"""What `dvc.yaml` asks for beyond single notebooks: inputs, the artifacts' stages, everything at once.

DVC can loop over the experiments of `params.yaml`, but not over lists of dependencies. So the artifacts' stages are
written out by `fedlib pipeline`, from `params.yaml` and from what each notebook imports.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fedlib import config
from fedlib.config import ROOT, ConfigError, Experiments, Scale
from fedlib.files import write_whole

INPUTS = ROOT / "data" / "inputs"
PIPELINE = ROOT / "dvc.yaml"
MARK = "  # Artifacts, written by `fedlib pipeline` from params.yaml and from what the notebooks import.\n"
WHOLE_SCALE = {"scoreboard", "arena", "discrepancies"}  # artifacts that read every experiment


def set_scale(scale: Scale, params: Path = config.PARAMS) -> None:
    """Rewrite the one line of `params.yaml` that names the current scale."""
    text, found = re.subn(
        r"^scale:[ \t]*\w+", f"scale: {scale}", params.read_text(), count=1, flags=re.MULTILINE
    )
    if not found:
        raise ConfigError(f"{params.name} has no line `scale: ...` at its top level; add one.")
    write_whole(params, text.encode())


def prepare_inputs(scale: Scale | None = None, root: Path = INPUTS) -> dict[str, str]:
    """Prepare every dataset that the experiments need at a scale; returns dataset -> what stops it, if anything.

    `<root>/<scale>/<experiment>.json` then says which data the experiment will see (provenance, digest), or why it
    cannot be run: that is what its simulation depends on.
    """
    from fedlib import data

    settings = config.load()
    scale = scale or settings.scale
    known: dict[str, dict[str, str]] = {}
    for experiment in settings.names:
        used = sorted({one.run.dataset for one in settings.runs(experiment, scale)})
        for name in used:
            if name not in known:
                known[name] = _prepared(data, name)
        content = json.dumps({name: known[name] for name in used}, indent=1, sort_keys=True)
        write_whole(root / scale / f"{experiment}.json", content.encode() + b"\n")
    return {name: entry["missing"] for name, entry in known.items() if "missing" in entry}


def _prepared(data: Any, name: str) -> dict[str, str]:
    try:
        data.prepare(name)
    except data.DataError as error:
        return {"missing": str(error)}
    status = data.status(name)
    return {key: status[key] for key in ("provenance", "digest")}


def forget_missing(dataset: str, root: Path = INPUTS) -> None:
    """Drop what `prepare_inputs` noted of a dataset's absence, so that the next `dvc repro` looks again."""
    for path in root.rglob("*.json"):
        if "missing" in json.loads(path.read_text()).get(dataset, {}):
            path.unlink()


def stages(settings: Experiments, root: Path = ROOT) -> str:
    """The artifacts' stages, as text of `dvc.yaml`."""
    return "".join(_stage(name, entry or {}, root) for name, entry in settings.artifacts.items())


def _stage(name: str, entry: dict[str, Any], root: Path) -> str:
    place = name.replace("-", "/", 1)
    results = [f"data/results/${{scale}}/{e}.parquet" for e in entry.get("experiments", [])]
    if name in WHOLE_SCALE:
        results = ["data/results/${scale}"]
    claims = root / "fedlib" / "claims" / f"{place.split('/')[0]}.py"
    used = modules(root / "notebooks" / f"{place}.ipynb", root)
    if claims.exists() or name in WHOLE_SCALE:
        books = [claims] if claims.exists() else sorted((root / "fedlib" / "claims").glob("*.py"))
        used |= closure(books, root)
    lines = [
        f"  {name}:",
        f"    cmd: fedlib notebook run {name} --scale ${{scale}}",
        "    deps:",
        f"      - data/notebooks/{place}.ipynb",
        *(f"      - {dependency}" for dependency in [*results, *sorted(used)]),
        "    outs:",
        f"      - data/artifacts/${{scale}}/{name}",
        "    metrics:",
        f"      - data/metrics/${{scale}}/{name}.json:",
        "          cache: false",
    ]
    return "\n".join(lines) + "\n"


def modules(notebook: Path, root: Path = ROOT) -> set[str]:
    """Files of `fedlib` that a notebook imports, directly or not, as paths from the project's folder."""
    if not notebook.exists():
        return set()
    cells = json.loads(notebook.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return closure(_imported(code, root), root)


def closure(files: Iterable[Path], root: Path) -> set[str]:
    """The files and all of `fedlib` that they import in turn, as paths from the project's folder."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(file.read_text(), root)
    return {file.relative_to(root).as_posix() for file in found}


@cache
def _imported(code: str, root: Path) -> list[Path]:
    """Files of `fedlib` that a piece of code imports when it is loaded (not within functions)."""
    names = []
    for node in _loaded(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    bases = [root / name.replace(".", "/") for name in names if name.split(".")[0] == "fedlib"]
    candidates = [path for base in bases for path in (base.with_suffix(".py"), base / "__init__.py")]
    return [path for path in candidates if path.exists() and path.stat().st_size]


def _loaded(tree: ast.Module) -> Iterable[ast.stmt]:
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            waiting += node.body + node.orelse
        elif isinstance(node, ast.Try | ast.With):
            waiting += node.body


def write_stages(path: Path = PIPELINE) -> bool:
    """Bring the artifacts' part of `dvc.yaml` up to date; True if it changed."""
    text = path.read_text()
    if MARK not in text:
        raise ConfigError(
            f"{path.name} has lost the line {MARK.strip()!r}; put it back before the artifacts."
        )
    new = text[: text.index(MARK)] + MARK + stages(config.load(path.parent / "params.yaml"), path.parent)
    if new == text:
        return False
    write_whole(path, new.encode())
    return True


def repro(arguments: list[str]) -> int:
    """`dvc repro <arguments>` with one warm process for all its commands; returns DVC's exit status."""
    from fedlib.warm import warm

    write_stages()
    with warm(os.environ) as environment:
        return subprocess.run(["dvc", "repro", *arguments], cwd=ROOT, env=environment, check=False).returncode
