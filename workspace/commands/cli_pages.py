"""Commands about pages: the report, the pipeline, README's tables and single notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlib.errors import ConfigError, meant
from workspace.commands.cli_options import MAINTAIN, Group, Scale, ScaleOption, settings_at, short, tell

commands = typer.Typer()
notebook_commands = typer.Typer(
    cls=Group, no_args_is_help=True, help="Run or normalise notebooks as the pipeline does."
)


new_commands = typer.Typer(
    cls=Group, no_args_is_help=True, help="Begin a paper, an artifact, a sampler or a dataset, and check it."
)


@commands.command()
def report(
    scale: ScaleOption = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="Use only existing pages; make none.")] = False,
) -> None:
    """Make the missing pages from finished or archived runs, and the site, without training: reports/<scale>/."""
    from workspace.commands import pipeline
    from workspace.pages import site

    _, scale = settings_at(scale)
    if as_is:
        site.render(scale)
    failed = [] if as_is else pipeline.make_pages(scale, tell, with_site=True)
    for command in failed:
        tell(f"Failed, see above: {command}")
    if (index := site.REPORTS / scale / "index.html").exists():
        typer.echo(f"Open {short(index)} in a browser.")
    raise typer.Exit(1 if failed else 0)


@commands.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def repro(context: typer.Context, scale: ScaleOption = None) -> None:
    """Make every page whose code, settings or results changed, then the site; or only the named pages.

    It does the same as `dvc repro`, with the same arguments, but faster: several stages run at once.
    What DVC and the stages print is kept in data/repro.log. After a stop or a kill, the same command goes on.

    Example: fedlib repro fedcor-table_1
    """
    from workspace.commands import pipeline
    from workspace.commands.repro import repro

    pipeline.without_git()
    raise typer.Exit(repro(context.args, scale))


@commands.command("open")
def open_(
    page: Annotated[
        str, typer.Argument(help="An artifact, such as fedcor-table_1, or a page, such as chooser.")
    ] = "",
    scale: Annotated[
        Scale | None, typer.Option(help="demo, cpu or paper; default: paper, or else what there is.")
    ] = None,
) -> None:
    """Open the site, or one of its pages, in a browser.

    Example: fedlib open fedcor-table_1
    """
    from fedlib.settings.schema import ROOT, SCALES

    sites = [ROOT / "reports" / name for name in ([scale] if scale else reversed(SCALES))]
    site = next((folder for folder in sites if (folder / "index.html").exists()), None)
    if site is None:
        raise ConfigError(
            f"{short(sites[0])}: there is no site yet; make it: fedlib report --scale {sites[0].name}"
        )
    name = page.replace("-", "/", 1) if page else "index"
    path = next((path for path in (site / f"{name}.html", site / name / "index.html") if path.exists()), None)
    if path is None:
        pages = [path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")]
        raise ConfigError(
            f"{short(site)} has no page {page!r}; {meant(name, [p for p in pages if p[0] != '_'][:20])}"
        )
    typer.echo(f"Opening {short(path)}.")
    typer.launch(path.as_uri())


@commands.command("pipeline", rich_help_panel=MAINTAIN)
def pipeline_() -> None:
    """Update the artifacts' stages in dvc.yaml from params.yaml."""
    from workspace.commands import pipeline

    changed = pipeline.write_stages()
    typer.echo("dvc.yaml: " + ("rewritten." if changed else "up to date."))


@commands.command(rich_help_panel=MAINTAIN)
def readme() -> None:
    """Update README's answer, its picture and its findings, and the letters to authors, from the archive."""
    from workspace.pages import readme
    from workspace.pages.evidence import Evidence

    evidence = Evidence.load("paper")
    changed = [readme.write(), readme.write_answer(), readme.write_letters(evidence)]
    readme.draw_headlines(evidence)
    typer.echo("README.md and letters: " + ("rewritten." if any(changed) else "up to date."))


@commands.command(rich_help_panel=MAINTAIN)
def freeze(paper: Annotated[str, typer.Argument(help="A folder of workspace/papers/.")]) -> None:
    """Freeze a paper's claims as they are now, before their runs; a change of frozen ones needs an amendment."""
    from workspace.analysis import frozen

    typer.echo(
        f"workspace/papers/{paper}/frozen.csv: written. Its amendments name it so: {frozen.first(paper)}"
    )


