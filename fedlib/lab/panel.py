"""The lab: choose a setting, see each client's labels, watch methods train, stop, continue, add your own method.

    lab = Lab("arena_common")             # starts with this experiment of params.yaml
    lab                                   # in a notebook: shows the panel
    lab.enter("Mine", sampler="mine")     # trains it in the same setting, into the same plot and table

A task on the notebook's event loop trains rounds in a thread, for a moment at a time, and draws in between. So the
widgets stay responsive, and no run is read while it changes. Jupyter may call the widgets' callbacks in another thread;
everything that they do is passed on to that loop. What is trained here is not kept.
"""

from __future__ import annotations

import asyncio
import html
import io
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedlib.analysis import measure, tables
from fedlib.data import datasets, partition
from fedlib.lab import picture
from fedlib.pages import plots
from fedlib.runs.place import Place, cores
from fedlib.settings import params, schema
from fedlib.settings.schema import ConfigError
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.guard import SamplerError
from fedlib.training.executors import make_executor

MOMENT = 0.3  # seconds of training between two updates of the panel
PATIENCE = 1.0  # seconds without a round, after which the time is shown
SCHEMES = {
    "one label per client": "one_class",
    "shards of sorted labels": "shards",
    "Dirichlet, a client draws its labels": "dirichlet_clients",
    "Dirichlet, sizes use all data": "dirichlet_prior",
    "Dirichlet, a class is dealt out": "dirichlet_classes",
    "independent, identical": "iid",
}
SHARED = {
    "dataset",
    "scaling",
    "partition",
    "holdout",
    "model",
    "N",
}  # settings that a method may not change during a training


