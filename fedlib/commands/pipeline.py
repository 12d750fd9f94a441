"""What `dvc.yaml` asks for beyond single notebooks: inputs, the artifacts' stages, everything at once.

DVC reads and writes its whole lock file at every stage, so stages depend on few files that say much: a notebook's
normalised copy holds the digests of the code that it uses (`uses.py`), an experiment's input all its settings. DVC can
loop over the experiments of `params.yaml`, but not over lists of dependencies: the artifacts' stages are written out
by `fedlib pipeline`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlib.commands.warm import warm
from fedlib.data.sources import DataError
from fedlib.files import StoreError, alone, sealed, unsealed, write_whole
from fedlib.settings import params
from fedlib.settings.code import code_of
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, ConfigError, Scale

INPUTS = ROOT / "data" / "inputs"
PIPELINE = ROOT / "dvc.yaml"
MARK = "  # Artifacts, written by `fedlib pipeline` from params.yaml.\n"
WHOLE_SCALE = {"scoreboard", "discrepancies"}  # artifacts that read every experiment


def set_scale(scale: Scale, path: Path = params.PARAMS) -> None:
    """Rewrite the one line of `params.yaml` that names the current scale."""
    text, found = re.subn(
        r"^scale:[ \t]*\w+", f"scale: {scale}", path.read_text(), count=1, flags=re.MULTILINE
    )
    if not found:
        raise ConfigError(f"{path.name} has no line `scale: ...` at its top level; add one.")
    write_whole(path, text.encode())


def prepare_inputs(scale: Scale | None = None, root: Path = INPUTS) -> dict[str, str]:
    """Prepare every dataset that the experiments need at a scale; returns dataset -> what stops it, if anything.

    `<root>/<scale>/<name>.json` then holds all that an experiment or study is made of: its settings, resolved for the
    scale, its data (provenance, digest) or why that is not here, and the digest of what is archived of it. It is what
    the simulation depends on.
    """
    from fedlib.runs import archive

    settings = params.load()
    scale = scale or settings.scale
    runs = {
        name: [one.model_dump(mode="json") for one in settings.runs(name, scale)] for name in settings.names
    }
    studies = {name: settings.study(name, scale) for name in settings.studies}
    used = {name: sorted({run["run"]["dataset"] for run in of}) for name, of in runs.items()}
    known = {name: _prepared(name) for name in sorted({one for of in used.values() for one in of})}
    inputs = {name: {"runs": of, "data": {d: known[d] for d in used[name]}} for name, of in runs.items()}
    for name, study in studies.items():
        followed = sorted(experiment for experiment in runs if experiment in _words(study))
        inputs[name] = {"study": study, "experiments": {e: _digest(inputs[e]) for e in followed}}
    for name, content in inputs.items():
        if code := code_of(content):
            content["code"] = code
        if tried := _failed(name, scale):
            content["failed"] = tried
        if (packed := archive.path_of(name, scale)).exists():
            content["archive"] = hashlib.sha256(packed.read_bytes()).hexdigest()
        write_whole(root / scale / f"{name}.json", _text(sealed(content)))
    for old in (root / scale).glob("*.json"):  # DVC keeps what stands here
        if old.stem not in inputs:
            old.unlink()
    return {name: entry["missing"] for name, entry in known.items() if "missing" in entry}


def _failed(name: str, scale: Scale) -> list[str]:
    """When runs of an experiment failed, by its record: what else would have DVC try them again?"""
    from fedlib.runs import results

    return [run["failed"] for run in results.record(name, scale).get("missing", []) if "failed" in run]


def _text(content: Any) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _digest(content: Any) -> str:
    return hashlib.sha256(_text(content)).hexdigest()


def _words(nested: Any) -> set[str]:
    """Every string in nested settings."""
    if isinstance(nested, dict):
        nested = list(nested.values())
    if isinstance(nested, list):
        return set().union(*map(_words, nested))
    return {nested} if isinstance(nested, str) else set()


def _prepared(name: str) -> dict[str, str]:
    from fedlib.data import datasets

    try:
        datasets.prepare(name)
    except datasets.DataError as error:
        return {"missing": str(error)}
    status = datasets.status(name)
    return {key: status[key] for key in ("provenance", "digest")}


def forget_missing(dataset: str | None = None, root: Path = INPUTS) -> None:
    """Drop what `prepare_inputs` noted of a dataset's absence (None: of any), so that DVC looks again."""
    for path in root.rglob("*.json"):
        try:
            known = unsealed(json.loads(path.read_bytes())).get("data", {})
        except ValueError:  # damaged: DVC makes it again
            path.unlink()
            continue
        if any("missing" in known.get(name, {}) for name in ([dataset] if dataset else known)):
            path.unlink()


