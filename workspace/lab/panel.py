"""The lab: choose a setting, see each client's labels, watch methods train, stop, continue, add your own method.

    lab = Lab("arena_common")             # starts with this experiment of params.yaml; any other can be chosen
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
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.display import display

from fedlib.errors import ConfigError, DataError, SamplerError, StoreError
from fedlib.files import write_whole
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.lab.setting import KINDS, Setting

if TYPE_CHECKING:  # what trains and draws is loaded when it is used, so that the panel is there at once
    from workspace.lab.training import Read, Training

MOMENT = 0.3  # seconds of training between two updates of the panel
SAVED, SCRIPT, ENTRY = ROOT / "data" / "lab", "from_the_lab.py", "from_the_lab.yaml"
PATIENCE = 1.0  # seconds without a round, after which the time is shown
NEEDED = (
    "workspace.lab.picture",
    "workspace.lab.training",
    "workspace.pages.tables",
)  # what draws and trains
LOADING = "loading what draws and trains, once"


class Lab(Setting):
    """The panel. Its widgets are attributes, so that a program can do what a person does (`lab.train.click()`).

    experiment: the experiment of params.yaml with which the widgets begin. Any other one, each of its settings and
    every scale whose dataset is prepared may be chosen.
    first: methods that are selected at the beginning.
    training: the present training, or None. task: the task that trains; await it to wait until all is done.
    """

    def __init__(self, experiment: str, first: Iterable[str] = ()) -> None:
        super().__init__(experiment)
        self.loop = running_loop()
        self.training: Training | None = None
        self.ran: dict[str, dict[str, Any]] = {}  # label -> method, of the present training
        self.task: asyncio.Task[None] | None = None
        self.going, self.loaded = False, all(module in sys.modules for module in NEEDED)
        self.choose.value = [name for name in first if name in self.methods] or list(self.methods)[:2]
        self.train = widgets.Button(description="Train", button_style="primary", icon="play")
        self.stop = widgets.Button(description="Stop", icon="pause", disabled=True)
        self.go_on = widgets.Button(description="Continue", icon="forward", disabled=True)
        self.export = widgets.Button(description="Export", icon="download")
        self.status = widgets.HTML()
        self.clients, self.picture = (
            widgets.Image(format="png", layout=widgets.Layout(max_width="100%", display="none"))
            for _ in range(2)
        )
        self.table = widgets.HTML()
        self.script, self.entry = (
            widgets.Textarea(rows=14, layout=widgets.Layout(width="46%", min_width="22em", display="none"))
            for _ in range(2)
        )
        self.save = widgets.Button(
            description="Save both", icon="save", layout=widgets.Layout(display="none"), tooltip=f"In {SAVED}"
        )
        self.taken = widgets.HTML()  # links that copy and download them
        self.save.on_click(lambda _: self._do(self._save))
        self.train.on_click(lambda _: self._do(self._train))
        self.stop.on_click(lambda _: self._do(self._stop))
        self.go_on.on_click(lambda _: self._do(self._go))
        self.export.on_click(lambda _: self._do(self._export))
        for key in KINDS:
            self._on_choice(getattr(self, key), lambda key=key: self.choose_kind(key))
        for widget, act in ((self.scheme, self.choose_scheme), (self.server, self.choose_server)):
            self._on_choice(widget, act)
        for widget in (self.dataset, self.N, self.n, self.alpha, self.shards, self.further):
            widget.observe(lambda _: self._do(self._changed), "value")
        for widget, act in (
            (self.origin, self.begin),
            (self.scale, self.list_settings),
            (self.grid, self.fill),
        ):
            self._on_choice(widget, act)
        self.target.observe(lambda _: self._do(self.draw), "value")
        if self.loop is None:
            self.loaded = True
            self.show_partition()
        else:
            self.say(LOADING)
            self.ready = self.loop.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Once the panel is there: load what draws and trains, in a thread, so that it answers; draw the partition."""
        for module in NEEDED:
            await asyncio.to_thread(importlib.import_module, module)
        self.loaded = True
        self.show_partition()

    def _on_choice(self, widget: widgets.Widget, act: Callable[[], None]) -> None:
        widget.observe(lambda _: self._do(lambda: self._choose(act)), "value")

    def _choose(self, act: Callable[[], None]) -> None:
        """Fill the widgets, unless they are being filled, and draw the partition once."""
        if not self.filling:
            with self._errors_shown():
                with self._quietly():
                    act()
                self._changed()

    def _changed(self) -> None:
        """Draw the partition anew; before everything is loaded, `_prepare` will."""
        if not self.filling and self.loaded:
            self.show_partition()

    @property
    def selected(self) -> dict[str, dict[str, Any]]:
        """Label -> method, of the selected methods, with the chosen algorithm of the server."""
        return {label: self.on_server(self.methods[label]) for label in self.choose.value}

    @property
    def panel(self) -> widgets.VBox:
        columns = [*map(widgets.VBox, self.columns), self.choose]
        wrap = widgets.Layout(flex_flow="row wrap")
        return widgets.VBox(
            [
                widgets.HBox([self.train, self.stop, self.go_on, self.export, self.status], layout=wrap),
                widgets.HBox([self.script, self.entry], layout=wrap),
                widgets.HBox([self.save, self.taken], layout=wrap),
                widgets.HBox(columns, layout=wrap),
                self.picture,
                self.table,
                self.clients,
            ]
        )

    def _ipython_display_(self) -> None:
        display(self.panel)

    def show_partition(self) -> None:
        """Draw each client's labels in the selected setting, for the first seed."""
        from fedlib.data import datasets, partition
        from workspace.lab import picture

        picture.style()
        scheme = self.scheme.value
        self.alpha.disabled = not scheme.startswith("dirichlet")
        self.shards.disabled = scheme != "shards"
        self.n.disabled = scheme not in ("one_class", "dirichlet_clients")
        with self._errors_shown():
            self.say("")
            run = params.build({**self.setting(), "m": 1, "method": {"sampler": "uniform"}}, 0, "setting")
            part = partition.make(run.partition, datasets.load(run.dataset), run.N, 0)
            picture.show(self.clients, picture.partition_bars({run.dataset: part.labels}))

    def enter(self, label: str, **method: Any) -> None:
        """Add a method, written as in `params.yaml` (`sampler="mine", d=5`), and train it beside the others.

        If nothing was trained yet, the selected methods are trained too. A method with the same label is replaced.
        """
        self.methods[label] = self.added[label] = method
        chosen = [name for name in self.choose.value if name != label]
        self.choose.options = list(self.methods)
        self.choose.value = [*chosen, label]
        if self.training is None:
            self._train()
            return
        with self._errors_shown():
            method = self.on_server(method)
            self.training.enter(label, method)
            self.ran[label] = method
            self._go()

    def _train(self) -> None:
        """Start a new training with what is selected; the present training is dropped."""
        if self.loop is not None and not self.loaded:
            self.say(f"{LOADING}; training begins by itself")
            if self.task is None:
                self.task = self.loop.create_task(self._once_ready())
            return
        with self._errors_shown():
            if not self.choose.value:
                raise ConfigError("choose at least one method.")
            from workspace.lab.training import Training

            training = Training(self.setting(), range(self.seeds.value), self._finished())
            selected = self.selected
            for label, method in selected.items():
                training.enter(label, method)
            self.training, self.ran = training, selected
            self._go()

    async def _once_ready(self) -> None:
        """Train as soon as everything is loaded; ends when the training does."""
        await self.ready
        self.task = None
        self._train()
        if self.task is not None:
            await self.task

    def _export(self) -> None:
        """Show what was run, or before that what is selected, as a script and as an entry of params.yaml."""
        from workspace.lab import export

        with self._errors_shown():
            ran = self.training is not None
            setting = self.training.setting if ran else self.setting()
            seeds = len(self.training.seeds) if ran else self.seeds.value
            methods = self.ran if ran else self.selected
            self.script.value = export.script(setting, methods, seeds, self.target.value / 100)
            self.entry.value = export.entry(setting, methods, seeds)
            for widget in (self.script, self.entry, self.save):
                widget.layout.display = ""
            self.taken.value = export.links({SCRIPT: self.script.value, ENTRY: self.entry.value})

    def _save(self) -> None:
        """Write the script and the entry into a folder of the repository that git does not have."""
        with self._errors_shown():
            for name, text in ((SCRIPT, self.script.value), (ENTRY, self.entry.value)):
                write_whole(SAVED / name, text.encode())
            self.say(f"Saved in {SAVED.relative_to(ROOT)}: {SCRIPT} and {ENTRY}.")

    def _finished(self) -> Read:
        """What finds finished runs, as it does for notebooks and reports."""
        from fedlib.runs.lookup import Finished
        from fedlib.runs.place import Place
        from fedlib.runs.work import Plan, training

        finished = Finished(Plan(self.origin.value, self.scale.value), Place.from_environment())
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
        with self._errors_shown():
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
        doing = "compiling, once, and training the first round" if first else "training"
        while not (await asyncio.wait({moment}, timeout=PATIENCE))[0]:
            if self.going:
                self.say(f"{doing}: {time.monotonic() - began:.0f} s")
        moment.result()

    def draw(self) -> None:
        """Update picture, table and status."""
        if self.training is None or not len(results := self.training.results()):
            return
        from workspace.lab import picture
        from workspace.lab.training import standings
        from workspace.pages import tables

        training, target = self.training, self.target.value / 100
        labels = next(iter(training.partitions.values())).labels
        picture.show(self.picture, picture.progress(results, labels, target, training.setting["T"]))
        self.table.value = tables.html_of(standings(results, target).reset_index())
        if self.going:
            trained = ["{:,} of {:,} rounds".format(*training.rounds)] if training.methods else []
            self.say("\n".join(filter(None, [*trained, training.from_archive])))

    def _buttons(self) -> None:
        self.stop.disabled = not self.going
        self.go_on.disabled = self.going or self.training is None or self.training.done

    def say(self, text: str) -> None:
        """Show one or several lines of text beside the buttons."""
        self.status.value = as_lines(text)

    @contextmanager
    def _errors_shown(self) -> Generator[None]:
        """Show errors raised inside this context in the panel, where a person looks, and do not raise them further."""
        try:
            yield
        except (ConfigError, DataError, StoreError) as error:
            self.say(str(error))
        except Exception as error:  # of a sampler under development: show where it failed, too
            if not isinstance(error, SamplerError):
                self.say(traceback.format_exc(limit=-1))
                return
            is_own_error = isinstance(error.__cause__, SamplerError)
            where = "" if is_own_error else "".join(traceback.format_exception(error.__cause__, limit=-1))
            self.say(f"{error}\n{where}".rstrip())


def as_lines(text: str) -> str:
    """Lines of text as HTML."""
    return f"<pre>{html.escape(text)}</pre>"


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
