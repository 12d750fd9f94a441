"""The lab: its widgets do what they say, and its notebook runs from top to bottom."""

from __future__ import annotations

import asyncio
import base64
import html
import linecache
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import forked
import numpy as np
import pandas as pd
import pytest
from copies import ForkedKernel
from matplotlib import pyplot as plt
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from ruamel.yaml import YAML

from fedlib import algorithms
from fedlib.data import datasets, schemes
from fedlib.data.schemes import Scheme, Split
from fedlib.errors import ConfigError
from fedlib.runs import work
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place
from fedlib.runs.work import Plan
from fedlib.samplers import SAMPLERS, Sampler, Selection, register
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Method
from fedlib.settings.world import ByLabel, Deadline, Sine, World
from workspace.commands import notebooks
from workspace.lab import export, panel, picture
from workspace.lab.panel import LOADING, Lab, as_lines
from workspace.lab.setting import SCHEMES, Setting, split
from workspace.lab.training import Training, standings

SMALL = {
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 10,
    "m": 2,
    "T": 5,
    "local": {"lr": 0.1, "batch": 10, "steps": 2},
}
RANDOM = {"sampler": "uniform"}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def sampler() -> Iterator[Callable[..., None]]:
    """Register a sampler whose `select` is the given function; forgotten after the test."""

    def add(name: str, select: Callable[..., Any]) -> None:
        register(name)(dataclass(type(name, (Sampler,), {"select": select})))
        added.append(name)

    added: list[str] = []
    yield add
    for name in added:
        SAMPLERS.pop(name, None)


def small_lab(T: int = 5) -> Lab:
    lab = Lab("arena_common", ["Random", "Algorithm 2", "Pow-d", "HiCS-FL"])
    for name, value in {"model": "logistic", "N": 10, "m": 2, "T": T, "steps": 1, "seeds": 1}.items():
        getattr(lab, name).value = value
    lab.choose.value = ["Random"]
    return lab


def test_a_method_gives_the_same_numbers_alone_and_in_company() -> None:
    alone, together = Training(SMALL, [0, 1]), Training(SMALL, [0, 1])
    alone.enter("Random", RANDOM)
    together.enter("MD", {"sampler": "md"})
    together.advance()
    together.enter("Random", RANDOM)  # late
    for training in (alone, together):
        training.advance_for(1e9)
        assert training.done
        assert training.rounds[0] == training.rounds[1]
    columns = ["seed", "round", "test_accuracy", "test_loss"]
    ours, theirs = (t.results().query("method == 'Random'")[columns] for t in (alone, together))
    assert len(ours) == 2 * 6
    np.testing.assert_array_equal(ours, theirs)


def test_finished_runs_are_shown_and_only_the_others_are_trained() -> None:
    before = Training(SMALL, [0, 1])
    before.enter("Random", RANDOM)
    before.advance_for(1e9)
    rows = before.results()
    archived = rows[rows["seed"] == 0].drop(columns=["experiment", "setting", "method", "seed", "clients"])
    training = Training(SMALL, [0, 1], lambda run: (archived, {}) if run.seed == 0 else None)
    training.enter("Random", RANDOM)
    assert training.results()["test_accuracy"].tolist() == archived["test_accuracy"].tolist()
    assert training.from_archive == "from the archive or the store, not trained again: Random (1 of 2 seeds)"
    assert training.rounds == (0, 5)
    training.advance_for(1e9)
    assert training.results()["test_accuracy"].tolist() == rows["test_accuracy"].tolist()
    counts = training.partitions[0].labels
    figure = picture.progress(training.results(), counts, 0.8, 5)  # of seed 0 no clients are kept
    assert "clients: not archived" in {text.get_text() for axes in figure.axes for text in axes.texts}
    plt.close(figure)


def test_the_lab_shows_what_the_archive_has_of_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "status", lambda name, *place: {"state": "prepared"})
    lab, settings = Lab("arena_common"), params.load()
    for scale in ("demo", "paper"):
        lab.scale.value = scale  # without its data the partition cannot be drawn, which is told
        planned = settings.runs("arena_common", scale)
        for one in planned:
            method = params.split_method(dict(lab.methods[one.method]))
            run = params.build(params.merge(lab.setting(), method), one.run.seed, "lab")
            assert run == one.run, (scale, one.method)
    finished = Finished(Plan("arena_common", "paper"), Place.from_environment(), any_data=True)
    assert all(finished.contains(work.training(one.run)) for one in planned)

    rows = pd.DataFrame(finished.read(work.training(planned[0].run))[0])
    monkeypatch.setattr(Finished, "read", lambda self, run: (rows, {}))

    async def watch() -> Lab:
        lab = small_lab(T=50)
        lab.train.click()
        await lab.task
        return lab

    lab = asyncio.run(watch())
    assert lab.training.rounds == (0, 0)
    assert bytes(lab.picture.value).startswith(PNG)
    assert "from the archive or the store, not trained again: Random (1 of 1 seeds)" in lab.status.value