def split(scheme: str, N: int, n: int, alpha: float, shards: int) -> dict[str, Any]:
    """The settings of a partition scheme, from the values of the widgets. n: samples per client."""
    settings: dict[str, dict[str, Any]] = {
        "one_class": {"n": n, "n_test": max(1, n // 5)},
        "shards": {"shards": shards},
        "dirichlet_clients": {"alpha": alpha, "sizes": [[N, n]]},
        "dirichlet_prior": {"alpha": alpha},
        "dirichlet_classes": {"alphas": [alpha]},
        "iid": {},
    }
    return {"scheme": scheme, **settings[scheme]}


class Training:
    """Methods that train side by side in one setting. Each may be added at any time, and added again.

    setting: the keys of a run without method and seed. partitions: seed -> each client's samples.

    Raises:
        ConfigError: the setting is impossible. DataError: its dataset is not prepared.
    """

    def __init__(self, setting: Mapping[str, Any], seeds: Iterable[int], place: Place | None = None) -> None:
        place = place or Place.from_environment()
        self.setting, self.seeds = dict(setting), list(seeds)
        self.plain = [self._run({"sampler": "uniform"}, seed, "setting") for seed in self.seeds]
        run = self.plain[0]
        dataset = datasets.load(run.dataset, place.datasets)
        self.partitions = {
            one.seed: partition.make(one.partition, dataset, one.N, one.seed, one.holdout)
            for one in self.plain
        }
        tensors = datasets.tensors(dataset, run.scaling)
        self.executor = make_executor(run.model, tensors, place.device, place.threads or cores())
        self.methods: dict[str, Lockstep] = {}

    def _run(self, method: Mapping[str, Any], seed: int, label: str) -> schema.Run:
        raw = params.merge(self.setting, params.split_method(dict(method)))
        return params.build(raw, seed, label)

    def enter(self, label: str, method: Mapping[str, Any]) -> None:
        """Add a method, written as in `params.yaml`, from its own round 0. It replaces an older one with this label.

        Raises:
            ConfigError, SamplerError: it is unknown, has unusable parameters, or changes a setting that all share.
        """
        runs = [self._run(method, seed, label) for seed in self.seeds]
        for key in SHARED:
            if getattr(runs[0], key) != getattr(self.plain[0], key):
                raise ConfigError(f"{label}: {key} is shared by all methods here; change it in the setting.")
        self.methods[label] = Lockstep(runs, list(self.partitions.values()), self.executor)

    @property
    def done(self) -> bool:
        """Whether all runs have ended."""
        return not any(method.active for method in self.methods.values())

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds done and rounds planned, summed over all runs. A run that ended early counts only what it did."""
        lives = [live for method in self.methods.values() for live in method.live]
        return sum(live.t for live in lives), sum(live.t if live.done else live.run.T for live in lives)

    def advance(self) -> None:
        """Train one round of every unfinished run. A method that fails is removed, and its error is raised."""
        for label, method in list(self.methods.items()):
            if method.active:
                try:
                    method.advance()
                except Exception:
                    del self.methods[label]
                    raise

    def advance_for(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> None:
        """Train rounds until the time is over (at least one round), all runs are done, or training is stopped."""
        end = time.monotonic() + seconds
        while not self.done:
            self.advance()
            if stopped() or time.monotonic() >= end:
                return

    def results(self) -> pd.DataFrame:
        """The rounds so far as a tidy table (see Results in `ARCHITECTURE.md`); empty before the first round."""
        runs = [
            pd.DataFrame(live.rows).assign(experiment="lab", setting="", method=label, seed=live.run.seed)
            for label, method in self.methods.items()
            for live in method.live
            if live.t
        ]
        return pd.concat(runs, ignore_index=True) if runs else pd.DataFrame()


def standings(results: pd.DataFrame, target: float) -> pd.DataFrame:
    """A small arena, one row per method: mean rank over seeds by present accuracy; rounds and bytes to the target."""
    final = measure.per_run(results, "test_accuracy", measure.end_mean, share=0.05)
    table = tables.cost_table(results, target).iloc[:, :3]
    table.insert(0, "mean rank", measure.mean_ranks(final.unstack("method")))
    return table.sort_values("mean rank").round(2).replace(np.inf, "never")


class Lab:
    """The panel. Its widgets are attributes, so that a program can do what a person does (`lab.train.click()`).

    experiment: an experiment of params.yaml. The widgets start with its methods, and its setting at scale demo.
    first: methods that are selected at the beginning.
    training: the present training, or None. task: the task that trains; await it to wait until all is done.
    """

    def __init__(self, experiment: str, first: Iterable[str] = ()) -> None:
        self.loop = running_loop()
        start = params.load().describe(experiment, "demo")
        self.methods: dict[str, dict[str, Any]] = dict(start["methods"])
        self.training: Training | None = None
        self.task: asyncio.Task[None] | None = None
        self.going = False
        chosen = [name for name in first if name in self.methods] or list(self.methods)[:2]
        self._setting_widgets(start, chosen)
        self.train = widgets.Button(description="Train", button_style="primary", icon="play")
        self.stop = widgets.Button(description="Stop", icon="pause", disabled=True)
        self.go_on = widgets.Button(description="Continue", icon="forward", disabled=True)
        self.status = widgets.HTML()
        self.clients, self.picture = (
            widgets.Image(format="png", layout=widgets.Layout(max_width="100%", display="none"))
            for _ in range(2)
        )
        self.table = widgets.HTML()
        self.train.on_click(lambda _: self._do(self._train))
        self.stop.on_click(lambda _: self._do(self._stop))
        self.go_on.on_click(lambda _: self._do(self._go))
        for widget in (self.dataset, self.scheme, self.N, self.n, self.alpha, self.shards):
            widget.observe(lambda _: self._do(self.show_partition), "value")
        self.target.observe(lambda _: self._do(self.draw), "value")
        self.show_partition()

    def _setting_widgets(self, start: Mapping[str, Any], chosen: list[str]) -> None:
        """The widgets of a setting, with initial values from `start` (a raw experiment), and of its methods."""
        wide = {"style": {"description_width": "11em"}, "layout": widgets.Layout(width="28em")}

        def whole(words: str, value: int, low: int, high: int) -> widgets.IntSlider:
            return widgets.IntSlider(value, low, high, description=words, continuous_update=False, **wide)

        def number(words: str, value: float, low: int, high: int) -> widgets.FloatLogSlider:
            return widgets.FloatLogSlider(
                value, min=low, max=high, step=0.1, description=words, continuous_update=False, **wide
            )

        def choice(words: str, options: Any, value: Any) -> widgets.Dropdown:
            return widgets.Dropdown(options=options, value=value, description=words, **wide)

        here = [
            name
            for name in datasets.KINDS
            if name == "digits" or datasets.status(name)["state"] == "prepared"
        ]
        local = start["local"]
        self.dataset = choice("dataset", here, "digits")
        self.scheme = choice("partition", SCHEMES, start["partition"]["scheme"])
        self.N = whole("clients N", start["N"], 2, 200)
        self.n = whole("samples per client", start["partition"]["n"], 5, 500)
        self.alpha = number("alpha", 0.1, -3, 2)
        self.shards = whole("shards per client", 2, 1, 10)
        self.model = choice("model", schema.model_names(), start["model"])
        self.m = whole("chosen per round m", start["m"], 1, 100)
        self.T = whole("rounds T", start["T"], 1, 500)
        self.steps = whole("local steps", local["steps"], 1, 200)
        self.batch = whole("batch", local["batch"], 1, 100)
        self.lr = number("learning rate", local["lr"], -4, 1)
        self.seeds = whole("seeds", 2, 1, 5)
        self.target = whole("target accuracy (%)", 80, 1, 100)
        self.choose = widgets.SelectMultiple(
            options=list(self.methods), value=chosen, rows=16, description="methods", layout={"width": "20em"}
        )

    @property
    def panel(self) -> widgets.VBox:
        data_column = [self.dataset, self.scheme, self.N, self.n, self.alpha, self.shards, self.model]
        work_column = [self.m, self.T, self.steps, self.batch, self.lr, self.seeds, self.target]
        columns = [widgets.VBox(data_column), widgets.VBox(work_column), self.choose]
        wrap = widgets.Layout(flex_flow="row wrap")
        return widgets.VBox(
            [
                widgets.HBox([self.train, self.stop, self.go_on, self.status], layout=wrap),
                widgets.HBox(columns, layout=wrap),
                self.clients,
                self.picture,
                self.table,
            ]
        )

    def _ipython_display_(self) -> None:
        display(self.panel)

    def setting(self) -> dict[str, Any]:
        """The values of the widgets, as the keys of a run."""
        owned = split(self.scheme.value, self.N.value, self.n.value, self.alpha.value, self.shards.value)
        local = {"lr": self.lr.value, "batch": self.batch.value, "steps": self.steps.value}
        names = ("dataset", "model", "N", "m", "T")
        return {name: getattr(self, name).value for name in names} | {"partition": owned, "local": local}

    def show_partition(self) -> None:
        """Draw each client's labels in the selected setting, for the first seed."""
        scheme = self.scheme.value
        self.alpha.disabled = not scheme.startswith("dirichlet")
        self.shards.disabled = scheme != "shards"
        self.n.disabled = scheme not in ("one_class", "dirichlet_clients")
        with self._told():
            self.say("")
            run = params.build({**self.setting(), "m": 1, "method": {"sampler": "uniform"}}, 0, "setting")
            part = partition.make(run.partition, datasets.load(run.dataset), run.N, 0)
            show(self.clients, plots.partition_bars({run.dataset: part.labels}))

    def enter(self, label: str, **method: Any) -> None:
        """Add a method, written as in `params.yaml` (`sampler="mine", d=5`), and train it beside the others.

        If nothing was trained yet, the selected methods are trained too. A method with the same label is replaced.
        """
        self.methods[label] = method
        chosen = [name for name in self.choose.value if name != label]
        self.choose.options = list(self.methods)
        self.choose.value = [*chosen, label]
        if self.training is None:
            self._train()
            return
        with self._told():
            self.training.enter(label, method)
            self._go()

    def _train(self) -> None:
        """Start a new training with what is selected; the present training is dropped."""
        with self._told():
            if not self.choose.value:
                raise ConfigError("choose at least one method.")
            training = Training(self.setting(), range(self.seeds.value))
            for label in self.choose.value:
                training.enter(label, self.methods[label])
            self.training = training
            self._go()

    def _do(self, act: Callable[[], None]) -> None:
        """Call `act` in the thread of the notebook's loop; from another thread, as soon as that loop is free."""
        if self.loop is None or self.loop is running_loop():
            act()
        else:
            self.loop.call_soon_threadsafe(act)

    def _stop(self) -> None:
        self.going = False
        self._buttons()
        self.say("stopped; {:,} of {:,} rounds".format(*self.training.rounds))

    def _go(self) -> None:
        self.going = True
        self._buttons()
        if self.task is None or self.task.done():
            self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        """Train for a moment and draw, until stopped or done. An error ends the training and is shown."""
        with self._told():
            while self.going and not self.training.done:
                moment = asyncio.to_thread(self.training.advance_for, MOMENT, lambda: not self.going)
                await self._timed(asyncio.ensure_future(moment))
                self.draw()
        self.going = False
        self._buttons()

    async def _timed(self, moment: asyncio.Future[None]) -> None:
        """Wait for a moment of training; one that takes long, as the first does where loops are compiled, is told."""
        began = time.monotonic()
        while not (await asyncio.wait({moment}, timeout=PATIENCE))[0]:
            if self.going:
                what = (
                    "training" if self.training.rounds[0] else "compiling, once, and training the first round"
                )
                self.say(f"{what}: {time.monotonic() - began:.0f} s")
        moment.result()

    def draw(self) -> None:
        """Update picture, table and status."""
        if self.training is None or not len(results := self.training.results()):
            return
        training, target = self.training, self.target.value / 100
        labels = next(iter(training.partitions.values())).labels
        show(self.picture, picture.progress(results, labels, target, training.setting["T"]))
        table = standings(results, target).reset_index()
        self.table.value = table.to_html(index=False, border=0, justify="left", col_space=130)
        if self.going:
            self.say("{:,} of {:,} rounds".format(*training.rounds))

    def _buttons(self) -> None:
        self.stop.disabled = not self.going
        self.go_on.disabled = self.going or self.training is None or self.training.done

    def say(self, text: str) -> None:
        """Show one or several lines of text beside the buttons."""
        self.status.value = f"<pre>{html.escape(text)}</pre>"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Show errors raised inside this context in the panel, where a person looks, and do not raise them further."""
        try:
            yield
        except SamplerError as error:  # of a sampler under development: show where it failed, too
            own = isinstance(error.__cause__, SamplerError)
            where = "" if own else "".join(traceback.format_exception(error.__cause__, limit=-1))
            self.say(f"{error}\n{where}".rstrip())
        except (ConfigError, datasets.DataError) as error:
            self.say(str(error))
        except Exception:  # of a sampler under development: show where it failed, too
            self.say(traceback.format_exc(limit=-1))


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def show(image: widgets.Image, figure: Figure) -> None:
    """Draw a figure into a widget, and close the figure."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    plt.close(figure)
    image.value = picture.getvalue()
    image.layout.display = ""
