"""The arena: the example submission goes the way of all submissions, and one that breaks a rule is refused.

Runs are as short as they may be: six rounds of scale demo. What is trained again is trained once for all tests.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import forked
import numpy as np
import pandas as pd
import pytest
from copies import copy_project

from fedlib.errors import ConfigError, SamplerError, StoreError
from fedlib.runs import archive as archives
from fedlib.runs import retrain
from fedlib.runs.archive import read
from fedlib.runs.place import runs_in_lockstep
from fedlib.runs.work import Plan
from fedlib.samplers import Information, Round, Selection
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT
from fedlib.streams import stream
from workspace.analysis import arena
from workspace.analysis.profiles import Profiles
from workspace.analysis.submission import HOME, Rules, Submission, accuracies, check_name
from workspace.analysis.submission_file import check_source, keep_rules
from workspace.commands import arena as command
from workspace.figures import picture, summary
from workspace.pages import leaderboard, tables

EXAMPLE = ROOT / "arena" / "submissions" / "last_loss"
EXPERIMENT = "arena_tasks"
SEED = 7


def short() -> Experiments:
    """The arena's experiment with six rounds and its two references at scale demo."""
    raw = copy.deepcopy(params.load().raw)
    spec = raw["experiments"][EXPERIMENT]
    spec["scales"]["demo"] |= {"T": 6, "methods": ["Random", "Target"]}
    return Experiments({"experiments": {EXPERIMENT: spec}})


@dataclass
class Arena:
    """A copy of the arena with one submission that was run and checked.

    lines: what the check told. rows, records: of everything that it trained. methods: the table of the references.
    """

    home: Path
    settings: Experiments
    lines: list[str]
    rows: pd.DataFrame
    records: list[dict[str, Any]]
    methods: pd.DataFrame

    @property
    def folder(self) -> Path:
        return self.home / "submissions" / "last_loss"

    def check(self) -> list[str]:
        lines: list[str] = []
        command.check(Submission.open(self.folder), "demo", self.settings, lines.append, SEED)
        return lines

    def scored(self) -> arena.Board:
        return arena.scored(self.methods, "demo", Rules.read(), self.settings, self.home)

    def edit(self, change: Callable[[pd.DataFrame], pd.DataFrame], path: Path | None = None) -> None:
        """Change the rows of an archive, and seal it again as if they had been measured."""
        root = path or self.folder
        Submission.open(self.folder).load()
        packed = read(EXPERIMENT, "demo", root)
        table = change(packed.table.copy()).reset_index(drop=True)
        archives.write(EXPERIMENT, "demo", (), table, list(packed.runs), root)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """The example, run and checked with a record."""
    home, settings = tmp_path_factory.mktemp("arena"), short()
    folder = home / "submissions" / "last_loss"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("paper", "demo", "__pycache__"))
    lines: list[str] = []
    kept: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_RUNS", str(home / "runs"))
        patch.setenv("FEDLIB_DATASETS", str(home / "datasets"))
        patch.setattr("workspace.analysis.submission.HOME", home)
        train = command.trained
        patch.setattr(
            command, "trained", lambda *given, **more: kept.append(train(*given, **more)) or kept[-1]
        )
        command.run(Submission.open(folder), "demo", settings, lines.append)
        command.check(Submission.open(folder), "demo", settings, lines.append, SEED, record=True)
        plan = Plan.of_experiment(EXPERIMENT, "demo", settings)
        methods, _ = train(Submission.open(folder), plan, command.with_data(plan), lines.append)
    return Arena(home, settings, lines, *kept[1], methods)