@commands.command(rich_help_panel=MAINTAIN)
def fairness() -> None:
    """Update data/error_rates.csv: both error rates of every claim."""
    from workspace.analysis import power

    typer.echo("data/error_rates.csv: " + ("rewritten." if power.write() else "up to date."))


@commands.command(rich_help_panel=MAINTAIN)
def effects(scale: ScaleOption = None) -> None:
    """Update the effects table of a scale (data/effects/<scale>.parquet), which pages and README read."""
    from workspace.analysis import effects

    _, scale = settings_at(scale)
    typer.echo(f"data/effects/{scale}.parquet: {len(effects.load(scale))} rows.")


@commands.command(rich_help_panel=MAINTAIN)
def deposit(
    folder: Annotated[Path, typer.Option(help="Where to write it.")] = Path("."),
) -> None:
    """Pack source, archive and site with checksums into one file, for a repository of research data."""
    from workspace.commands import deposit

    packed = deposit.pack(folder)
    typer.echo(
        f"{packed}: {packed.stat().st_size / 1e6:.0f} MB. In its folder, `sha256sum --check SHA256SUMS` verifies it."
    )


@notebook_commands.command("run")
def notebook_run(
    name: Annotated[str, typer.Argument(help="An artifact, such as fedcor-table_1, or `simulate`.")],
    scale: ScaleOption = None,
    experiment: Annotated[str | None, typer.Option(help="With `simulate`: the experiment.")] = None,
    only_finished: Annotated[
        bool, typer.Option("--only-finished", help="With `simulate`: do not train.")
    ] = False,
) -> None:
    """Run an artifact's notebook, or `simulate` for one experiment, as the pipeline does."""
    from workspace.commands import notebooks

    _, scale = settings_at(scale)
    typer.echo(f"{short(notebooks.run(name, scale, experiment, only_finished))}: written.")


@notebook_commands.command("normalise")
def notebook_normalise(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Normalise these in place. Default: copy all to data/notebooks."),
    ] = None,
) -> None:
    """Remove outputs, counts and editor metadata from notebooks."""
    from workspace.commands import notebooks

    for path in paths or []:
        notebooks.clean(path)
    if not paths:
        typer.echo(f"{len(notebooks.normalise_all())} notebooks normalised.")


@new_commands.command("paper")
def new_paper(
    name: Annotated[str, typer.Argument(help="Its folder, such as power_of_choice.")],
    title: Annotated[str, typer.Option(help="Its short title.")] = "",
    year: Annotated[int, typer.Option(help="Of its publication; default: this year.")] = 0,
    authors: Annotated[str, typer.Option(help="As they are cited.")] = "Nobody",
) -> None:
    """A folder with a claim, readings and an article, an experiment, a figure and a test: an example to replace."""
    from workspace.commands import new

    list_files(new.paper(name, title, year, authors))
    tell(f"Then: fedlib freeze {name}, fedlib fairness, fedlib new check {name} (docs/add-a-paper.md).")


@new_commands.command("artifact")
def new_artifact(
    name: Annotated[str, typer.Argument(help="<folder>-<name>, such as fedcor-figure_8.")],
    experiments: Annotated[list[str] | None, typer.Argument(help="The experiments that it opens.")] = None,
) -> None:
    """A notebook that opens experiments, its line in params.yaml and its stage in dvc.yaml."""
    from workspace.commands import new

    list_files(new.artifact(name, experiments or []))


@new_commands.command("sampler")
def new_sampler(name: Annotated[str, typer.Argument(help="As params.yaml will name it.")]) -> None:
    """A file of a sampler and its test."""
    from workspace.commands import new

    list_files(new.sampler(name))
    tell(f"Then: python tests/test_pins.py, fedlib revision keep {name}, fedlib new check {name}.")


@new_commands.command("dataset")
def new_dataset(name: Annotated[str, typer.Argument(help="As params.yaml will name it.")]) -> None:
    """A file of a dataset."""
    from workspace.commands import new

    list_files(new.dataset(name))
    tell(f"Then: fedlib data prepare {name}, fedlib new check {name}.")


@new_commands.command("check")
def new_check(name: Annotated[str, typer.Argument(help="Of the addition.")]) -> None:
    """Run the tests that an addition must pass, its own and those of all entries and records."""
    from workspace.commands import new

    raise typer.Exit(new.check(name))


def list_files(files: list[Path]) -> None:
    for path in files:
        typer.echo(short(path))
