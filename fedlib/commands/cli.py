"""`fedlib`: what one does with this project from a terminal. Every command imports only what it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedlib.files import StoreError, Unfinished


class ScaleName(StrEnum):
    demo = "demo"
    cpu = "cpu"
    paper = "paper"


commands = typer.Typer(
    name="fedlib",
    help="Client selection in federated learning: four papers, re-run claim by claim.",
    epilog="Begin with `fedlib doctor` and `fedlib list`; then `fedlib run cs_mnist`, or `fedlib repro` for all pages.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_commands = typer.Typer(no_args_is_help=True, help="Datasets: what is here, get one ready, check one.")
notebook_commands = typer.Typer(no_args_is_help=True, help="Run or normalise notebooks as the pipeline does.")
commands.add_typer(data_commands, name="data")
commands.add_typer(notebook_commands, name="notebook")

SEEDS = 10_000  # of a range

ScaleOption = Annotated[
    ScaleName | None, typer.Option("--scale", help="demo, cpu or paper; default: what params.yaml says.")
]


@commands.command("list")
def list_(
    paper: Annotated[
        str | None, typer.Option(help="Only what belongs to this paper (or `arena`).", metavar="NAME")
    ] = None,
    scale: ScaleOption = None,
) -> None:
    """Experiments, studies, artifacts, samplers and datasets, by the names that the other commands take.

    Example: fedlib list --paper fedcor
    """
    from rich.console import Console

    from fedlib.commands import listing
    from fedlib.settings import params

    settings = params.load()
    Console().print(listing.everything(settings, scale.value if scale else settings.scale, paper))


@commands.command()
def run(
    experiment: Annotated[
        str,
        typer.Argument(help="An experiment's name in params.yaml, or a study's; `fedlib list` shows them."),
    ],
    scale: ScaleOption = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Only these: `--methods MD,FedCor`, or the option once a method.", metavar="NAMES"),
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option(help="Only these: 0,3 or 0-4, or several times.", metavar="NUMBERS")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", help="Only this one of the experiment's grid; may be repeated.", metavar="NAME"
        ),
    ] = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Of runs that fail, show where in their code.")
    ] = False,
) -> None:
    """Train what an experiment (or measure what a study) still lacks, and write its table; nothing is done twice.

    Killed or stopped, the same command continues from the last checkpoints.

    Where it trains, environment variables say:

    - FEDLIB_WORKERS: processes side by side (default: what cores and work suggest)

    - FEDLIB_DEVICE: cpu (default) or cuda

    - FEDLIB_SCHEDULER: address of a Dask scheduler, whose workers then train

    Example: fedlib run cs_mnist --scale demo --methods MD --seeds 0-2
    """
    from fedlib.settings import params

    experiments, at = params.load(), scale and scale.value
    if experiment in experiments.studies:
        if methods or seeds or settings:
            raise typer.BadParameter(
                f"{experiment} is a study: it is measured whole, without --methods, --seeds and --setting"
            )
        from fedlib.analysis.studies import run_study

        path = run_study(experiment, at, tell=_tell)
    else:
        planned = experiments.runs(experiment, at)
        chosen = {
            "methods": _named(methods, {one.method for one in planned}) if methods else None,
            "seeds": [number for text in seeds for number in _numbers(text)] if seeds else None,
            "settings": settings or None,
        }
        params.choose(planned, **chosen)  # what is misspelt is told before torch is imported
        from fedlib.runs.results import Failed, simulate

        try:
            path = simulate(experiment, at, **chosen, tell=_tell)
        except Failed as failed:
            for name, trace in failed.traces.items() if traceback else ():
                _tell(f"{name}:\n{trace}")
            raise
    typer.echo(f"{_short(path)}: written.")


@commands.command("next")
def next_(
    within: Annotated[str, typer.Option(help="How long it may take: 90s, 150m, 8h.", metavar="TIME")],
    scale: ScaleOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
) -> None:
    """Train what decides most claims an hour first, for so long, and archive what is finished at once.

    Times are estimated from this machine's measured speed. What is not finished in the time is kept at its last
    checkpoint; repeat the command to go on.

    Example: fedlib next --within 8h --scale paper
    """
    import time

    from fedlib.analysis import planning
    from fedlib.commands import next as next_runs
    from fedlib.settings import params

    began, seconds = time.monotonic(), next_runs.seconds_of(within)
    settings = params.load()
    at = scale.value if scale else settings.scale
    chosen = planning.fitting(next_runs.plan(settings, at, _tell), seconds)
    for line in next_runs.lines(chosen) or ["Nothing that could decide a claim fits into this time."]:
        typer.echo(line)
    if not dry_run:
        next_runs.train(chosen, at, began + seconds, _tell)


@commands.command()
def scale(name: Annotated[ScaleName | None, typer.Argument(help="demo, cpu or paper.")] = None) -> None:
    """Show the current scale, or change it: rewrites that one line of params.yaml."""
    from fedlib.commands import pipeline
    from fedlib.settings import params

    if name:
        pipeline.set_scale(name.value)
    typer.echo(f"scale: {params.load().scale}")


@commands.command()
def results(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments and studies. Default: all.")] = None,
    scale: ScaleOption = None,
) -> None:
    """Write the tables of what is finished or archived, whole or in part; trains nothing."""
    from fedlib.analysis.collect import collect

    _each(names, scale, collect)


@commands.command()
def archive(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments and studies. Default: all.")] = None,
    scale: ScaleOption = None,
) -> None:
    """Pack what is finished, whole or in part, into data/archive, which is in git.

    Runs that are archived already stay, as long as params.yaml still has their settings. An experiment whose runs
    are all in the archives of others gets none.
    """
    from fedlib.analysis.collect import pack
    from fedlib.files import alone
    from fedlib.settings.schema import ROOT

    with alone(ROOT / "data"):
        _each(names, scale, pack)


def _each(names: list[str] | None, scale: ScaleName | None, make: Callable[..., Path]) -> None:
    """`make(name, scale, tell)` of those named; of all, those that have anything finished."""
    from fedlib.data.sources import DataError
    from fedlib.settings import params

    settings = params.load()
    at = scale.value if scale else settings.scale
    for name in names or [*settings.names, *settings.studies]:
        try:
            path = make(name, at, _tell if names else lambda line: None)
        except (DataError, Unfinished):
            if names:
                raise
            continue
        typer.echo(f"{_short(path)}: {path.stat().st_size / 1024:,.0f} KiB")


@commands.command()
def verify(
    retrain: Annotated[
        int,
        typer.Option(
            min=0, max=10_000, help="Train so many archived runs again, drawn at random.", metavar="N"
        ),
    ] = 0,
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Of each run, its first so many.")] = 20,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which runs are drawn.")] = 0,
    scale: ScaleOption = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Give archives of before their digests and present addresses.")
    ] = False,
) -> None:
    """Check that all that is stored is what was written; with --retrain N, that archived runs come out the same.

    The exit status is 0 only if it is. Example: fedlib verify --retrain 3 --scale paper
    """
    from rich.console import Console

    from fedlib.commands import verify as verifying
    from fedlib.files import alone
    from fedlib.settings import params
    from fedlib.settings.schema import ROOT

    if renew:
        with alone(ROOT / "data"):
            for line in verifying.renewed():
                typer.echo(line)
    if retrain:
        at = scale.value if scale else params.load().scale
        found, good = verifying.trained_again(at, retrain, rounds, seed, _tell)
        Console().print(found)
        raise typer.Exit(0 if good else 1)
    found, wrong = verifying.checked()
    Console().print(found)
    for sentence in wrong:
        _tell(sentence)
    raise typer.Exit(1 if wrong else 0)


@commands.command()
def report(
    scale: ScaleOption = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="Only the pages that are made; make none.")] = False,
) -> None:
    """Make the pages that are not there yet from what is finished or archived, and the site; trains nothing."""
    from fedlib.commands import pipeline
    from fedlib.pages import site
    from fedlib.settings import params

    at = scale.value if scale else params.load().scale
    failed = [] if as_is else pipeline.make_pages(at, _tell)
    index = site.render(at)
    typer.echo(f"Open {_short(index)} in a browser.")
    for command in failed:
        _tell(f"Failed, see above: {command}")
    raise typer.Exit(1 if failed else 0)


@commands.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def repro(context: typer.Context) -> None:
    """Make every page again whose code, settings or results changed, then the site; or only the pages that are named.

    It is `dvc repro`, sooner: the same pipeline and arguments, with one warm process for all its commands.

    Example: fedlib repro fedcor-table_1
    """
    from fedlib.commands import pipeline

    raise typer.Exit(pipeline.repro(context.args))


@commands.command("pipeline")
def pipeline_() -> None:
    """Bring the artifacts' stages in dvc.yaml up to date with params.yaml."""
    from fedlib.commands import pipeline

    changed = pipeline.write_stages()
    typer.echo("dvc.yaml: " + ("rewritten." if changed else "up to date."))