def forget_changed(scale: Scale, root: Path = INPUTS) -> None:
    """Drop inputs of experiments whose samplers have other code now, or of which runs failed: DVC looks again."""
    for path in (root / scale).glob("*.json"):
        content = json.loads(path.read_text())
        code = content.pop("code", {})
        with suppress(ValueError):  # a sampler that is gone: its own stage says so
            if code_of(content) != code or _failed(path.stem, scale):
                path.unlink()


def stages(settings: Experiments) -> str:
    """The artifacts' stages, as text of `dvc.yaml`."""
    return "".join(
        _stage(name, (entry or {}).get("experiments", [])) for name, entry in settings.artifacts.items()
    )


def _stage(name: str, experiments: list[str]) -> str:
    results = [
        f"data/results/${{scale}}/{experiment}.{kind}"
        for experiment in experiments
        for kind in ("parquet", "json")
    ]
    if name in WHOLE_SCALE:
        results = ["data/results/${scale}"]
    lines = [
        f"  {name}:",
        f"    cmd: fedlib notebook run {name} --scale ${{scale}}",
        "    deps:",
        *(f"      - {dependency}" for dependency in [f"data/notebooks/{place(name)}.ipynb", *results]),
        "    outs:",
        f"      - data/artifacts/${{scale}}/{name}",
        "    metrics:",
        f"      - data/metrics/${{scale}}/{name}.json:",
        "          cache: false",
    ]
    return "\n".join(lines) + "\n"


def place(artifact: str) -> str:
    """Where an artifact's notebook is: "fedcor-table_1" -> "fedcor/table_1"."""
    return artifact.replace("-", "/", 1)


def write_stages(path: Path = PIPELINE) -> bool:
    """Bring the artifacts' part of `dvc.yaml` up to date; True if it changed."""
    text = path.read_text()
    if MARK not in text:
        raise ConfigError(
            f"{path.name} has lost the line {MARK.strip()!r}; put it back before the artifacts."
        )
    new = text[: text.index(MARK)] + MARK + stages(params.load(path.parent / params.PARAMS.name))
    if new == text:
        return False
    write_whole(path, new.encode())
    return True


def make_pages(scale: Scale, tell: Callable[[str], None] = print) -> list[str]:
    """Make the logs and pages that are not there, older than what they show or the code they use, or of other settings.

    Trains nothing: results come from the store and the archive (`results.collect`). Where a page lacks a method
    that another scale has (`site.INSTEAD`), its page at that scale is made too.

    Returns the commands that failed: what stops one page stops no other, and stands in the terminal.

    Raises:
        StoreError: another process makes pages, or packs the archive.
    """
    settings = params.load()
    with alone(ROOT / "data"):
        return _make_pages(settings, scale, tell)


def _make_pages(settings: Experiments, scale: Scale, tell: Callable[[str], None]) -> list[str]:
    from fedlib.commands import notebooks
    from fedlib.pages import site
    from fedlib.runs import results

    notebooks.normalise_all()
    names = [*settings.names, *settings.studies]
    shown = {name: (entry or {}).get("experiments", []) for name, entry in settings.artifacts.items()}
    with warm(os.environ) as environment:
        how = environment, tell
        failed = _run(_stale_logs(names, settings, scale), scale, *how)
        failed += _run(_stale_pages(shown, scale), scale, *how)
        if instead := site.INSTEAD.get(scale):
            gaps = {name for name in names if results.record(name, scale).get("missing", True)}
            used = {name for of in shown.values() if gaps & set(of) for name in of}
            failed += _run(_stale_logs(sorted(used), settings, instead), instead, *how)
            here, there = ({n: results.covered(of, at) for n, of in shown.items()} for at in (scale, instead))
            more = {name: of for name, of in shown.items() if there[name] - here[name]}
            failed += _run(_stale_pages(more, instead), instead, *how)
        return failed


def _stale_logs(names: Iterable[str], settings: Experiments, scale: Scale) -> list[list[str]]:
    """The commands that make what is stale of the tables and logs of experiments and studies."""
    from fedlib.analysis import studies
    from fedlib.commands import notebooks
    from fedlib.runs import archive, results
    from fedlib.runs.place import Place

    commands, folder, here = [], results.RESULTS, Place.from_environment()
    for name in names:
        packed, table = archive.path_of(name, scale), results.path_of(name, scale)
        made = (here, folder, archive.ARCHIVE, True)
        if name in settings.studies:
            log, known = "study", studies.Measured(name, scale, *made)
            addresses = [known.address(unit) for unit in studies.units_of(name, settings, scale)]
        else:
            log, known = "simulate", results.Finished(name, scale, settings.archived(name), *made)
            addresses = [known.address(one.run) for one in settings.runs(name, scale)]
        source = notebooks.NORMALISED / f"{log}.ipynb"
        shown = results.shows(name, scale, addresses)
        if any(addresses) and (not shown or _older(table.with_suffix(".ipynb"), [packed, table, source])):
            commands.append(["notebook", "run", log, "--experiment", name, "--only-finished"])
    return commands


