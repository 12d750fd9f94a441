"""The lab: choose a setting, see each client's labels, watch methods train, stop, continue, add your own method.

    lab = Lab("arena_common")             # starts with this experiment of params.yaml
    lab                                   # in a notebook: shows the panel
    lab.enter("Mine", sampler="mine")     # trains it in the same setting, into the same plot and table

A run with the same settings that is finished already, in the store or the archive, is shown at once and not trained.

A task on the notebook's event loop trains rounds in a thread, for a moment at a time, and draws in between. So the
widgets stay responsive, and no run is read while it changes. Jupyter may call the widgets' callbacks in another thread;
everything that they do is passed on to that loop. What is trained here is not kept.
"""

from __future__ import annotations

import asyncio
import html
import importlib
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.display import display

from fedlib.data import datasets
from fedlib.errors import ConfigError, DataError, StoreError
from fedlib.settings import params, schema

if TYPE_CHECKING:  # what trains and draws is loaded when it is used, so that the panel is there at once
    from fedlib.lab.training import Read, Training

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


def split(scheme: str, N: int, n: int, n_test: int, alpha: float, shards: int) -> dict[str, Any]:
    """The settings of a partition scheme, from the values of the widgets. n, n_test: samples per client."""
    settings: dict[str, dict[str, Any]] = {
        "one_class": {"n": n, "n_test": n_test},
        "shards": {"shards": shards},
        "dirichlet_clients": {"alpha": alpha, "sizes": [[N, n]]},
        "dirichlet_prior": {"alpha": alpha},
        "dirichlet_classes": {"alphas": [alpha]},
        "iid": {},
    }
    return {"scheme": scheme, **settings[scheme]}