@commands.command()
def readme() -> None:
    """Bring README's scoreboard and headline tables up to date with the archive."""
    from fedlib.pages import readme

    typer.echo("README.md: " + ("rewritten." if readme.write() else "up to date."))


@commands.command()
def doctor(
    scale: ScaleOption = None,
    node_cores: Annotated[
        int | None,
        typer.Option(
            min=1, help="Say what a whole scale takes on 1, 10 and 100 nodes of so many such cores."
        ),
    ] = None,
) -> None:
    """Check the environment, the data and the disk, and say what a scale would cost in time on this machine."""
    from rich.console import Console
    from rich.live import Live

    from fedlib.commands import listing
    from fedlib.settings import params

    console = Console()
    settings = params.load()
    at = scale.value if scale else settings.scale
    if node_cores:
        with console.status("measuring this machine ..."):
            found = listing.cluster(settings, at, node_cores)
        console.print(found)
        return
    console.print(listing.environment())
    with Live(console=console) as live:
        live.update("measuring this machine ...")
        listing.costs(settings, at, live.update)
    console.print(listing.measurements(settings, at))


@data_commands.command("status")
def data_status() -> None:
    """Every dataset: prepared, missing or damaged, and where it came from."""
    from rich.console import Console

    from fedlib.commands import listing

    Console().print(listing.datasets())


