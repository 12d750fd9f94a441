"""`dvc repro` in this process: several stages at once, by commands of ours, and `dvc.lock` is written seldom.

DVC runs stages one by one, and reads and writes its whole lock file after every one. Here stages that do not need each
other run at the same time, and the lock file is written every half minute and at the end. A kill in between loses
nothing: DVC's run cache holds the outputs of every finished stage and restores them.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fedlib.errors import ConfigError
from fedlib.files import say, write_whole
from fedlib.settings.reading import read
from workspace.commands.command import Command, Start
from workspace.commands.progress import StageProgress, in_turn

LOCK_SECONDS = 30.0  # between two writes of dvc.lock


class LockFile:
    """What `dvc.lock` shall say of the stages that ran."""

    def __init__(self) -> None:
        self.waiting: dict[Path, dict[str, Any]] = {}
        self.write_time = time.monotonic()

    def add(self, stage: Any) -> None:
        from dvc.stage.serialize import to_lockfile

        path = Path(stage.dvcfile._lockfile.path)
        self.waiting.setdefault(path, {}).update(to_lockfile(stage))
        if time.monotonic() - self.write_time > LOCK_SECONDS:
            self.write()

    def write(self) -> None:
        from dvc.utils.serialize import dumps_yaml, load_yaml

        for path, stages in self.waiting.items():
            content = load_yaml(path) if path.exists() else {}
            content = {"schema": "2.0", **content}
            content["stages"] = {**content.get("stages", {}), **stages}
            write_whole(path, dumps_yaml(content).encode())
        self.waiting.clear()
        self.write_time = time.monotonic()


@dataclass(frozen=True)
class Loop:
    """DVC's loop over stages, with several commands at once.

    DVC's code is not made for threads. So one thread at a time has its turn to run it, with DVC's lock of the project.
    While a stage's command runs, its thread gives up both, as DVC gives up its lock.

    start: stage, command, environment -> the command. at_once: most commands at once. alone: whether a stage's command
    has no other beside it.
    """

    start: Start
    watch: StageProgress
    at_once: int
    alone: Callable[[str], bool]
    lock: LockFile = field(default_factory=LockFile)
    turn: threading.Lock = field(default_factory=threading.Lock)
    commands: set[Command] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)

    def stages(
        self,
        steps: list[Any],
        graph: Any = None,
        force_downstream: bool = False,
        on_error: str = "fail",
        force: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Bring stages up to date, each after those that it needs; returns those that ran.

        In place of `dvc.repo.reproduce._reproduce`, whose errors and options these are.
        """
        if not steps:
            return []
        dvc = importlib.import_module("dvc.repo.reproduce")
        needed = {step: list(graph.successors(step)) if graph else steps[:k] for k, step in enumerate(steps)}
        self.watch.planned(
            {step.addressing: {stage.addressing for stage in stages} for step, stages in needed.items()},
            {
                step.addressing
                for step in steps
                if step.outs and all(output.hash_info for output in step.outs)
            },
        )
        waiting, ran, failed, forced = list(steps), [], {}, set(steps if force else ())

        def work(stage: Any) -> Any:
            return self._stage(
                stage, upstream=needed[stage] if graph else [], force=stage in forced, **options
            )

        with (
            _given_up(steps[0].repo.lock),
            closing(in_turn(waiting, needed, work, self._stop, self.at_once, self._room)) as turns,
        ):
            for stage, future in turns:
                error = future.exception()
                if isinstance(error, Exception):
                    failed[stage] = error
                    skipped = dvc.handle_error(graph, on_error, error, stage)
                    waiting[:] = [] if on_error == "fail" else [s for s in waiting if s not in skipped]
                    continue
                if force_downstream and graph and (future.result() or stage in forced):
                    forced |= set(graph.predecessors(stage))
                ran += filter(None, [future.result()])
        if failed and on_error != "ignore":
            dvc._raise_error(next(iter(failed.values())) if on_error == "fail" else None, *failed)
        return ran

    def run(self, _: Any, text: str, *, env: Mapping[str, str], **options: Any) -> None:
        """Run a stage's command; in place of `dvc.stage.run._run`."""
        from dvc.stage.exceptions import StageCmdFailedError

        if self.stopped.is_set():
            raise StageCmdFailedError(text)
        command = self.start(env["DVC_STAGE"], text, env)
        self.commands.add(command)
        self.turn.release()
        try:
            status = command.wait()
        finally:
            self.turn.acquire()
            self.commands.remove(command)
        if status:
            raise StageCmdFailedError(text, status)

    def _stage(self, stage: Any, **options: Any) -> Any:
        with self.turn, stage.repo.lock:
            well = False
            try:
                ran = stage.reproduce(**options)
                well = True
            finally:
                self.watch.ended(stage.addressing, well)
            if ran and hasattr(stage.dvcfile, "_lockfile"):
                self.lock.add(stage)
            elif ran:  # a file of `dvc add`
                stage.dump(update_pipeline=False)
        return ran

    def _room(self, stage: Any, running: Iterable[Any]) -> bool:
        """Whether a stage may run beside the others that do."""
        running = list(running)
        return not running or not any(self.alone(step.addressing) for step in [stage, *running])

    def _stop(self) -> None:
        with self.turn:
            self.stopped.set()
            for command in self.commands:
                command.stop()


@contextmanager
def _given_up(lock: Any) -> Generator[None]:
    """DVC's lock of the project, which this thread holds, is free for those of the stages."""
    lock.unlock()
    try:
        yield
    finally:
        lock.lock()


def reproduce(arguments: list[str], loop: Loop, root: Path, scale: str = "") -> int:
    """`dvc repro <arguments>` in a project's folder; returns its exit status.

    scale: of the stages, in place of the one in `params.yaml`.
    """
    release_killed(root / ".dvc" / "tmp" / "rwlock")
    lock = root / "dvc.lock"
    if lock.exists() and not lock.stat().st_size:  # killed as it was written; the run cache has the stages
        lock.unlink()
    cli, reproducing, running = (
        importlib.import_module(f"dvc.{name}") for name in ("cli", "repo.reproduce", "stage.run")
    )
    context = importlib.import_module("dvc.parsing.context").Context
    load = context.load_from_vars

    def with_scale(values: Any, *paths: Any, **options: Any) -> None:
        load(values, *paths, **options)
        if scale and "scale" in values:
            values["scale"] = scale

    with (
        _replaced(reproducing, "_reproduce", loop.stages),
        _replaced(running, "_run", loop.run),
        _replaced(context, "load_from_vars", with_scale),
    ):
        command = ["--cd", str(root), "repro", *arguments]
        try:
            status = cli.main(command)
            return cli.main(command) if status and _damaged(lock) else status
        finally:
            loop.lock.write()


def _damaged(lock: Path) -> bool:
    """Whether a merge or an editor left DVC's lock file unreadable, which is then dropped."""
    try:
        read(lock) if lock.exists() else None
    except ConfigError as error:
        say(f"{error} It is made again, from DVC's run cache.")
        lock.unlink()
        return True
    return False


@contextmanager
def _replaced(module: Any, name: str, function: Callable[..., Any]) -> Generator[None]:
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
            entries = json.loads(rwlock.read_bytes())
            readers = [process for processes in entries.get("read", {}).values() for process in processes]
            numbers = {process["pid"] for process in [*readers, *entries.get("write", {}).values()]}
        except (ValueError, AttributeError, TypeError, KeyError):
            rwlock.unlink()
            return
        modified = rwlock.stat().st_mtime
        for number in numbers:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(number).create_time() <= modified:
                    return
        rwlock.unlink()
