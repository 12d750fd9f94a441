"""The widgets of a setting: they begin with one of params.yaml and may be changed to any other."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import ipywidgets as widgets
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fedlib import algorithms
from fedlib.data import datasets, schemes
from fedlib.errors import ConfigError
from fedlib.kinds import Settings, parameters_of
from fedlib.settings import params, schema
from fedlib.settings.world import World

if TYPE_CHECKING:
    from collections.abc import Generator

    from pydantic import BaseModel

SCHEMES = {  # those whose keys have widgets
    "one label per client": "one_class",
    "shards of sorted labels": "shards",
    "Dirichlet, a client draws its labels": "dirichlet_clients",
    "Dirichlet, sizes use all data": "dirichlet_prior",
    "Dirichlet, a class is dealt out": "dirichlet_classes",
    "independent, identical": "iid",
}
WRITTEN = "as written under “further keys”"
PLAIN = ("dataset", "model", "N", "m", "T")  # keys of a run with a widget each
KINDS = ("rate", "process", "pattern", "ends")  # keys of a world that have kinds


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


def kinds_of(key: str) -> dict[str, type[Settings]]:
    """The kinds that a key of a world may have, by name."""

    def classes(annotation: Any) -> list[type[Settings]]:
        if isinstance(annotation, type):
            return [annotation] if issubclass(annotation, Settings) else []
        return [one for part in get_args(annotation) for one in classes(part)]

    members = classes(World.model_fields[key].annotation)
    return {one.model_fields["kind"].default: one for one in members}


class Setting:
    """The widgets, as attributes, so that a program can do what a person does (`lab.N.value = 20`).

    origin, scale, grid: the experiment of params.yaml, its scale and its setting with which the widgets begin. A scale
    is offered if its dataset is prepared. further: every key of the run that has no widget, as YAML.
    methods: label -> method, as params.yaml writes it.
    """

    def __init__(self, experiment: str) -> None:
        self.settings = params.load()
        self.prepared = [
            name
            for name in datasets.KINDS
            if name == "digits" or datasets.status(name)["state"] == "prepared"
        ]
        self.added: dict[str, dict[str, Any]] = {}
        self.methods: dict[str, dict[str, Any]] = {}
        self.test_share = 0.0  # of a client's samples, where each has one label
        self.filling = False
        self._make(experiment)
        self.begin()

    def _make(self, experiment: str) -> None:
        wide = {"style": {"description_width": "11em"}, "layout": widgets.Layout(width="28em")}

        slider = {"continuous_update": False, **wide}

        def whole(words: str, low: int, high: int, value: int | None = None) -> widgets.IntSlider:
            return widgets.IntSlider(low if value is None else value, low, high, description=words, **slider)

        def number(words: str, value: float, low: int, high: int) -> widgets.FloatLogSlider:
            return widgets.FloatLogSlider(value, min=low, max=high, step=0.1, description=words, **slider)

        def choice(words: str, options: Any, value: Any = None) -> widgets.Dropdown:
            return widgets.Dropdown(options=options, value=value, description=words, **wide)

        self.origin = choice("experiment", self.settings.names, experiment)
        self.scale = choice("at scale", [])
        self.grid = choice("setting", [])
        self.dataset = choice("dataset", self.prepared, "digits")
        without_widgets = {name: name for name in schemes.load_all() if name not in SCHEMES.values()}
        self.scheme = choice("partition", {WRITTEN: "", **SCHEMES, **without_widgets}, "iid")
        self.N = whole("clients N", 2, 200)
        self.n = whole("samples per client", 5, 500)
        self.alpha = number("alpha", 0.1, -3, 2)
        self.shards = whole("shards per client", 1, 10, 2)
        self.model = choice("model", schema.model_names(), schema.model_names()[0])
        self.m = whole("chosen per round m", 1, 100)
        self.T = whole("rounds T", 1, 500)
        self.work = choice("local work in", ["steps", "epochs"], "steps")
        self.steps = whole("steps or epochs", 1, 200)
        self.batch = whole("batch", 1, 100)
        self.lr = number("learning rate", 0.01, -4, 1)
        self.seeds = whole("seeds", 1, 5, 2)
        self.target = whole("target accuracy (%)", 1, 100, 80)
        self.further = widgets.Textarea(
            description="further keys", placeholder="as in params.yaml", rows=6, **slider
        )
        self.world = choice("clients are", {"always there": False, "in a world": True}, False)
        self.mean = widgets.FloatSlider(
            1.0, min=0.01, max=1.0, step=0.01, description="share that is there", **slider
        )
        self.absences = choice("absences are", get_args(World.model_fields["absences"].annotation))
        for key, words in zip(
            KINDS, ("how often", "from round to round", "over time", "a round ends"), strict=True
        ):
            default = World.model_fields[key].default
            unset = {} if default else {"no pattern": ""}
            setattr(
                self,
                key,
                choice(
                    words, unset | {name: name for name in kinds_of(key)}, default.kind if default else ""
                ),
            )
        self.speeds = choice("clients' speeds", {"all the same": False, "different": True}, False)
        self.server = choice("server's algorithm", list(algorithms.load_all()), "fedavg")
        self.choose = widgets.SelectMultiple(rows=16, description="methods", layout={"width": "22em"})
        self.columns = [
            [self.origin, self.scale, self.grid, self.dataset, self.scheme, self.N, self.n, self.alpha,
             self.shards, self.model],
            [self.m, self.T, self.work, self.steps, self.batch, self.lr, self.seeds, self.target,
             self.further],
            [self.server, self.world, self.mean, *(getattr(self, key) for key in KINDS), self.speeds, self.absences],
        ]  # fmt: skip

    @contextmanager
    def _quietly(self) -> Generator[None]:
        """Widgets that change inside this context are being filled: nobody chose anything."""
        was_filling, self.filling = self.filling, True
        try:
            yield
        finally:
            self.filling = was_filling

    def begin(self) -> None:
        """Offer the scales of the chosen experiment whose dataset is prepared, and fill the widgets."""
        with self._quietly():
            specs = {scale: self.settings.describe(self.origin.value, scale) for scale in schema.SCALES}
            scales = [scale for scale, spec in specs.items() if spec["dataset"] in self.prepared]
            self.scale.options = scales or list(schema.SCALES)
            self.scale.value = self.scale.options[0]
            self.list_settings()

    def list_settings(self) -> None:
        """Offer the settings of the chosen experiment at the chosen scale, and fill the widgets."""
        with self._quietly():
            settings = list(self._spec().get("grid") or {"": {}})
            present = self.grid.value
            self.grid.options = [(name or "the only setting of this experiment", name) for name in settings]
            self.grid.value = present if present in settings else settings[0]
            self.fill()

    def _spec(self) -> dict[str, Any]:
        return self.settings.describe(self.origin.value, self.scale.value)

    def raw(self) -> dict[str, Any]:
        """The chosen setting as params.yaml writes it: the keys of a run, and methods; seeds have a widget."""
        spec = self._spec()
        changes = (spec.get("grid") or {"": {}})[self.grid.value]
        base = {key: value for key, value in spec.items() if key == "methods" or key not in params.RESERVED}
        chosen = params.merge(base, changes or {})
        chosen.pop("seeds", None)
        methods = {
            label: {key: value for key, value in method.items() if key != "seeds"}
            for label, method in chosen["methods"].items()
        }
        return chosen | {"methods": methods}

    def fill(self) -> None:
        """Set the widgets to the chosen setting, and take its methods."""
        start = self.raw()
        with self._quietly():
            chosen = self.choose.value
            self.methods = {**start["methods"], **self.added}
            self.choose.options = list(self.methods)
            self.choose.value = [name for name in chosen if name in self.methods]
            local, partition = dict(start.pop("local")), start.pop("partition")
            if start["dataset"] not in self.dataset.options:
                self.dataset.options = [*self.prepared, start["dataset"]]
            self.work.value = "epochs" if "epochs" in local else "steps"
            values = {key: start.pop(key) for key in PLAIN} | self._of_partition(partition)
            values["world"] = "world" in start
            if world := self._of_world(dict(start.pop("world", None) or {}), values):
                start["world"] = world
            values |= {
                "steps": local.pop(self.work.value),
                "batch": local.pop("batch"),
                "lr": local.pop("lr"),
            }
            del start["methods"]
            for name, value in values.items():
                widget = getattr(self, name)
                if isinstance(widget, widgets.IntSlider):
                    widget.max, widget.min = max(widget.max, value), min(widget.min, value)
                widget.value = value
            unshown = {} if self.scheme.value in SCHEMES.values() else {"partition": partition}
            unshown |= start | ({"local": local} if local else {})
            self.further.value = as_yaml(unshown)

    def _of_partition(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the widgets that say the same as a partition; the scheme is "" if none do."""
        scheme = partition["scheme"]
        if scheme not in SCHEMES.values():
            return {"scheme": scheme if scheme in schemes.load_all() else ""}
        sizes, alphas = partition.get("sizes", [[0, 0]]), partition.get("alphas", [0.1])
        n, n_test = partition.get("n", sizes[0][1]), partition.get("n_test", 0)
        alpha, shards = partition.get("alpha", alphas[0]), partition.get("shards", 0)
        if not isinstance(alpha, int | float) or split(scheme, sizes[0][0], n, n_test, alpha, shards) != dict(
            partition
        ):
            return {"scheme": ""}
        self.test_share = n_test / n if n_test else 0.0
        values = {"n": n, "alpha": alpha, "shards": shards}
        return {"scheme": scheme} | {name: value for name, value in values.items() if value}

    def _of_world(self, world: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Add a world's values to those of the widgets; returns its keys that have none."""
        fields = World.model_fields
        values |= {key: world.pop(key, fields[key].default) for key in ("mean", "absences")}
        values["speeds"] = world.get("speeds") is not None
        for key in KINDS:
            default = fields[key].default
            values[key] = (world.get(key) or {}).get("kind", default.kind if default else "")
            if key in world:
                world[key] = {name: value for name, value in (world[key] or {}).items() if name != "kind"}
        return {key: value for key, value in world.items() if value not in ({}, None)}

    def write_keys(self, model: type[BaseModel] | None, *place: str) -> None:
        """Write the keys of what was chosen, with their defaults, into the further keys in place of the old ones."""
        further = from_yaml(self.further.value)
        inner = further
        for name in place[:-1]:
            inner = inner.setdefault(name, {})
        named = {"scheme", "kind"}
        defaults = {
            name: None if field.is_required() else field.default
            for name, field in (model.model_fields if model else {}).items()
            if name not in named and (field.is_required() or field.default is not None)
        }
        inner.pop(place[-1], None)
        if defaults:
            inner[place[-1]] = defaults
        self.further.value = as_yaml({key: value for key, value in further.items() if value != {}} or None)

    def choose_scheme(self) -> None:
        """Write the keys of the chosen partition scheme, unless it has widgets or is written already."""
        name = self.scheme.value
        if name not in ("", *SCHEMES.values()):
            self.write_keys(schemes.find(name), "partition")

    def choose_kind(self, key: str) -> None:
        """Write the keys of the chosen kind of a world's part, and go there."""
        self.world.value = True
        self.write_keys(kinds_of(key).get(getattr(self, key).value), "world", key)

    def choose_server(self) -> None:
        """Write the parameters of the chosen algorithm of the server."""
        self.write_keys(parameters_of(algorithms.find(self.server.value)), "algorithm_params")

    def on_server(self, method: Mapping[str, Any]) -> dict[str, Any]:
        """A method with the chosen algorithm of the server, unless it names its own."""
        if self.server.value == "fedavg" or "algorithm" in method:
            return dict(method)
        parameters = from_yaml(self.further.value).get("algorithm_params")
        chosen = {"algorithm": self.server.value} | ({"algorithm_params": parameters} if parameters else {})
        return {**method, **chosen}

    def setting(self) -> dict[str, Any]:
        """What the widgets say, as the keys of a run.

        Raises:
            ConfigError: the further keys are no YAML mapping.
        """
        run: dict[str, Any] = {name: getattr(self, name).value for name in PLAIN}
        run["local"] = {
            "lr": self.lr.value, "batch": self.batch.value, self.work.value: self.steps.value}  # fmt: skip
        further = from_yaml(self.further.value)
        further.pop("algorithm_params", None)  # `on_server` reads them
        scheme = self.scheme.value
        if self.world.value:
            kinds = {key: {"kind": getattr(self, key).value} for key in KINDS if getattr(self, key).value}
            run["world"] = {"mean": self.mean.value, "absences": self.absences.value} | kinds
            run["world"] |= {"speeds": {}} if self.speeds.value else {}
        if scheme and scheme not in SCHEMES.values():
            further["partition"] = {**further.get("partition", {}), "scheme": scheme}
        elif scheme:
            further.pop("partition", None)
            n_test = max(1, round(self.n.value * (self.test_share or 0.2)))
            run["partition"] = split(
                scheme, self.N.value, self.n.value, n_test, self.alpha.value, self.shards.value
            )
        return params.merge(run, further)


def as_yaml(content: Mapping[str, Any] | None) -> str:
    """Settings as params.yaml writes them; "" for none."""
    if not content:
        return ""
    text, yaml = io.StringIO(), YAML(typ="safe")
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output, yaml.width = None, False, 100
    yaml.dump(json.loads(json.dumps(content)), text)  # a copy, for parts that are shared would become anchors
    return text.getvalue()


def from_yaml(text: str) -> dict[str, Any]:
    """Further keys as a person wrote them.

    Raises:
        ConfigError: they are no YAML mapping.
    """
    try:
        content = YAML(typ="safe").load(text)
    except YAMLError as error:
        problem = getattr(error, "problem", "") or str(error)
        raise ConfigError(f"further keys: {problem}; write them as in params.yaml.") from None
    if content is not None and not isinstance(content, dict):
        raise ConfigError("further keys: write `key: value`, as in params.yaml.")
    return content or {}