@data_commands.command("prepare")
def data_prepare(
    names: Annotated[
        list[str] | None, typer.Argument(help="digits, mnist, ...; `fedlib data status` names all.")
    ] = None,
    needed: Annotated[
        bool, typer.Option("--needed", help="All that the experiments need at a scale.")
    ] = False,
    scale: ScaleOption = None,
    mirror: Annotated[Path | None, typer.Option(help="Folder to take files from (or FEDLIB_MIRROR).")] = None,
) -> None:
    """Get datasets ready: from a mirror folder if there is one, else by download. Contents are verified."""
    if not names and not needed:
        raise typer.BadParameter("name the datasets, or say --needed")
    if needed:
        from fedlib.commands import pipeline

        for problem in pipeline.prepare_inputs(scale and scale.value).values():
            typer.secho(f"Not available, its experiments will say so: {problem}", fg="yellow", err=True)
    if names:
        from fedlib.commands import pipeline
        from fedlib.data import datasets

        for name in names:
            path = datasets.prepare(name, mirror)
            pipeline.forget_missing(name)
            typer.echo(f"{_short(path)}: {datasets.status(name)['provenance']}")


@data_commands.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all prepared.")] = None,
) -> None:
    """Hash the prepared arrays anew and compare with what was recorded."""
    from fedlib.data import datasets

    for name in names or [n for n in datasets.KINDS if datasets.status(n)["state"] != "missing"]:
        typer.echo(f"{name}: {datasets.verify(name)}")


@notebook_commands.command("run")
def notebook_run(
    name: Annotated[str, typer.Argument(help="An artifact, e.g. fedcor-table_1, or `simulate`.")],
    scale: ScaleOption = None,
    experiment: Annotated[str | None, typer.Option(help="With `simulate`: which one.")] = None,
    only_finished: Annotated[
        bool, typer.Option("--only-finished", help="With `simulate`: train nothing.")
    ] = False,
) -> None:
    """Run an artifact's notebook, or `simulate` for one experiment, as the pipeline does."""
    from fedlib.commands import notebooks
    from fedlib.settings import params

    at = scale.value if scale else params.load().scale
    typer.echo(f"{_short(notebooks.run(name, at, experiment, only_finished))}: written.")


@notebook_commands.command("normalise")
def notebook_normalise(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Clean these in place. Default: copy all to data/notebooks.")
    ] = None,
) -> None:
    """Strip outputs, counts and editor's metadata from notebooks."""
    from fedlib.commands import notebooks

    for path in paths or []:
        notebooks.clean(path)
    if not paths:
        typer.echo(f"{len(notebooks.normalise_all())} notebooks normalised.")


def _named(given: list[str], known: set[str]) -> list[str]:
    """Methods as given: each a name (which may hold commas: "Random, attrition") or names separated by commas."""
    return [
        name.strip()
        for text in given
        for name in ([text] if text.strip() in known else text.split(","))
        if name.strip()
    ]


def _numbers(text: str) -> list[int]:
    """ "0,3" or "0-4" -> the numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        if not (ends := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)):
            raise typer.BadParameter(f"{text[:80]!r} is no list of seeds; write 0,3 or 0-4")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < first + SEEDS:
            raise typer.BadParameter(f"{text[:80]!r}: a range goes up, by {SEEDS:,} seeds at most")
        numbers += range(first, last + 1)
    return numbers


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _short(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def app() -> int:
    """Run a command; what a person can mend is said in one sentence, with exit status 1."""
    try:
        return commands(standalone_mode=True) or 0
    except Exception as error:
        if not isinstance(error, tuple(_mendable())):
            raise
        print(error, file=sys.stderr)
        return 1


def _mendable() -> Iterator[type[Exception]]:
    """The errors that are written for people; what was not imported was not raised, and importing it takes seconds."""
    yield StoreError
    for module, name in (
        ("fedlib.settings.errors", "ConfigError"),
        ("fedlib.data.sources", "DataError"),
        ("fedlib.simulation.guard", "SamplerError"),
        ("papermill.exceptions", "PapermillExecutionError"),
    ):
        if module in sys.modules:
            yield getattr(sys.modules[module], name)
