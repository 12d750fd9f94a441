"""`fedlib repro`: `dvc repro`, but several stages at once, forked from one warm process; a line a stage; a log."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import IO, Any

from fedlib.errors import ConfigError
from fedlib.files import alone, say
from fedlib.runs.place import Place, cores
from fedlib.runs.progress import duration
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.commands import pipeline
from workspace.commands.command import CORES, Command, commands
from workspace.commands.dvc import Loop, reproduce
from workspace.commands.progress import StageProgress
from workspace.commands.stages import AGAIN, FORCED

LOG = ROOT / "data" / "repro.log"
REPORTS = ROOT / "reports"
ASKING = {"--dry", "--interactive", "-i"}  # DVC itself answers these, or asks


def repro(arguments: list[str], scale: Scale | None = None) -> int:
    """Make what is stale again; `arguments` are those of `dvc repro`. Returns DVC's exit status.

    scale: in place of the one in `params.yaml`, which stays as it is.

    Where the site is made, that of the papers' own settings follows, from the archive, without training and data.

    Missing data is looked for again, and failed runs are tried again. If any run fails, so does this command, but all
    pages are made. After a kill at any moment, the next `fedlib repro` goes on.

    Raises:
        ConfigError: DVC itself shall answer, which knows the scale of `params.yaml` alone.
        StoreError: another process makes pages, or packs the archive.
    """
    from fedlib.runs import archive, results

    settings = params.load()
    scale = scale or settings.scale
    with alone(ROOT / "data"):
        pipeline.write_stages()
        pipeline.forget_missing()
        pipeline.forget_changed(scale)
        if ASKING & set(arguments):
            if scale != settings.scale:
                raise ConfigError(f"DVC asks at the scale of params.yaml; first run: fedlib scale {scale}")
            if "--dry" in arguments:
                say(
                    "What these stages change makes others stale, which are not listed: experiments, then their pages."
                )
            return subprocess.call([sys.executable, "-m", "dvc", "repro", *arguments], cwd=ROOT)
        status, has_site = _reproduced(arguments, scale)
    if has_site and scale != "paper" and any(archived == "paper" for archived, _ in archive.all_of()):
        status = _site_of_papers() or status
    failed = [reason for name in settings.names for reason in results.failed(results.record(name, scale))]
    for reason in failed:
        say(f"Failed: {reason}")
    return status or int(bool(failed))


def _site_of_papers() -> int:
    """Make the site of the papers' own settings from the archive; returns the exit status."""
    began, tell = time.monotonic(), partial(print, flush=True)
    tell("Now the site of the papers' own settings, from the archive; nothing is trained.")
    failed = pipeline.make_pages("paper", tell, with_site=True)
    for command in failed:
        say(f"Failed, see above: {command}")
    if not failed:
        front = (REPORTS / "index.html").relative_to(ROOT)
        tell(
            f"Done in {duration(time.monotonic() - began)}: open {front} in a browser; the log is data/report.log."
        )
    return int(bool(failed))


def _reproduced(arguments: list[str], scale: Scale) -> tuple[int, bool]:
    """`dvc repro` with our loop: its exit status, and whether the site at this scale is made."""
    began, tell = time.monotonic(), partial(print, file=sys.stdout, flush=True)  # not where DVC's goes
    at_once, alone = min(cores(), pipeline.MOST), taking_all_cores(scale, Place.from_environment())
    progress = StageProgress(LOG.with_suffix(".json"), scale, at_once, alone, tell)
    with ExitStack() as stack:
        stack.enter_context(_terminated_as_interrupted())
        log = stack.enter_context(open(LOG, "w", encoding="utf-8", buffering=1))
        stack.callback(progress.keep)
        stack.enter_context(redirect_stdout(log))
        errors = stack.enter_context(redirect_stderr(Errors(log)))

        start_command = stack.enter_context(commands(log, tell))
        started: list[Command] = []

        def start(stage: str, command: str, environment: Mapping[str, str]) -> Command:
            progress.begins(stage)
            share = {} if alone(stage) else {CORES: str(max(1, cores() // at_once))}
            if FORCED & set(arguments):
                share[AGAIN] = "1"
            started.append(start_command(stage, command, {**environment, **share}))
            return started[-1]

        status = reproduce(arguments, Loop(start, progress, at_once, alone), ROOT, scale)
    where, site = LOG.relative_to(ROOT), REPORTS / scale / "index.html"
    has_site = not status and "report" in progress.needs and site.exists()
    if status == 252:  # DVC's for an interruption
        tell(f"Stopped. `fedlib repro` goes on from here; the log is {where}.")
    elif status:
        for line in [
            *(line for command in started if command.status for line in command.tail),
            *errors.messages,
        ]:
            say(line)
        say(f"Failed; the log is {where}. Once it is mended, `fedlib repro` goes on from here.")
    else:
        count = f"{len(progress.ran)} of {len(progress.needs)} stages had to run"
        opened = f": open {site.relative_to(ROOT)} in a browser" if has_site else ""
        tell(f"Done in {duration(time.monotonic() - began)} ({count}){opened}; the log is {where}.")
    return status, has_site


def taking_all_cores(scale: Scale, place: Place) -> Callable[[str], bool]:
    """Whether a stage trains with all cores, or where and with as many processes as its user says.

    At scale demo, trainings are short: to give each one core is faster.
    """
    one_each = scale == "demo" and (place.workers, place.device, place.scheduler) == (0, "cpu", None)
    return lambda stage: not one_each and stage.partition("@")[0] in ("simulate", "study")


class Errors:
    """Standard error while DVC runs: it goes into the log; DVC's error messages are kept too."""

    def __init__(self, log: IO[str]) -> None:
        self.log = log
        self.messages: list[str] = []

    def write(self, text: str) -> int:
        if "ERROR" in text:
            self.messages += text.strip().splitlines()
        return self.log.write(text)

    def flush(self) -> None:
        self.log.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


@contextmanager
def _terminated_as_interrupted() -> Generator[None]:
    """SIGTERM ends this as Ctrl-C does: `dvc.lock` is written first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