class Lab:
    """The panel. Its widgets are attributes, so that a program can do what a person does (`lab.train.click()`).

    experiment: an experiment of params.yaml. The widgets start with its methods, and its setting at scale demo. Another
    scale may be chosen if its dataset is prepared.
    first: methods that are selected at the beginning.
    training: the present training, or None. task: the task that trains; await it to wait until all is done.
    """

    def __init__(self, experiment: str, first: Iterable[str] = ()) -> None:
        self.loop = running_loop()
        self.experiment, self.settings = experiment, params.load()
        start = self.settings.describe(experiment, "demo")
        self.methods: dict[str, dict[str, Any]] = dict(start["methods"])
        self.own: dict[str, dict[str, Any]] = {}
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
        self.scale.observe(lambda _: self._do(self._fill), "value")
        self.target.observe(lambda _: self._do(self.draw), "value")
        if self.loop is None:
            self.show_partition()
        else:
            self.ready = self.loop.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Once the panel is there: draw the partition, and load what trains while a person chooses."""
        self.show_partition()
        await asyncio.to_thread(importlib.import_module, "fedlib.lab.training")

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
        at = {scale: self.settings.describe(self.experiment, scale) for scale in schema.SCALES}
        scales = [scale for scale, setting in at.items() if setting["dataset"] in here]
        self.scale = choice("setting at scale", scales, "demo")
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
        data_column = [
            self.scale,
            self.dataset,
            self.scheme,
            self.N,
            self.n,
            self.alpha,
            self.shards,
            self.model,
        ]
        work_column = [self.m, self.T, self.steps, self.batch, self.lr, self.seeds, self.target]
        columns = [widgets.VBox(data_column), widgets.VBox(work_column), self.choose]
        wrap = widgets.Layout(flex_flow="row wrap")
        return widgets.VBox(
            [
                widgets.HBox([self.train, self.stop, self.go_on, self.status], layout=wrap),
                widgets.HBox(columns, layout=wrap),
                self.picture,
                self.table,
                self.clients,
            ]
        )

    def _ipython_display_(self) -> None:
        display(self.panel)

    def setting(self) -> dict[str, Any]:
        """The values of the widgets, as the keys of a run."""
        start = self.settings.describe(self.experiment, self.scale.value)["partition"]
        n_test = max(1, self.n.value * start["n_test"] // start["n"])
        owned = split(
            self.scheme.value, self.N.value, self.n.value, n_test, self.alpha.value, self.shards.value
        )
        local = {"lr": self.lr.value, "batch": self.batch.value, "steps": self.steps.value}
        names = ("dataset", "model", "N", "m", "T")
        return {name: getattr(self, name).value for name in names} | {"partition": owned, "local": local}

    def _fill(self) -> None:
        """Set the widgets to the setting of the experiment at the chosen scale, and take its methods."""
        start = self.settings.describe(self.experiment, self.scale.value)
        chosen = self.choose.value
        self.methods = {**start["methods"], **self.own}
        self.choose.options = list(self.methods)
        self.choose.value = [name for name in chosen if name in self.methods]
        local, owned = start["local"], start["partition"]
        values = {name: start[name] for name in ("dataset", "model", "N", "m", "T")}
        values |= {"scheme": owned["scheme"], "n": owned["n"]}
        for name, value in (values | {name: local[name] for name in ("steps", "batch", "lr")}).items():
            getattr(self, name).value = value

    def show_partition(self) -> None:
        """Draw each client's labels in the selected setting, for the first seed."""
        from fedlib.data import partition
        from fedlib.lab import picture

        picture.style()
        scheme = self.scheme.value
        self.alpha.disabled = not scheme.startswith("dirichlet")
        self.shards.disabled = scheme != "shards"
        self.n.disabled = scheme not in ("one_class", "dirichlet_clients")
        with self._told():
            self.say("")
            run = params.build({**self.setting(), "m": 1, "method": {"sampler": "uniform"}}, 0, "setting")
            part = partition.make(run.partition, datasets.load(run.dataset), run.N, 0)
            picture.show(self.clients, picture.partition_bars({run.dataset: part.labels}))

    def enter(self, label: str, **method: Any) -> None:
        """Add a method, written as in `params.yaml` (`sampler="mine", d=5`), and train it beside the others.

        If nothing was trained yet, the selected methods are trained too. A method with the same label is replaced.
        """
        self.methods[label] = self.own[label] = method
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
            self.say("loading what trains, once")
            from fedlib.lab.training import Training

            training = Training(self.setting(), range(self.seeds.value), self._finished())
            for label in self.choose.value:
                training.enter(label, self.methods[label])
            self.training = training
            self._go()

    def _finished(self) -> Read:
        """What finds finished runs, as it does for notebooks and reports."""
        from fedlib.runs.finished import Finished
        from fedlib.runs.place import Place
        from fedlib.runs.work import Plan, training

        finished = Finished(Plan(self.experiment, self.scale.value), Place.from_environment())
        return lambda run: finished.read(training(run))

    def _do(self, act: Callable[[], None]) -> None:
        """Call `act` in the thread of the notebook's loop; from another thread, as soon as that loop is free."""
        if self.loop is None or self.loop is running_loop():
            act()
        else:
            self.loop.call_soon_threadsafe(act)

    def _stop(self) -> None:
        self.going = False
        self._buttons()
        if self.training is not None:
            self.say("stopped; {:,} of {:,} rounds".format(*self.training.rounds))

    def _go(self) -> None:
        self.going = True
        self._buttons()
        if self.task is None or self.task.done():
            self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        """Train for a moment and draw, until stopped or done. An error ends the training and is shown."""
        with self._told():
            self.draw()  # what was finished before
            while self.going and (training := self.training) is not None and not training.done:
                moment = asyncio.to_thread(training.advance_for, MOMENT, lambda: not self.going)
                await self._timed(asyncio.ensure_future(moment), first=not training.rounds[0])
                self.draw()
        self.going = False
        self._buttons()

    async def _timed(self, moment: asyncio.Future[None], first: bool) -> None:
        """Wait for a moment of training; one that takes long, as the first does where loops are compiled, is told."""
        began = time.monotonic()
        what = "compiling, once, and training the first round" if first else "training"
        while not (await asyncio.wait({moment}, timeout=PATIENCE))[0]:
            if self.going:
                self.say(f"{what}: {time.monotonic() - began:.0f} s")
        moment.result()

    def draw(self) -> None:
        """Update picture, table and status."""
        if self.training is None or not len(results := self.training.results()):
            return
        from fedlib.lab import picture
        from fedlib.lab.training import standings

        training, target = self.training, self.target.value / 100
        labels = next(iter(training.partitions.values())).labels
        picture.show(self.picture, picture.progress(results, labels, target, training.setting["T"]))
        table = standings(results, target).reset_index()
        self.table.value = table.to_html(index=False, border=0, justify="left", col_space=130)
        if self.going:
            trained = ["{:,} of {:,} rounds".format(*training.rounds)] if training.methods else []
            self.say("\n".join(filter(None, [*trained, training.told])))

    def _buttons(self) -> None:
        self.stop.disabled = not self.going
        self.go_on.disabled = self.going or self.training is None or self.training.done

    def say(self, text: str) -> None:
        """Show one or several lines of text beside the buttons."""
        self.status.value = f"<pre>{html.escape(text)}</pre>"

    @contextmanager
    def _told(self) -> Generator[None]:
        """Show errors raised inside this context in the panel, where a person looks, and do not raise them further."""
        try:
            yield
        except (ConfigError, DataError, StoreError) as error:
            self.say(str(error))
        except Exception as error:  # of a sampler under development: show where it failed, too
            from fedlib.errors import SamplerError

            if not isinstance(error, SamplerError):
                self.say(traceback.format_exc(limit=-1))
                return
            own = isinstance(error.__cause__, SamplerError)
            where = "" if own else "".join(traceback.format_exception(error.__cause__, limit=-1))
            self.say(f"{error}\n{where}".rstrip())


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
