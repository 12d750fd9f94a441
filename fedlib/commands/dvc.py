"""`dvc repro` in this process: stages' commands are run by a function of ours, and `dvc.lock` is written seldom.

DVC reads and writes its whole lock file after every stage. Here this happens every half minute and at the end. A kill
in between loses nothing: DVC's run cache holds the outputs of every finished stage and restores them.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from fedlib.files import write_whole

LOCK_SECONDS = 30.0  # between two writes of dvc.lock


class Watch(Protocol):
    """Follows DVC through the stages, by their names."""

    def planned(self, needs: Mapping[str, set[str]], known: set[str]) -> None:
        """All stages in order, each with those that it needs; known: those that `dvc.lock` knows."""

    def ended(self, name: str) -> None:
        """DVC is done with a stage, whether its command ran or not."""


class Lock:
    """What `dvc.lock` shall say of the stages that ran."""

    def __init__(self) -> None:
        self.waiting: dict[Path, dict[str, Any]] = {}
        self.written = time.monotonic()

    def add(self, stage: Any) -> None:
        from dvc.stage.serialize import to_lockfile

        path = Path(stage.dvcfile._lockfile.path)
        self.waiting.setdefault(path, {}).update(to_lockfile(stage))
        if time.monotonic() - self.written > LOCK_SECONDS:
            self.write()

    def write(self) -> None:
        from dvc.utils.serialize import dumps_yaml, load_yaml

        for path, stages in self.waiting.items():
            content = load_yaml(path) if path.exists() else {}
            content = {"schema": "2.0", **content}
            content["stages"] = {**content.get("stages", {}), **stages}
            write_whole(path, dumps_yaml(content).encode())
        self.waiting.clear()
        self.written = time.monotonic()


def reproduce(
    arguments: list[str], run: Callable[[str, str, Mapping[str, str]], int], watch: Watch, root: Path
) -> int:
    """`dvc repro <arguments>` in a project's folder; returns its exit status.

    run: stage, command, environment -> the command's exit status.
    """
    release_killed(root / ".dvc" / "tmp" / "rwlock")
    kept = root / "dvc.lock"
    if (
        kept.exists() and not kept.stat().st_size
    ):  # a `dvc repro` killed as it wrote; the run cache has the stages
        kept.unlink()
    cli, reproducing, running, errors = (
        importlib.import_module(f"dvc.{name}")
        for name in ("cli", "repo.reproduce", "stage.run", "stage.exceptions")
    )
    lock, every = Lock(), reproducing._reproduce

    def stages(steps: list[Any], graph: Any = None, **options: Any) -> list[Any]:
        needs = {one.addressing: set() for one in steps}
        if graph is not None:
            needs = {one.addressing: {other.addressing for other in graph.successors(one)} for one in steps}
        watch.planned(
            needs, {one.addressing for one in steps if one.outs and all(out.hash_info for out in one.outs)}
        )
        return every(steps, graph=graph, repro_fn=stage, **options)

    def stage(one: Any, **options: Any) -> Any:
        try:
            ran = one.reproduce(**options)
        finally:
            watch.ended(one.addressing)
        if ran and not options.get("dry"):
            if hasattr(one.dvcfile, "_lockfile"):
                lock.add(one)
            else:  # a file of `dvc add`
                one.dump(update_pipeline=False)
        return ran

    def command(_: Any, text: str, *, env: Mapping[str, str], **others: Any) -> None:
        if status := run(env["DVC_STAGE"], text, env):
            raise errors.StageCmdFailedError(text, status)

    with _replaced(reproducing, "_reproduce", stages), _replaced(running, "_run", command):
        try:
            return cli.main(["--cd", str(root), "repro", *arguments])
        finally:
            lock.write()


@contextmanager
def _replaced(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    old = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, old)


def release_killed(rwlock: Path) -> None:
    """Drop what killed processes left in DVC's record of who reads and writes what.

    DVC drops the entries of processes that are gone, but stops at a half-written record, and at an entry whose
    number is another process's now.
    """
    with suppress(FileNotFoundError):
        try:
            held = json.loads(rwlock.read_bytes())
            readers = [one for of in held.get("read", {}).values() for one in of]
            numbers = {one["pid"] for one in [*readers, *held.get("write", {}).values()]}
        except (ValueError, AttributeError, TypeError, KeyError):
            rwlock.unlink()
            return
        written = rwlock.stat().st_mtime
        for number in numbers:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(number).create_time() <= written:
                    return
        rwlock.unlink()