def _stale_pages(shown: Mapping[str, list[str]], scale: Scale) -> list[list[str]]:
    """The commands that make what is stale of the pages of artifacts; shown: artifact -> experiments."""
    from fedlib.commands import notebooks
    from fedlib.runs import results

    commands = []
    for name, experiments in shown.items():
        page = ROOT / "data" / "artifacts" / scale / name / "notebook.ipynb"
        tables = [results.path_of(one, scale) for one in experiments]
        if name in WHOLE_SCALE:
            tables = list((results.RESULTS / scale).glob("*.parquet"))
        if _older(page, [*tables, notebooks.NORMALISED / f"{place(name)}.ipynb"]):
            commands.append(["notebook", "run", name])
    return commands


def _older(path: Path, others: Iterable[Path]) -> bool:
    """Whether a file is missing, or older than one of the others that are there."""
    if not path.exists():
        return True
    made = path.stat().st_mtime
    return any(other.exists() and other.stat().st_mtime > made for other in others)


def _run(
    commands: list[list[str]], scale: Scale, environment: Mapping[str, str], tell: Callable[[str], None]
) -> list[str]:
    """Run `fedlib` commands one after the other; returns those that failed."""
    failed = []
    for i, command in enumerate(commands, start=1):
        words = f"fedlib {' '.join(command)} --scale {scale}"
        tell(f"{i} of {len(commands)}: {words}")
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fedlib", *command, "--scale", scale],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        failed += [words] if done.returncode else []
    return failed


def repro(arguments: list[str]) -> int:
    """`dvc repro <arguments>` with one warm process for all its commands; returns DVC's exit status.

    Data that was not there the last time is looked for again, runs that failed are tried again; if any fails, this
    does, though all pages are made.
    """
    from fedlib.runs import results

    settings = params.load()
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )  # DVC, and what it runs
    with alone(ROOT / "data") as held:
        write_stages()
        forget_missing()
        forget_changed(settings.scale)
        ahead = nullcontext() if arguments else training_ahead()
        with warm({**os.environ, "PATH": path}) as environment, ahead:
            command = [sys.executable, "-m", "dvc", "repro", *arguments]
            done = subprocess.run(command, cwd=ROOT, env=environment, pass_fds=[held], check=False)
    failed = [one for name in settings.names for one in results.failed(results.record(name, settings.scale))]
    for one in failed:
        print(f"Failed: {one}", file=sys.stderr)
    return done.returncode or int(bool(failed))


@contextmanager
def training_ahead() -> Iterator[None]:
    """A process that trains small experiments, the last one first, while DVC goes through its stages one by one.

    Pages and small models keep one core busy; this uses another. Whoever comes second to a run finds it finished, or
    waits for it. What cannot be trained is told by its own stage.
    """
    process = subprocess.Popen([sys.executable, "-P", "-m", "fedlib.commands.pipeline"], cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def train_ahead() -> None:
    """What the process of `training_ahead` does: every experiment that a stage would train without workers."""
    from fedlib.runs import archive, results
    from fedlib.runs.place import FEW_ROUNDS, Place, cores
    from fedlib.runs.train import end_with_parent, train

    end_with_parent(os.getppid())
    place = replace(Place.from_environment(), workers=1)
    if place.scheduler or place.device != "cpu" or cores() == 1:
        return
    settings = params.load()
    scale = settings.scale
    for name in reversed(settings.names):
        while not (INPUTS / scale / f"{name}.json").exists():  # the data is not there yet
            time.sleep(0.5)
        with suppress(ConfigError, DataError, StoreError):
            runs = [one.run for one in settings.runs(name, scale)]
            kept = settings.archived(name)
            known = results.Finished(name, scale, kept, place, results.RESULTS, archive.ARCHIVE)
            lacking = [run for run in runs if known.digest(run.dataset) and not known.has(run)]
            if sum(run.T for run in lacking) < FEW_ROUNDS:
                train(lacking, place, tell=lambda line: None)


if __name__ == "__main__":
    train_ahead()
