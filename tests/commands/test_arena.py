"""The arena: the example submission goes the way of all submissions, and one that breaks a rule is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pandas as pd
import pytest
from copies import copy_project

from fedlib.errors import ConfigError, SamplerError, StoreError
from fedlib.runs import archive as archives
from fedlib.runs.archive import read
from fedlib.samplers import SAMPLERS
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.analysis import arena
from workspace.analysis.arena import HOME, Rules, Submission
from workspace.commands import arena as command

EXAMPLE = HOME / "submissions" / "last_loss"
EXPERIMENT = "arena_tasks"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example submission; no sampler of it stays registered."""
    shutil.copytree(EXAMPLE, tmp_path / "last_loss", ignore=shutil.ignore_patterns("paper", "__pycache__"))
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FEDLIB_DATASETS", str(tmp_path / "datasets"))
    before = set(SAMPLERS)
    yield tmp_path / "last_loss"
    for name in set(SAMPLERS) - before:
        del SAMPLERS[name]


def write(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def folder_parameters(folder: Path) -> str:
    return next(
        line for line in (folder / "last_loss.yaml").read_text().splitlines() if line.startswith("param")
    )


def check(folder: Path, seed: int | None = 0) -> list[str]:
    lines: list[str] = []
    command.check(Submission.open(folder), "demo", params.load(), lines.append, seed)
    return lines


def edit(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change the rows of a submission's archive, and seal it again as if they had been measured."""
    Submission.open(folder).load()
    packed = read(EXPERIMENT, "demo", folder)
    archives.write(EXPERIMENT, "demo", (), change(packed.table.copy()), list(packed.runs), folder)


def test_ci_accepts_the_example_in_a_clean_copy(tmp_path: Path) -> None:
    environment = copy_project(tmp_path)
    for words in (
        "arena check arena/submissions/last_loss",
        "run arena_tasks --methods Random,Target",
        "arena score",
    ):
        done = forked.run(["fedlib", *words.split()], tmp_path, environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Last loss" in done.stdout
    assert Rules.read().digest in done.stdout


def test_every_submission_is_well_formed_and_names_another_method() -> None:
    names = [submission.description.name for submission in arena.submissions(Rules.read())]
    assert "Last loss" in names
    assert len(set(names)) == len(names)


def test_every_row_has_the_version_and_the_digest_of_the_rules(folder: Path) -> None:
    submission = Submission.open(folder)
    submission.load()
    assert set(submission.rows("demo")["rules"]) == {Rules.read().stamp}


@pytest.mark.bad_input
@pytest.mark.parametrize("column", ["test_accuracy", "scalars_up"])
def test_edited_numbers_are_caught_by_training_again(folder: Path, column: str) -> None:
    """One round of every run, sealed again: nothing but training can tell."""

    def better(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[rows["round"] == 30, column] += 0.01 if column == "test_accuracy" else 1
        return rows

    edit(folder, better)
    with pytest.raises(StoreError, match="differs from round 30 on when it is trained again"):
        check(folder)


@pytest.mark.bad_input
def test_edited_choices_are_no_excuse_for_other_numbers(folder: Path) -> None:
    """A sampler that learns may choose otherwise on another processor; in the arena that does not pass unseen."""

    def other(rows: pd.DataFrame) -> pd.DataFrame:
        later = rows["round"] >= 20
        rows.loc[later, "clients"] = rows.loc[later, "clients"].map(lambda ids: sorted(ids))
        rows.loc[later, "test_accuracy"] = 0.95
        return rows

    edit(folder, other)
    with pytest.raises(StoreError, match="differs from round 20 on"):
        check(folder)


@pytest.mark.bad_input
def test_an_archive_edited_without_its_seal_is_refused(folder: Path) -> None:
    path = folder / "demo" / f"{EXPERIMENT}.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot be used"):
        check(folder)


@pytest.mark.bad_input
def test_missing_and_additional_runs_are_refused(folder: Path) -> None:
    Submission.open(folder).load()
    packed = read(EXPERIMENT, "demo", folder)
    fewer = [record for record in packed.runs if (record["method"], record["seed"]) != ("Last loss", 1)]
    table = packed.table
    rows = table[(table["method"] != "Last loss") | (table["seed"] != 1)]
    archives.write(EXPERIMENT, "demo", (), rows, fewer, folder)
    with pytest.raises(StoreError, match="lacks MNIST, one digit, Last loss, seed 1"):
        check(folder)
    archives.write(EXPERIMENT, "demo", (), table, list(packed.runs), folder)
    write(folder / "last_loss.yaml", "name: Last loss", "name: Lost lass")
    with pytest.raises(StoreError, match="Last loss|Lost lass"):
        check(folder)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("asks = frozenset({TrialLosses})", "losses"),
        ("asks = frozenset({Gradients})", "updates"),
        ("asks = frozenset({ServerLosses})", "validation set"),
        ('asks = frozenset()\n    needs = frozenset({"labels"})', "labels"),
        ("asks = frozenset()\n    slow = lambda self, report: report.seconds", "speeds"),
    ],
)
def test_what_a_class_declares_must_be_named(folder: Path, code: str, kind: str) -> None:
    write(folder / "last_loss.py", "asks = frozenset()", code)
    write(
        folder / "last_loss.py",
        "import Federation",
        "import Federation, Gradients, ServerLosses, TrialLosses",
    )
    write(folder / "last_loss.yaml", "information: [losses]", "information: [blind]")
    cls = Submission.open(folder).load()
    assert command.declared(cls) == {kind}
    run = Submission.open(folder).plan("demo", params.load()).work[0].run
    assert run
    with pytest.raises(ConfigError, match=f"LastLoss uses {kind}, which is not named; add it"):
        command.check_information("last_loss.yaml", {"blind"}, cls, run, command.Place.from_environment())


def test_what_the_arenas_own_methods_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first rounds of the demo setting, each chooses the same clients while everything else is hidden."""
    monkeypatch.setenv("FEDLIB_DATASETS", str(tmp_path))
    place, runs = command.Place.from_environment(), params.load().runs(EXPERIMENT, "demo")
    for labelled in (labelled for labelled in runs if labelled.run.seed == 0):
        sampler = labelled.run.method.sampler
        assert sampler in arena.SEES, f"{sampler}: add it to SEES"
        run = labelled.run.model_copy(update={"T": 12})
        command.check_information("SEES", {arena.SEES[sampler]}, SAMPLERS[sampler], run, place)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rules: 1.0 ", "rules: 0.9 ", r"last_loss.yaml.rules: .* are not the rules of this arena"),
        ("information: [losses]", "information: [guess]", r"last_loss.yaml.information.0"),
        ("information: [losses]", "information: [blind, losses]", "blind excludes every other class"),
        ("sampler: last_loss\n", "", "last_loss.yaml.sampler"),
        ("paper:", "papers:", "last_loss.yaml.paper"),
        ("parameters: {explore: 0.75}", "parameters: {explore: 0.6}", "are not those of a trial"),
        ("- {explore: 0.75}", "- {explore: 0.8}", "is not in the search space"),
        ("- {explore: 0.75}", "- {}", "trial 3: explore is missing"),
        (
            "- {explore: 0.75}",
            "- {explore: 0.75}\n" * 4,
            "last_loss.yaml.trials: 6 are more than the rules' 5",
        ),
    ],
)
def test_a_yaml_that_breaks_a_rule_is_refused_in_a_sentence(
    folder: Path, old: str, new: str, words: str
) -> None:
    write(folder / "last_loss.yaml", old, new.replace("\n-", "\n  -").rstrip("\n"))
    with pytest.raises(ConfigError, match=words) as caught:
        Submission.open(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.bad_input
def test_the_best_trial_is_scored(folder: Path) -> None:
    settings, rules = params.load(), Rules.read().model_copy(update={"scale": "demo"})
    Submission.open(folder).load()
    trials = arena.accuracies(Submission.open(folder).rows("demo")).groupby("method").mean()
    best = Submission.open(folder).description.trials[trials.filter(like="trial").argmax()]
    for parameters in Submission.open(folder).description.trials:
        write(
            folder / "last_loss.yaml",
            folder_parameters(folder),
            f"parameters: {{explore: {parameters['explore']}}}",
        )
        submission, lines = Submission.open(folder, rules), []
        command.run(submission, "demo", settings, lines.append)
        planned = submission.plan("demo", settings).work
        if parameters == best:
            command.check_archive(submission, planned, "demo")
        else:
            assert f"the best trial is {best}" in lines[-1]
            with pytest.raises(ConfigError, match=f"the best trial is {best}"):
                command.check_archive(submission, planned, "demo")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "import numpy as np",
            "import numpy as np\nimport os",
            "line 8: imports os, which the rules do not allow",
        ),
        ("import numpy as np", "import numpy as np\nfrom fedlib.data import datasets", "imports fedlib.data"),
        ("np.full(fed.N, np.inf)", "np.full(fed.N, len(open('x').read()))", "uses open"),
        ('@register("last_loss")', '@register("uniform")', "last_loss.py: .*'uniform' is registered twice"),
        ('@register("last_loss")', '@register("another")', "last_loss.py: unknown sampler 'last_loss'"),
        ("asks = frozenset()", "draws = 'often'", "LastLoss.draws is 'often'"),
        ("import numpy as np", "import numpy as np\nraise SystemExit", "last_loss.py: SystemExit"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused_in_a_sentence(
    folder: Path, old: str, new: str, words: str
) -> None:
    write(folder / "last_loss.py", old, new)
    with pytest.raises(ConfigError, match=words) as caught:
        Submission.open(folder).load()
    assert "\n" not in str(caught.value)


EDITS = {  # of the example: file, old -> new text, error, and what it says
    "another sampler than ran": (
        "last_loss.py",
        {"np.argsort(-self.loss[rest]": "np.argsort(self.loss[rest]"},
        StoreError,
        "settings do not match|another sampler's file",
    ),
    "losses seen": (  # its class asks for nothing; that it uses the reported losses shows only when they are hidden
        "last_loss.yaml",
        {"information: [losses]": "information: [blind]"},
        ConfigError,
        "chooses other clients while losses are hidden; add losses",
    ),
    "labels seen": (
        "last_loss.py",
        {
            "np.full(fed.N, np.inf)": "fed.label_counts[:, 0] * 1.0",
            "self.loss[report.clients] = report.losses": "pass",
        },
        ConfigError,
        "chooses other clients while labels are hidden",
    ),
    "absent clients": (
        "last_loss.py",
        {"round.rng.permutation(round.available)": "round.rng.permutation(self.fed.N)"},
        SamplerError,
        "absent|available",
    ),
    "a client twice": (
        "last_loss.py",
        {"shuffled[:explored], ": "shuffled[:explored], shuffled[:explored], "},
        SamplerError,
        "chosen twice|but m is",
    ),
    "state not saved": (
        "last_loss.py",
        {"explore: Share = 0.5": "explore: Share = 0.5\n    loss: object = None"},
        SamplerError,
        "after it was saved and loaded",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", EDITS)
def test_a_sampler_that_breaks_a_rule_is_refused(folder: Path, kind: str) -> None:
    file, edits, error, words = EDITS[kind]
    for old, new in edits.items():
        write(folder / file, old, new)
    with pytest.raises(error, match=words):
        check(folder)


@pytest.mark.bad_input
def test_other_files_are_refused(folder: Path) -> None:
    (folder / "more.py").write_text("")
    with pytest.raises(ConfigError, match="more.py: is no part of a submission"):
        Submission.open(folder)
    with pytest.raises(ConfigError, match="there is no such folder"):
        Submission.open(folder / "nowhere")


def test_the_rules_and_the_program_agree() -> None:
    rules, text = Rules.read(), (ROOT / "arena" / "rules.md").read_text()
    for kind in arena.KINDS:
        assert f"| {kind} |" in text, kind
    settings = params.load()
    for scale in ("demo", "cpu", "paper"):
        methods = {labelled.method for labelled in settings.runs(rules.experiment, scale)}
        assert {rules.baseline, rules.target} <= methods