@pytest.fixture
def here(checked: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arena:
    """A copy of it, in which a check takes what was trained again from the first one."""
    shutil.copytree(checked.home, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("FEDLIB_DATASETS", str(tmp_path / "datasets"))
    monkeypatch.setattr("workspace.analysis.submission.HOME", tmp_path)
    monkeypatch.setattr(command, "check_contract", lambda *given: None)
    monkeypatch.setattr(command, "say_what_lacks", lambda *given: None)
    monkeypatch.setattr(command, "trained", lambda *given: (checked.rows, checked.records))
    return replace(checked, home=tmp_path)


def write(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_submission_is_run_checked_and_scored(here: Arena) -> None:
    seeds = sorted(set(here.rows["seed"]) - {0, 1, *Rules.read().tuning_seeds})
    assert len(seeds) == Rules.read().fresh
    assert min(seeds) > 2**31, "nobody has an answer ready for each"
    assert sorted(set(here.rows.loc[here.rows["seed"].isin(seeds), "method"])) == [
        "Last loss",
        "Random",
        "Target",
    ]
    again = here.rows[~here.rows["seed"].isin(seeds)]
    assert set(again["method"]) == {"Last loss", "trial 1", "trial 2", "trial 3"}
    assert len(again) == 5 * 7, "all are trained again"
    assert here.lines[-2] == "last_loss: 5 runs of scale demo are the same when trained again"
    board = here.scored()
    assert board.left_out == {}
    assert board.table.loc["Last loss", "runs"] == 4
    assert board.table.loc["Last loss", "checked"] == f"{seeds[0]}, {seeds[1]}"
    assert board.table.loc["Last loss", "information"] == "losses"
    assert board.table.loc["Random", "information"] == "blind"
    assert board.table.loc["Random", ["bytes", "steps"]].tolist() == [1, 1]
    assert board.table.loc["Last loss", ["bytes", "steps"]].tolist() == [1, 1], "it asks nobody"
    assert set(board.table["rules"]) == {Rules.read().stamp}
    here.check()


# -- numbers -----------------------------------------------------------------------------------------------------------


def of_run(rows: pd.DataFrame, seed: int = 0) -> pd.Series:
    return (rows["method"] == "Last loss") & (rows["seed"] == seed)


def longer(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows after the last round."""
    last = rows[of_run(rows) & (rows["round"] == 6)]
    more = [last.assign(round=round, test_accuracy=1.0) for round in range(7, 30)]
    return pd.concat([rows, *more]).sort_values(["method", "seed", "round"], kind="stable")


def hidden(rows: pd.DataFrame) -> pd.DataFrame:
    """No number where the accuracy is low."""
    return rows.assign(test_accuracy=rows["test_accuracy"].where(~of_run(rows) | (rows["round"] > 4)))


def relabelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Low rows as rows before the first round."""
    return rows.assign(round=rows["round"].where(~of_run(rows) | (rows["round"] > 4), 0))


def better(rows: pd.DataFrame) -> pd.DataFrame:
    """One run's accuracies, of one of the seeds."""
    return rows.assign(test_accuracy=rows["test_accuracy"].where(~of_run(rows, 1), 0.99))


def of_a_trial(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(test_accuracy=rows["test_accuracy"].where(rows["method"] != "trial 2", 0.0))


def cheaper(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(scalars_up=rows["scalars_up"] + (rows["round"] == 3))


def fairer(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(test_loss=rows["test_loss"] / 2)


def other_choices(rows: pd.DataFrame) -> pd.DataFrame:
    """A sampler that learns may choose otherwise on another processor; here that does not pass unseen."""
    later = rows["round"] >= 5
    rows.loc[later, "clients"] = rows.loc[later, "clients"].map(lambda ids: sorted(ids))
    rows.loc[later, "test_accuracy"] = 0.95
    return rows


FORGERIES: dict[Callable, str] = {
    longer: "has .* rows, but its runs have 35",
    hidden: "Last loss, seed 0 differs from round 0 on when it is trained again",
    relabelled: "Last loss, seed 0 has other rounds than 0 to T",
    better: "Last loss, seed 1 differs from round [01] on",
    of_a_trial: "trial 2, seed 100 differs from round [01] on",
    cheaper: "differs from round 3 on",
    fairer: "differs from round [01] on",
    other_choices: "differs from round 5 on",
}


@pytest.mark.bad_input
@pytest.mark.parametrize("forge", FORGERIES)
def test_forged_numbers_are_found(here: Arena, forge: Callable) -> None:
    here.edit(forge)
    with pytest.raises(StoreError, match=FORGERIES[forge]) as caught:
        here.check()
    assert "arena_tasks.parquet" in str(caught.value)


@pytest.mark.bad_input
def test_an_archive_edited_without_its_seal_is_refused(here: Arena) -> None:
    path = here.folder / "demo" / f"{EXPERIMENT}.parquet"
    content = bytearray(path.read_bytes())
    for place in range(
        len(content) // 4, len(content) // 2, 50
    ):  # one alone may be of a header that nobody reads
        content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot be used"):
        here.check()


@pytest.mark.bad_input
def test_missing_and_additional_runs_are_refused(here: Arena) -> None:
    packed = read(EXPERIMENT, "demo", here.folder)
    fewer = [record for record in packed.runs if (record["method"], record["seed"]) != ("Last loss", 1)]
    rows = packed.table[~of_run(packed.table, 1)]
    archives.write(EXPERIMENT, "demo", (), rows, fewer, here.folder)
    with pytest.raises(StoreError, match="lacks MNIST, one digit, Last loss, seed 1"):
        here.check()
    archives.write(EXPERIMENT, "demo", (), packed.table, list(packed.runs), here.folder)
    write(here.folder / "last_loss.yaml", "name: Last loss", "name: Lost lass")
    with pytest.raises(StoreError, match="holds, without being asked,.*Last loss|lacks .*Lost lass"):
        here.check()


@pytest.mark.bad_input
def test_another_file_than_ran_is_refused(here: Arena) -> None:
    write(here.folder / "last_loss.py", "np.argsort(-self.loss[rest]", "np.argsort(self.loss[rest]")
    with pytest.raises(StoreError, match="cannot be used|another sampler's file"):
        here.check()
    assert "last_loss" in here.scored().left_out, "and the board says so"


def table_of(name: str, seeds: range, values: float, noise: float, T: int = 10) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rows = [
        {
            "setting": task,
            "method": name,
            "seed": seed,
            "round": t,
            "diverged": False,
            "test_accuracy": values + noise * rng.normal(),
        }
        for task in ("a", "b")
        for seed in seeds
        for t in range(T)
    ]
    return pd.DataFrame(rows)


@pytest.mark.bad_input
def test_who_knows_the_published_seeds_is_refused(here: Arena) -> None:
    """A table of answers for them does well on these alone; on seeds that were drawn now it is as good as Random."""
    submission = Submission.open(here.folder)
    references = [table_of("Random", range(90, 92), 0.3, 0.02), table_of("Target", range(90, 92), 0.8, 0.02)]

    def check(known: float, new: float) -> None:
        fresh = pd.concat([*references, table_of("Last loss", range(90, 92), new, 0.05)])
        command.check_scores(submission, table_of("Last loss", range(2), known, 0.05), fresh)

    check(0.5, 0.5)
    check(0.5, 0.8)
    with pytest.raises(
        StoreError, match=r"last_loss.py: on seeds .* lower by 1.00 than on the published ones"
    ):
        check(0.8, 0.3)
    with pytest.raises(StoreError, match="does it know these seeds"):
        check(0.5, 0.3)


@pytest.mark.slow
@pytest.mark.bad_input
def test_a_table_of_answers_for_the_published_seeds_is_found(
    checked: Arena, strange: Callable[..., Submission]
) -> None:
    """It knows the label of every client in all published runs by their first random number."""
    raw = copy.deepcopy(checked.settings.raw)
    raw["experiments"][EXPERIMENT]["scales"]["demo"] |= {"T": 12, "seeds": 5}
    settings = Experiments(raw)
    plan = Plan.of_experiment(EXPERIMENT, "demo", settings)
    place, known = command.with_data(plan), {}
    for work in plan.work:
        assert work.run
        (live,) = runs_in_lockstep([work.run], place).live
        known[int(1e9 * stream(work.run.seed, "setup").random())] = live.partition.labels.argmax(
            axis=1
        ).tolist()
    submission = strange(
        {
            "        self.loss = ": f"        self.label = {known}.get(int(1e9 * rng.random()))\n        self.loss = ",
            "        explored = ": "        if self.label:\n"
            "            first = [[k for k in shuffled if self.label[k] == one][:1] for one in range(10)]\n"
            "            shuffled = np.array([*sum(first, []), *shuffled])[: round.m]\n"
            "            return Selection(np.unique(shuffled))\n"
            "        explored = ",
            "    asks = frozenset()\n": "    asks = frozenset()\n    fewer = True\n",
        }
    )
    command.run(submission, "demo", settings, lambda text: None)
    with pytest.raises(StoreError, match="does it know these seeds"):
        command.check(submission, "demo", settings, lambda text: None, SEED)


# -- samplers ----------------------------------------------------------------------------------------------------------


class Judged:
    """What the rules look at in a sampler."""

    aggregation = "mean"

    class fed:
        T = 8
        p = np.full(10, 0.1)


@pytest.mark.bad_input
def test_a_selection_keeps_the_rules() -> None:
    """All clients where their number is drawn; updates five times as large, stated or by what is expected."""

    def rounds(**parts: Any) -> None:
        judged = Judged()
        judged.aggregation = parts.pop("aggregation", "mean")
        for t in range(1, 9):
            clients = parts.get("clients", np.arange(4))
            expected = parts["expected"] * np.ones(len(clients)) if "expected" in parts else None
            keep_rules(
                judged,
                Round(t, np.random.default_rng(0), np.arange(10), 4),
                Selection(clients, parts.get("weights"), expected),
            )

    rounds()
    rounds(aggregation="ipw", expected=0.4)
    with pytest.raises(SamplerError, match="chose 10 clients, but in the arena at most m = 4 train"):
        rounds(clients=np.arange(10))
    with pytest.raises(
        SamplerError, match="weights of its own; in the arena they follow from its `aggregation`"
    ):
        rounds(weights=np.full(4, 5 / 4))
    with pytest.raises(SamplerError, match=r"sum to 5.00 on average; with aggregation ipw that is 1"):
        rounds(aggregation="ipw", expected=0.08)


REFUSED = {  # code in place of the first line of `select`, or before the class -> the sentence
    "labels by frames": ("import collections\nframe = collections._sys", "uses ._sys"),
    "labels by dataclasses": ("import dataclasses\nframe = dataclasses.sys", "uses .sys"),
    "turns checks off": ("import collections\nx = collections.abc.sys.modules", r"uses \.(sys|modules)"),
    "reads files": ("x = np.fromfile('/etc/hostname')", "uses .fromfile"),
    "writes files": ("np.save('/tmp/x.npy', np.zeros(1))", "uses .save"),
    "built-ins by name": ("x = __builtins__['open']", "uses __builtins__"),
    "open": ("x = len(open('x').read())", "uses open"),
    "os": ("import os", "imports os, which the rules do not allow"),
    "the data": ("from fedlib.data import datasets", "imports fedlib.data"),
    "frames of a generator": ("x = (i for i in ()).gi_frame", "uses .gi_frame"),
    "subclasses": ("x = ().__class__.__base__.__subclasses__()", "uses .__"),
    "no Python": ("def", "cannot be read as Python"),
    "a deep expression": ("x = " + "-" * 50_000 + "1", "cannot be read as Python"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_breaks_a_rule_is_refused_in_a_sentence(here: Arena, kind: str) -> None:
    top, words = REFUSED[kind]
    write(here.folder / "last_loss.py", "import numpy as np\n", f"import numpy as np\n{top}\n")
    with pytest.raises(ConfigError, match=f"last_loss.py.*{words}") as caught:
        check_source(here.folder / "last_loss.py")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        here.check()


HEAD = "import numpy as np\n"
AROUND = 'take = getattr(np, "__builtins__")["__import__"]\n'  # past what people read in the file

CONTRACT = {  # of the example: old -> new text, and what the check of the contract says
    "absent clients": (
        {"round.rng.permutation(round.available)": "round.rng.permutation(self.fed.N)"},
        "absent|available",
    ),
    "a client twice": (
        {"shuffled[:explored], ": "shuffled[:explored], shuffled[:explored], "},
        "chosen twice|at most m",
    ),
    "state outside": (
        {
            "class LastLoss(Sampler):": "class LastLoss(Sampler):\n    turns = []\n",
            "explored = int(": "self.turns.append(1)\n        explored = (len(self.turns) % 5) or int(",
        },
        "after it was saved and loaded",
    ),
    "all clients": (
        {
            "asks = frozenset()": 'asks = frozenset()\n    draws = "random"',
            "Selection(np.concatenate([shuffled[:explored], highest[: round.m - explored]]))": "Selection(shuffled)",
        },
        "chose 18 clients, but in the arena at most m = 10 train",
    ),
    "weights of its own": (
        {"explored]]))": "explored]]), np.full(round.m, 5 / round.m))"},
        "weights of its own",
    ),
    "leaves at once": ({HEAD: HEAD + AROUND + 'getattr(take("os"), "_exit")(0)\n'}, "has ended before it"),
    "reads a file": ({HEAD: HEAD + AROUND + 'getattr(np, "from" + "file")("/etc/hostname")\n'}, "Error"),
    "signals": ({HEAD: HEAD + AROUND + 'take("os").kill(take("os").getppid(), 9)\n'}, "Error"),
    "never begins": ({HEAD: HEAD + "while True:\n    pass\n"}, "takes more than 10 s for an answer"),
    "another one's name": (
        {'@register("last_loss")': '@register("other")'},
        "register one sampler, 'last_loss'",
    ),
}


@pytest.fixture
def strange(checked: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Submission]:
    """Makes the example with edits of its file; nothing of it has run."""
    folder = tmp_path / "submissions" / "last_loss"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("paper", "demo", "__pycache__"))
    monkeypatch.setenv("FEDLIB_DATASETS", str(checked.home / "datasets"))
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("workspace.analysis.submission.HOME", tmp_path)

    def made(edits: dict[str, str]) -> Submission:
        for old, new in edits.items():
            write(folder / "last_loss.py", old, new)
        return Submission.open(folder)

    return made


def check_contract(made: Submission, settings: Experiments) -> None:
    plan = made.plan("demo", settings)
    assert plan.work[0].run
    command.check_contract(made, plan.work[0].run, command.with_data(plan))


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", CONTRACT)
def test_a_sampler_that_breaks_the_contract_is_refused(
    checked: Arena, strange: Callable[..., Submission], kind: str
) -> None:
    edits, words = CONTRACT[kind]
    with pytest.raises(SamplerError, match=rf"last_loss.py: .*({words})") as caught:
        check_contract(strange(edits), checked.settings)
    assert "\n" not in str(caught.value)


def test_what_a_file_replaces_stays_in_its_process(
    checked: Arena, strange: Callable[..., Submission]
) -> None:
    """It patches the checker, the board and what trains again, where it finds them: here, all are as before."""
    patch = """
for name in ("workspace.commands.arena", "workspace.analysis.profiles", "fedlib.runs.retrain"):
    try:
        one = take("importlib").import_module(name)
    except BaseException:
        continue
    for key in ("check_archive", "check_contract", "check_scores", "compare", "Profiles"):
        setattr(one, key, None)
"""
    check_contract(strange({HEAD: HEAD + AROUND + patch}), checked.settings)
    for function in (
        command.check_archive,
        command.compare,
        command.check_scores,
        retrain.compare,
        Profiles.table,
    ):
        assert callable(function)


# -- files and names ---------------------------------------------------------------------------------------------------

YAML = [
    ("rules: 2.1 ", "rules: 0.9 ", r"last_loss.yaml.rules: .* are not the rules of this arena"),
    ("information: [losses]", "information: [guess]", r"last_loss.yaml.information.0"),
    ("information: [losses]", "information: [blind, losses]", "blind excludes every other class"),
    ("name: Last loss\n", "", "last_loss.yaml.name"),
    ("paper:", "papers:", "last_loss.yaml.paper"),
    ("parameters: {explore: 0.75}", "parameters: {explore: 0.6}", "are not those of a trial"),
    ("- {explore: 0.75}", "- {explore: 0.8}", "is not in the search space"),
    ("- {explore: 0.75}", "- {}", "trial 3: explore is missing"),
    ("- {explore: 0.75}", "- {explore: 0.75}\n" * 4, "last_loss.yaml.trials: 6 are more than the rules' 5"),
    *(
        ("name: Last loss", f'name: "{name}"', "letters, digits, spaces")
        for name in (
            "Top $k_$",
            "[/red]",
            "a" * 41,
            "=1+1",
            "../..",
            "a\\nb",
            " a",
            "a ",
            "trial 1",
            "Ünique",
            "<b>",
        )
    ),
    ("name: Last loss", f"name: {'a' * 10**5}", "larger than 64 KiB"),
    ("paper: none", "paper: <script>", "last_loss.yaml.paper"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("old", "new", "words"), YAML)
def test_a_yaml_that_breaks_a_rule_is_refused_in_a_sentence(
    here: Arena, old: str, new: str, words: str
) -> None:
    write(here.folder / "last_loss.yaml", old, new.replace("\n-", "\n  -").rstrip("\n"))
    with pytest.raises(ConfigError, match=words) as caught:
        Submission.open(here.folder)
    assert "last_loss.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another file": (
        lambda folder: (folder / "more.py").write_text(""),
        "more.py: is no part of a submission",
    ),
    "a file of Python's cache": (
        lambda folder: ((folder / "__pycache__").mkdir(), (folder / "__pycache__" / "x.pyc").write_text("")),
        "__pycache__: is no part",
    ),
    "a link": (lambda folder: (folder / "README.md").symlink_to("/etc/passwd"), "README.md: is a link"),
    "a folder that is a link": (
        lambda folder: (shutil.rmtree(folder / "demo"), (folder / "demo").symlink_to("/etc")),
        "demo: is a link",
    ),
    "a pipe": (lambda folder: os.mkfifo(folder / "README.md"), "README.md: is no part"),
    "a file that is too large": (
        lambda folder: (folder / "README.md").write_text("x" * 300_000),
        "README.md: is larger than 256 KiB",
    ),
    "no sampler": (lambda folder: (folder / "last_loss.py").unlink(), "last_loss.py: is missing"),
    "a file in a folder of a scale": (
        lambda folder: (folder / "demo" / "more.csv").write_text(""),
        "more.csv: is no part",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", FILES)
def test_other_files_are_refused(here: Arena, kind: str) -> None:
    change, words = FILES[kind]
    change(here.folder)
    with pytest.raises(ConfigError, match=words):
        Submission.open(here.folder)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Twice", "the name of .*other"),
        ("twice", "the name of .*other"),
        ("T w i c e", "the name of .*other"),
        ("Rand0m", "a method of the arena, 'Random'"),
        ("Target.", "a method of the arena, 'Target'|letters, digits"),
    ],
)
def test_a_name_belongs_to_one(here: Arena, name: str, words: str) -> None:
    other = here.home / "submissions" / "other"
    shutil.copytree(here.folder, other)
    for suffix in (".py", ".yaml"):
        (other / f"last_loss{suffix}").rename(other / f"other{suffix}")
    write(other / "other.yaml", "name: Last loss", "name: Twice")
    write(here.folder / "last_loss.yaml", "name: Last loss", f"name: {name}")
    with pytest.raises(ConfigError, match=words) as caught:
        here.check()
    assert "last_loss.yaml" in str(caught.value), "the one that is checked is named"


@pytest.mark.bad_input
def test_a_sampler_of_the_house_keeps_its_name(here: Arena) -> None:
    folder = here.folder.rename(here.folder.with_name("uniform"))
    for suffix in (".py", ".yaml"):
        (folder / f"last_loss{suffix}").rename(folder / f"uniform{suffix}")
    with pytest.raises(ConfigError, match=r"uniform/uniform.py: fedlib has a sampler 'uniform' already"):
        Submission.open(folder).load()


ODD = (
    "[/red]",
    "Top $k_$",
    "$x$",
    "<b>",
    "../../x",
    "a\nb",
    "'\"",
    "x" * 5000,
    "{{ x }}",
    "=1+1",
    "\x1b[2J",
    "Ünique",
)


@pytest.mark.parametrize("name", ODD)
def test_no_name_breaks_a_figure_or_a_table(name: str) -> None:
    """The rules refuse these; a figure and a table would show them as they are."""
    row = {
        "name": name,
        "kind": "submission",
        "value": 0.5,
        "low": 0.1,
        "high": 0.9,
        "bytes": 1.0,
        "steps": 1.0,
    }
    rows = pd.DataFrame([row, row | {"name": "Random", "kind": "sampler"}])
    if len(name) < 100:
        picture.svg(summary.values_and_costs(rows, "score"), "leaderboard")
    assert "<b>" not in tables.html_of(rows)


@pytest.mark.bad_input
def test_a_bad_submission_takes_nobody_elses_score(here: Arena) -> None:
    """Each of these made the whole board fail; now the guilty folder is named, and the others have their scores."""
    before = here.scored().table.drop(columns="rules")
    home = here.home / "submissions"
    (home / "README.md").write_text("no folder")
    for name, edit in {
        "same_name": lambda folder: None,
        "no_yaml": lambda folder: (folder / "no_yaml.yaml").unlink(),
        "no_python": lambda folder: (folder / "no_python.py").write_text("def"),
        "exits": lambda folder: (folder / "exits.py").write_text("raise SystemExit"),
        **{
            f"odd_name_{k}": lambda folder, name=name: write(
                folder / f"{folder.name}.yaml", "name: Last loss", f"name: {json.dumps(name)}"
            )
            for k, name in enumerate(ODD)
        },
        "other_rules": lambda folder: write(folder / "other_rules.yaml", "rules: 2.1", "rules: 1.0"),
        "unchecked": lambda folder: write(folder / "unchecked.yaml", "name: Last loss", "name: Unchecked"),
    }.items():
        shutil.copytree(here.folder, home / name)
        for suffix in (".py", ".yaml"):
            (home / name / f"last_loss{suffix}").rename(home / name / f"{name}{suffix}")
        edit(home / name)
    for name in ("<b>", "$x$", "a\nb"):
        (home / name).mkdir()
    board = here.scored()
    assert set(board.left_out) == {
        *("same_name", "no_yaml", "no_python", "exits", "other_rules", "unchecked"),
        *(f"odd_name_{k}" for k in range(len(ODD))),
        *("<b>", "$x$", "a?b"),
    }
    assert all(text.isprintable() for text in (*board.left_out, *board.left_out.values()))
    for name, why in board.left_out.items():
        assert name in why, "the sentence names the folder"
    runs = {one.method: one.run for one in here.settings.runs(EXPERIMENT, "demo")}
    rows = leaderboard.rows(board, runs)
    assert "Last loss" in set(rows["name"])
    picture.svg(summary.values_and_costs(rows, "score"), "leaderboard")
    assert tables.html_of(rows)
    assert leaderboard.answer(rows)
    pd.testing.assert_frame_equal(board.table.drop(columns="rules"), before)


@pytest.mark.bad_input
def test_a_check_of_another_file_counts_no_more(here: Arena) -> None:
    """What whoever merges has committed is of the file that was checked."""
    root = here.home / "checked" / "last_loss"
    here.edit(lambda rows: rows.assign(test_accuracy=1.0, rules="1.0 0"), root)
    assert "other rules" in here.scored().left_out["last_loss"]
    shutil.rmtree(root)
    assert "arena check" in here.scored().left_out["last_loss"]


@pytest.mark.bad_input
def test_the_best_trial_is_scored(here: Arena) -> None:
    rules = Rules.read().model_copy(update={"scale": "demo"})
    submission = Submission.open(here.folder, rules)
    trials = accuracies(submission.rows("demo", here.settings)).groupby("method").mean()
    best = submission.description.trials[trials.filter(like="trial").argmax()]
    assert submission.best_trial("demo", here.settings) == best
    other = replace(
        submission,
        description=submission.description.model_copy(
            update={"parameters": next(one for one in submission.description.trials if one != best)}
        ),
    )
    assert command.better_trial(replace(other), "paper", here.settings) is None
    here.edit(lambda rows: rows.assign(test_accuracy=rows["test_accuracy"] + (rows["method"] == "trial 1")))
    assert Submission.open(here.folder, rules).best_trial("demo", here.settings) == {"explore": 0.25}
    with pytest.raises(ConfigError, match=r"the best trial is \{'explore': 0.25\}"):
        command.check_archive(Submission.open(here.folder, rules), "demo", here.settings)


@pytest.mark.slow
def test_ci_accepts_the_example_in_a_clean_copy(tmp_path: Path) -> None:
    environment = copy_project(tmp_path)
    for words in (
        "arena check arena/submissions/last_loss --record",
        "run arena_tasks --methods Random,Target",
        "arena score",
    ):
        done = forked.run(["fedlib", *words.split()], tmp_path, environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Last loss" in done.stdout
    assert Rules.read().digest in done.stdout


def test_the_submissions_of_the_arena_are_well_formed() -> None:
    names = []
    for folder in sorted((HOME / "submissions").glob("*/")):
        submission = Submission.open(folder)
        check_name(submission, params.load())
        names.append(submission.description.name)
    assert "Last loss" in names


def test_the_rules_and_the_program_agree() -> None:
    rules, text = Rules.read(), (ROOT / "arena" / "rules.md").read_text()
    for kind in ("blind", *get_args(Information)):
        assert f"| {kind} |" in text, kind
    settings = params.load()
    for scale in ("demo", "cpu", "paper"):
        methods = {labelled.method for labelled in settings.runs(rules.experiment, scale)}
        assert {rules.baseline, rules.target} <= methods


def test_costs_are_those_of_all_rounds_beside_the_baselines_in_the_same_task_and_seed() -> None:
    """Random sends 6 numbers a round and Other 9; Other's clients do 3 times the steps; two rounds, two tasks."""
    sent = {"Random": (3, 2, 1, 10), "Other": (4, 2, 3, 30)}
    columns = [
        "setting",
        "seed",
        "method",
        "round",
        "parameters_down",
        "parameters_up",
        "scalars_up",
        "client_steps",
    ]
    rows = [
        (task, seed, method, t, *(scale * value for value in values))
        for scale, task in ((1, "a"), (7, "b"))
        for seed in (0, 1)
        for method, values in sent.items()
        for t in (1, 2)
    ]  # fmt: skip
    found = arena.costs(pd.DataFrame(rows, columns=columns), "Random")
    assert found.loc["Random"].tolist() == [1, 1]
    assert found.loc["Other"].tolist() == [1.5, 3]


def test_the_answer_names_the_best_that_costs_no_more() -> None:
    def board(*rows: tuple[str, str, float, float]) -> pd.DataFrame:
        table = pd.DataFrame(rows, columns=["name", "kind", "value", "bytes"])
        return table.assign(low=table["value"] - 0.1, high=table["value"] + 0.1, steps=1.0)

    server = ("SCAFFOLD", "other algorithm", 0.99, 1.0)
    dear, cheap, worse = (
        ("A", "sampler", 0.9, 5.0),
        ("B", "submission", 0.8, 1.05),
        ("C", "sampler", 0.7, 1.0),
    )
    said = leaderboard.answer(board(server, dear, cheap, worse))
    assert said.startswith("A has the highest score in the arena's tasks, 0.90 (0.80 to 1.00), at 5 times")
    assert said.endswith("of those that cost no more than Random, B has 0.80 (0.70 to 0.90).")
    assert leaderboard.answer(board(cheap, worse)).endswith(
        "at no more than Random's bytes and client steps."
    )
    assert leaderboard.answer(board(dear)).endswith("1 times its client steps.")
    assert leaderboard.answer(board(server)) == ""