def test_every_setting_of_params_yaml_can_be_chosen_and_gives_its_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datasets, "status", lambda name, *place: {"state": "prepared"})
    chosen, settings, checked = Setting("arena_common"), params.load(), set()
    chosen.origin.observe(lambda _: chosen.begin(), "value")
    for experiment in settings.names:
        chosen.origin.value = experiment
        for scale in chosen.scale.options:
            chosen.scale.value = scale
            chosen.list_settings()
            planned = {(one.setting, one.method): one for one in settings.runs(experiment, scale)}
            for _, name in chosen.grid.options:
                chosen.grid.value = name
                chosen.fill()
                for label, method in chosen.methods.items():
                    one = planned[name, label]
                    raw = params.merge(chosen.setting(), params.split_method(dict(method)))
                    assert params.build(raw, one.run.seed, "lab") == one.run, (experiment, scale, name, label)
                    checked.add((experiment, scale, name, label))
    assert len({experiment for experiment, *_ in checked}) == len(settings.names)


def test_keys_without_a_widget_are_written_as_in_params_yaml() -> None:
    lab = Lab("arena_common", ["Random"])
    lab.further.value = "local: {momentum: 0.9}\nevaluate: {every: 5}"
    run = params.build({**lab.setting(), "method": {"sampler": "uniform"}}, 0, "lab")
    assert (run.local.momentum, run.local.lr, run.evaluate.every) == (0.9, lab.lr.value, 5)
    for wrong, words in {"local: {": "further keys: ", "momentum": "write `key: value`"}.items():
        lab.further.value = wrong
        assert words in html.unescape(lab.status.value)


def test_every_scheme_world_and_server_that_is_registered_can_be_chosen_with_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class EveryNth(Scheme):
        scheme: Literal["every_nth_of_a_test"] = "every_nth_of_a_test"
        least: int = 3

        def split(self, data: Any, N: int, rng: np.random.Generator) -> Split:
            return Split([np.arange(k, len(data.y_train), N) for k in range(N)])

    monkeypatch.setitem(schemes.load_all(), "every_nth_of_a_test", EveryNth)
    lab = small_lab()
    lab.scheme.value = "every_nth_of_a_test"
    assert lab.setting()["partition"] == {"scheme": "every_nth_of_a_test", "least": 3}
    assert bytes(lab.clients.value).startswith(PNG)
    lab.scheme.value = "iid"
    lab.rate.value, lab.pattern.value, lab.ends.value = "label", "sine", "deadline"
    lab.mean.value = 0.3
    assert "seconds: null" in lab.further.value  # which only a person knows
    lab.further.value = lab.further.value.replace("seconds: null", "seconds: 9")
    run = params.build({**lab.setting(), "method": {"sampler": "uniform"}}, 0, "lab")
    assert run.world == World(
        mean=0.3, rate=ByLabel(), pattern=Sine(), ends=Deadline(seconds=9), absences="visible"
    )
    lab.pattern.value, lab.rate.value, lab.ends.value = "", "equal", "wait"
    lab.server.value = "scaffold"
    assert lab.selected == {"Random": RANDOM | {"algorithm": "scaffold"}}
    lab.server.value = "fedavgm"
    method = params.split_method(lab.selected["Random"])["method"]
    assert Method.model_validate(method).make_algorithm() == algorithms.find("fedavgm")()
    assert params.build({**lab.setting(), "method": method}, 0, "lab").world == World(mean=0.3)
    lab.server.value, lab.world.value = "fedavg", False
    assert lab.selected == {"Random": RANDOM}
    assert "world" not in lab.setting()


def test_train_pressed_before_anything_is_loaded_is_answered_and_then_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def watch() -> Lab:
        monkeypatch.setattr(
            "workspace.lab.panel.NEEDED", ("workspace.lab.training", "wsgiref")
        )  # not loaded yet
        lab = small_lab()
        assert lab.status.value == as_lines(LOADING)
        lab.train.click()
        assert "training begins by itself" in lab.status.value
        lab.train.click()
        await lab.task
        return lab

    lab = asyncio.run(watch())
    assert lab.training.rounds == (5, 5)


def test_what_was_run_can_be_taken_along_as_a_script_and_as_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel, "SAVED", panel.ROOT / "data" / "lab" / "test")
    monkeypatch.setattr(
        panel, "write_whole", lambda path, content: (tmp_path / path.name).write_bytes(content)
    )

    async def watch() -> Lab:
        lab = small_lab()
        lab.choose.value = ["Random", "MD"]
        lab.train.click()
        await lab.task
        lab.T.value = 99  # chosen later: not what was run
        lab.export.click()
        lab.save.click()
        return lab

    lab = asyncio.run(watch())
    assert (tmp_path / panel.SCRIPT).read_text() == lab.script.value
    assert (tmp_path / panel.ENTRY).read_text() == lab.entry.value
    encoded = re.findall(r"base64,([^\"]*)", lab.taken.value)
    assert [base64.b64decode(text).decode() for text in encoded] == [lab.script.value, lab.entry.value]
    columns = ["method", "seed", "round", "test_accuracy", "test_loss"]
    ours = lab.training.results()[columns].sort_values(columns[:3], ignore_index=True)
    (tmp_path / "again.py").write_text(lab.script.value)
    ran = subprocess.run(
        [sys.executable, "again.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "mean rank" in ran.stdout
    theirs = pd.read_csv(tmp_path / "results.csv")[columns].sort_values(columns[:3], ignore_index=True)
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False, rtol=1e-12)

    entry = YAML(typ="safe").load(f"experiments:\n{lab.entry.value}")
    planned = Experiments(entry | {"scale": "demo"}).runs("from_the_lab", "demo")
    expected = [lab.training._run(lab.methods[one.method], one.run.seed, "lab") for one in planned]
    assert [one.run for one in planned] == expected
    assert {one.method for one in planned} == {"Random", "MD"}


def test_a_script_brings_the_cell_that_defines_a_sampler() -> None:
    cell = "class Mine(Sampler):\n    def select(self, round):\n        return None\n"
    linecache.cache["<cell 7>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 7>")
    space = {"Sampler": Sampler, "__name__": "__main__"}
    exec(compile(cell, "<cell 7>", "exec"), space)
    assert export.source(space["Mine"]) == cell
    assert [export.source(SAMPLERS[name]) for name in ("uniform", "fedcor", "hics_fl")] == [""] * 3


def test_the_panel_is_there_before_anything_that_trains_or_draws_is_loaded() -> None:
    code = (
        "import asyncio, sys\n"
        "from workspace.lab.panel import Lab\n"
        "async def show():\n"
        "    Lab('arena_common').panel\n"
        "    late = {'torch', 'numba', 'pandas', 'scipy.optimize', 'matplotlib', 'seaborn'}\n"
        "    print(*sorted(late & set(sys.modules)))\n"
        "asyncio.run(show())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_a_method_may_not_change_what_all_share() -> None:
    training = Training(SMALL, [0])
    with pytest.raises(ConfigError, match="Mine: N is shared by all methods here"):
        training.enter("Mine", {**RANDOM, "N": 20})
    training.enter("Gentle", {**RANDOM, "local": {"lr": 0.01}})  # its own work it may


def test_a_method_that_fails_leaves_and_the_others_go_on(sampler) -> None:
    sampler("nobody", lambda self, round: Selection(np.array([99])))
    training = Training(SMALL, [0])
    training.enter("Random", RANDOM)
    training.enter("Bad", {"sampler": "nobody"})
    with pytest.raises(ValueError, match="there is no client 99"):
        training.advance_for(1e9)
    training.advance_for(1e9)
    assert set(training.results()["method"]) == {"Random"}
    assert training.results()["round"].max() == 5


@pytest.mark.parametrize("scheme", SCHEMES.values())
def test_every_scheme_of_the_panel_makes_a_partition(scheme: str) -> None:
    partition = split(scheme, N=10, n=40, n_test=8, alpha=0.5, shards=2)
    training = Training({**SMALL, "partition": partition}, [0])
    assert training.partitions[0].labels.shape == (10, 10)


def test_standings_rank_by_accuracy_and_say_never() -> None:
    training = Training(SMALL, [0, 1])
    for name, lr in {"Fast": 0.5, "Slow": 1e-4}.items():
        training.enter(name, {**RANDOM, "local": {"lr": lr}})
    training.advance_for(1e9)
    table = standings(training.results(), target=0.5)
    assert table["mean rank"].to_dict() == {"Fast": 1.0, "Slow": 2.0}
    assert table.loc["Slow", "rounds to 50 %"] == table.loc["Slow", "MB to 50 %"] == "never"
    fast = training.results().query("method == 'Fast'")
    first = fast[fast["test_accuracy"] >= 0.5].groupby("seed")["round"].min()
    assert table.loc["Fast", "rounds to 50 %"] == first.median()


def test_stop_holds_and_continue_goes_on_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspace.lab.panel.MOMENT", 0.0)  # a look after every round

    async def watch() -> tuple[Lab, int, int]:
        lab = small_lab(T=10)
        lab.train.click()
        while not lab.picture.value:
            await asyncio.sleep(0.01)
        assert lab.go_on.disabled
        assert not lab.stop.disabled
        lab.stop.click()
        await lab.task
        stopped, picture = lab.training.rounds[0], bytes(lab.picture.value)
        await asyncio.sleep(0.1)
        held = lab.training.rounds[0]
        assert not lab.go_on.disabled
        lab.go_on.click()
        await lab.task
        assert bytes(lab.picture.value) != picture
        return lab, stopped, held

    lab, stopped, held = asyncio.run(watch())
    assert 0 < stopped == held < 10
    assert lab.stop.disabled
    assert lab.go_on.disabled
    through = Training(lab.setting(), [0])
    through.enter("Random", lab.methods["Random"])
    through.advance_for(1e9)
    for column in ("round", "test_accuracy", "test_loss", "clients"):
        assert lab.training.results()[column].tolist() == through.results()[column].tolist()


def test_a_long_first_round_is_told_and_stop_answers_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspace.lab.panel.PATIENCE", 0.01)
    goes_on, advance = threading.Event(), Training.advance

    def slow(self: Training) -> None:  # one of its methods is through its round, the other one compiles
        advance(self)
        goes_on.wait(60)

    monkeypatch.setattr(Training, "advance", slow)

    async def watch() -> Lab:
        lab = small_lab()
        lab.train.click()
        while not lab.training.rounds[0]:
            await asyncio.sleep(0.01)
        lab.say("")
        while "compiling, once" not in lab.status.value:
            await asyncio.sleep(0.01)
        lab.stop.click()
        assert lab.stop.disabled
        assert "stopped; 1 of 5 rounds" in lab.status.value
        goes_on.set()
        await lab.task
        return lab

    lab = asyncio.run(asyncio.wait_for(watch(), 120))
    assert lab.training.rounds[0] == 1  # the round that had begun, and no other
    assert not lab.go_on.disabled


def test_training_begun_anew_while_it_goes_on_takes_the_new_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspace.lab.panel.MOMENT", 0.0)

    async def watch() -> Lab:
        lab = small_lab(T=500)
        lab.train.click()
        await asyncio.sleep(0)
        lab.T.value = 5
        lab.train.click()
        await lab.task
        return lab

    lab = asyncio.run(watch())
    assert lab.training.rounds == (5, 5)


def test_what_enters_later_stands_beside_the_others_and_replaces_its_namesake(sampler) -> None:
    sampler("first_ones", lambda self, round: Selection(np.arange(self.fed.m)))

    async def watch() -> Lab:
        lab = small_lab()
        lab.enter("Mine", sampler="first_ones")
        await lab.task
        before = lab.training.results()
        assert set(before["method"]) == {"Random", "Mine"}
        sampler("first_ones", lambda self, round: Selection(np.arange(5, 5 + self.fed.m)))
        lab.enter("Mine", sampler="first_ones")
        await lab.task
        return lab

    lab = asyncio.run(watch())
    after = lab.training.results()
    assert lab.choose.value == ("Random", "Mine")
    assert "Mine" in lab.table.value
    assert after.query("method == 'Mine' and round > 0")["clients"].tolist() == [[5, 6]] * 5


def test_callbacks_in_a_thread_of_their_own_act_on_the_notebooks_loop() -> None:
    async def watch() -> None:
        lab = small_lab()
        await asyncio.to_thread(lab.train.click)  # as Jupyter's subshells do
        while lab.task is None:
            await asyncio.sleep(0)
        await lab.task
        assert lab.training.rounds == (5, 5)

    asyncio.run(watch())


def test_mistakes_are_told_in_the_panel(sampler) -> None:
    def careless(self, round):
        return Selection(self.favourites)

    sampler("careless", careless)

    async def watch() -> None:
        lab = small_lab()
        await lab.ready
        lab.m.value = 20
        lab.train.click()
        assert "m = 20 clients per round are more than there are (N = 10)" in lab.status.value
        assert lab.training is None
        lab.m.value = 2
        lab.N.value = 11
        assert "one_class needs N to be a multiple of the 10 classes" in lab.status.value
        lab.N.value = 10
        assert "one_class" not in lab.status.value
        lab.enter("Careless", sampler="careless")
        await lab.task
        assert "no attribute &#x27;favourites&#x27;" in lab.status.value
        assert "in careless" in lab.status.value
        lab.enter("Unknown", sampler="unknown")
        assert "unknown sampler &#x27;unknown&#x27;" in lab.status.value

    asyncio.run(watch())


def test_the_panel_shows_the_partition_that_is_chosen() -> None:
    lab = Lab("arena_common", ["Random", "Algorithm 2", "Pow-d", "HiCS-FL"])
    first = bytes(lab.clients.value)
    assert first.startswith(PNG)
    lab.scheme.value = "iid"
    assert bytes(lab.clients.value).startswith(PNG)
    assert bytes(lab.clients.value) != first
    assert lab.alpha.disabled
    lab.scheme.value = "dirichlet_clients"
    assert not lab.alpha.disabled
    prepared = [name for name in datasets.KINDS if datasets.status(name)["state"] == "prepared"]
    assert set(lab.dataset.options) == {"digits", *prepared}


def test_the_notebook_runs_from_top_to_bottom_and_the_new_sampler_enters() -> None:
    notebook = notebooks.read(notebooks.SOURCES / "explore.ipynb")
    (panel,) = (i for i, cell in enumerate(notebook.cells) if cell.source.endswith("\nlab"))
    touch = "lab.T.value, lab.seeds.value, lab.choose.value = 3, 1, ['Random', 'FedCor']"
    notebook.cells.insert(panel + 1, new_code_cell(touch))  # what a person would do, for a shorter run
    check = "await lab.task\nfinal = lab.training.results()\nprint(lab.training.rounds, *final['method'].unique())"
    notebook.cells.append(new_code_cell(check))
    place = {"metadata": {"path": str(notebooks.SOURCES)}}
    client = NotebookClient(notebook, timeout=300, resources=place, kernel_manager_class=ForkedKernel)
    ran = client.execute(env=forked.forking(os.environ))
    assert "application/vnd.jupyter.widget-view+json" in ran.cells[panel].outputs[0].data
    assert ran.cells[-1].outputs[0].text == "(9, 9) Random FedCor Mine\n"


def test_the_best_method_stands_first() -> None:
    """By its mean rank over seeds, 1 for the best; a method that does not reach the target never does."""
    end = {"bad": 0.3, "best": 0.9, "middle": 0.6}
    counted = ("parameters_down", "parameters_up", "scalars_up", "client_steps", "samples_evaluated")
    same = {"experiment": "lab", "setting": "", "diverged": False, "seconds": 0.0, "server_seconds": 0.0}
    same |= dict.fromkeys(counted, 1)
    rows = [
        same | {"method": method, "seed": seed, "round": t, "test_accuracy": accuracy * t / 10}
        for method, accuracy in end.items()
        for seed in (0, 1)
        for t in range(11)
    ]
    table = standings(pd.DataFrame(rows), target=0.5)
    assert list(table.index.get_level_values("method")) == ["best", "middle", "bad"]
    assert table["mean rank"].tolist() == [1.0, 2.0, 3.0]
    rounds = table.iloc[:, 1].tolist()
    assert rounds[0] == pytest.approx(6)
    assert rounds[1] > rounds[0]
    assert rounds[2] == "never"


def test_a_module_whose_name_begins_like_the_librarys_is_imported() -> None:
    mine = type("Mine", (Sampler,), {"__module__": "fedlib_of_mine.samplers"})
    assert export.source(mine) == "import fedlib_of_mine.samplers\n"
