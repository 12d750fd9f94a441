"""The result of a simulation: its table, a picture, a summary, its clients, its models; on disk and back."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from fedlib import __version__, measure
from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.library.metric import QUALITY, Better, check_better, is_low
from fedlib.runs.store import to_parquet
from fedlib.training.layout import Layout, with_values
from fedlib.training.randomness import made

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = tuple[str, int]  # (method, seed)
Shapes = Sequence[tuple[str, Sequence[int]]]  # names and shapes of a module's tensors, in order


CITATION = f"fedlib: client selection in federated learning, version {__version__} (fedlib-selection)."
UNITS = {  # of the table's columns; losses are in nats where the loss is cross-entropy
    **dict.fromkeys(("test_loss", "train_loss", "train_loss_std", "local_loss", "local_loss_std"), "nats"),
    **dict.fromkeys(("test_accuracy", "client_accuracy", "client_accuracy_std"), "fraction"),
    **dict.fromkeys(("parameters_down", "parameters_up", "scalars_up"), "numbers sent in the round"),
    **dict.fromkeys(("client_steps", "wasted_steps"), "local steps in the round"),
    **dict.fromkeys(("seconds", "server_seconds"), "s, of this machine"),
    "samples_evaluated": "samples in the round",
    "clock": "s, simulated",
    "round": "aggregations",
}


@dataclass(frozen=True)
class Result:
    """The measures of all methods and seeds.

    table: one row per (method, seed, round), with the columns of ARCHITECTURE.md; `test_metric` holds a program's own
        metric. `table.attrs` has the units of its columns, and what to cite.
    clients: names of the clients 0 to N - 1, if the program named them.
    ends: (method, seed) -> what was kept of the run's last round: each client's measures, and weights.
    sizes: seed -> (N,) number of samples of each client. failures: (method, seed) -> why the run failed.
    make: makes the module that `model` gives. better: which values of the program's own metric are good, if it said so.
    layout: names and shapes of the trained module's tensors, of a result that was loaded.
    """

    table: pd.DataFrame
    clients: list[Any] | None = None
    ends: Mapping[Key, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)
    sizes: Mapping[int, np.ndarray] = field(default_factory=dict, repr=False)
    failures: Mapping[Key, str] = field(default_factory=dict)
    make: Callable[[], nn.Module] | None = field(default=None, repr=False)
    better: Better | None = None
    layout: Shapes = field(default=(), repr=False)

    def __post_init__(self) -> None:
        units = {column: unit for column, unit in UNITS.items() if column in self.table}
        self.table.attrs |= {"units": units, "citation": CITATION}

    @property
    def column(self) -> str:
        """What is shown by default: accuracy if it was measured, else a program's own metric, else the loss."""
        return self._measured()

    def _measured(self, column: str | None = None) -> str:
        """The column, or the default one."""
        measured = list(self.table.dropna(axis=1, how="all"))
        column = column or next(name for name in QUALITY if name in measured)
        if column not in measured:
            raise ConfigError(f"column {column!r} was not measured; the table has {', '.join(measured)}.")
        return column

    def model(self, method: str, seed: int = 0) -> nn.Module:
        """The global model of a run, as `keep` says, in evaluation mode.

        Raises:
            ConfigError: there is no such run, its weights were not kept, or it has several global models.
        """
        weights = self._end(method, seed).get("weights")
        if weights is None:
            raise ConfigError(
                f"method {method!r}, seed {seed}: its weights were not kept; pass keep='last' or 'best'."
            )
        if len(weights) > 1:
            raise ConfigError(
                f"method {method!r}, seed {seed}: its algorithm has {len(weights)} global models."
            )
        if self.make is None:
            raise ConfigError("the result knows weights, but no module; pass model= to fedlib.load.")
        net = made(self.make, 0)
        if self.layout and (differing := differences(self.layout, shapes_of(net))):
            raise ConfigError(
                f"model: it is not the module that was trained: {differing}; pass the same to fedlib.load."
            )
        return with_values(net, torch.from_numpy(weights[0])).eval()

    @property
    def per_client(self) -> pd.DataFrame:
        """One row per (method, seed, client) of the last round: samples, losses, and the score on its test samples."""
        frames = []
        for (method, seed), end in self.ends.items():
            measures = {name: values for name, values in end.items() if name != "weights"}
            if measures:
                names = range(len(next(iter(measures.values())))) if self.clients is None else self.clients
                header = {"method": method, "seed": seed, "client": names, "samples": self.sizes[seed]}
                frames.append(pd.DataFrame(header | measures))
        if not frames:
            raise ConfigError(
                "no run has measures of its clients: it diverged, or an older version stored it."
            )
        return pd.concat(frames, ignore_index=True)

    def worst(self, column: str | None = None, better: Better | None = None) -> pd.DataFrame:
        """For each method, over its clients in the last round: the mean, the worst client and the worst tenth.

        All are means over seeds; the worst tenth is the mean of the clients that are worst, one at least.
        column: of `per_client`; None for accuracy, else a program's own metric, the test loss, or the training loss.
        better: as for `summary`.
        """
        clients = self.per_client
        column = column or next(name for name in QUALITY if name in clients)
        if column not in clients:
            raise ConfigError(
                f"column {column!r} was not measured of clients; there are {', '.join(clients)}."
            )
        runs = clients.groupby(["method", "seed"], sort=False)[column]
        high = not self._low(column, better)

        def tail(values: pd.Series) -> float:
            return float(values.sort_values(ascending=high).head(max(1, len(values) // 10)).mean())

        summary = pd.DataFrame({"mean": runs.mean(), "worst client": runs.min() if high else runs.max()})
        summary["worst tenth"] = runs.agg(tail)
        return summary.groupby(level="method", sort=False).mean()

    def save(self, path: str | Path) -> None:
        """Write the result to one file, a zip of tables and arrays; `fedlib.load` reads it.

        Raises:
            StoreError: the file cannot be written.
        """
        header = {
            "clients": None if self.clients is None else [plain(name) for name in self.clients],
            "failures": [[*key, why] for key, why in self.failures.items()],
            "ends": [[*key, list(end)] for key, end in self.ends.items()],
            "seeds": list(map(int, self.sizes)),
            "better": self.better,
            "layout": shapes_of(made(self.make, 0)) if self.make else self.layout,
        }
        arrays = {
            f"end/{i}/{name}": array
            for i, end in enumerate(self.ends.values())
            for name, array in end.items()
        }
        arrays |= {f"sizes/{seed}": sizes for seed, sizes in self.sizes.items()}
        weights, whole = io.BytesIO(), io.BytesIO()
        np.savez(weights, **arrays)  # ty: ignore[invalid-argument-type]  # no array is named allow_pickle
        with zipfile.ZipFile(whole, "w") as packed:
            packed.writestr("about.json", json.dumps(header))
            packed.writestr("table.parquet", to_parquet(self.table))
            packed.writestr("arrays.npz", weights.getvalue())
        write_whole(path_of(path), whole.getvalue())

    def _end(self, method: str, seed: int) -> dict[str, np.ndarray]:
        if (method, seed) not in self.ends:
            runs = ", ".join(f"{m!r} (seed {s})" for m, s in self.ends) or "none"
            raise ConfigError(f"there is no run of method {method!r} with seed {seed}; there are {runs}.")
        return self.ends[method, seed]

    def plot(self, column: str | None = None, **options: Any) -> Figure:
        """One line per method over rounds: the mean over seeds, with a band of one standard deviation.

        column: of the table; None for accuracy if it was measured. options: of `fedlib.drawing.plots.curves`.
        """
        from fedlib.drawing import plots

        plots.style()
        arguments: dict[str, Any] = {"panels": {"": ""}, **options}
        return plots.curves(self.table, self._measured(column), **arguments)

    def _low(self, column: str, better: Better | None) -> bool:
        """Whether low values of a column are good."""
        if better is not None:
            check_better("better", better)
        return is_low(column, self.better, better)

    def summary(self, target: float, column: str | None = None, better: Better | None = None) -> pd.DataFrame:
        """One row per method, the best first: the cost of reaching a target, as medians over seeds; inf: never.

        target: a value of the column; None for accuracy if it was measured. better: whether "high" or "low" values of
            it are good; None for a loss, an accuracy or a `fedlib.Metric`, which say it.

        Columns: seeds; reached: number of seeds that reached it; rounds; megabytes: sent and received by all clients
        until then; work: their local steps; final: mean of the column over the last fifth of the rounds and all seeds;
        rank: mean over seeds of the rank by rounds, then by final.
        """
        if isinstance(target, bool) or not isinstance(target, int | float | np.number):
            raise ConfigError(f"target is {target!r}; it must be a value of the column, a number.")
        column = self._measured(column)
        low = self._low(column, better)
        reach = measure.rounds_below if low else measure.rounds_to_target
        table = measure.cumulative_cost(self.table)
        alive = table[~table["diverged"].astype(bool)]
        arrived = measure.per_run(alive, column, lambda curve: reach(curve, target))
        final = measure.per_run(alive, column, measure.end_mean)
        diverged = table.groupby(measure.RUN, sort=False)["diverged"].any()
        final[diverged.reindex(final.index).astype(bool)] = (
            np.inf if low else 0.0 if column.endswith("_accuracy") else -np.inf
        )
        spent = table.set_index([*measure.RUN, "round"])
        runs = pd.DataFrame({"rounds": arrived, "final": final})
        for cost in ("megabytes", "work"):
            ends = zip(runs.index.tolist(), arrived, strict=True)
            runs[cost] = [spent[cost].get((*run, rounds), np.inf) for run, rounds in ends]
        by_rounds = arrived.groupby(level="seed").rank()
        by_final = (final if low else -final).groupby(level="seed").rank()
        place = by_rounds * 2 * runs.index.unique("method").size + by_final
        runs["rank"] = place.groupby(level="seed").rank()
        by_method = runs.groupby(level="method", sort=False)
        summary = by_method.agg(
            seeds=("rounds", "size"),
            reached=("rounds", lambda rounds: int(np.isfinite(rounds).sum())),
            rounds=("rounds", "median"),
            megabytes=("megabytes", "median"),
            work=("work", "median"),
            final=("final", "mean"),
            rank=("rank", "mean"),
        )
        return summary.sort_values(["rank", "rounds"], kind="stable")


def load(path: str | Path, model: Callable[[], nn.Module] | None = None) -> Result:
    """A result that `Result.save` wrote. model: makes the module that `Result.model` gives. Nothing is unpickled.

    Raises:
        ConfigError: there is no such file, or it holds no result.
    """
    try:
        with zipfile.ZipFile(path_of(path)) as packed:
            header = json.loads(packed.read("about.json"))
            table = pd.read_parquet(io.BytesIO(packed.read("table.parquet")))
            with np.load(io.BytesIO(packed.read("arrays.npz")), allow_pickle=False) as arrays:
                ends = {
                    (method, seed): {name: arrays[f"end/{i}/{name}"] for name in names}
                    for i, (method, seed, names) in enumerate(header["ends"])
                }
                sizes = {seed: arrays[f"sizes/{seed}"] for seed in header["seeds"]}
        failures = {(method, seed): why for method, seed, why in header["failures"]}
        return Result(
            table, header["clients"], ends, sizes, failures, model, header["better"], header["layout"]
        )
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; write one with Result.save.") from None
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path}: it cannot be read as a result ({error}); save it again (Result.save)."
        ) from None


def path_of(path: str | Path) -> Path:
    """A file's path, with ~ as the home folder."""
    return Path(path).expanduser()


def shapes_of(net: nn.Module) -> Shapes:
    """Names and shapes of a module's tensors, in the order of its flat vector."""
    layout = Layout.of(net)
    return [(name, list(shape)) for name, shape in zip(layout.names, layout.shapes, strict=True)]


def differences(trained: Shapes, present: Shapes) -> str:
    """In what a module differs from the one that was trained, as a clause; empty if in nothing."""
    for (name, shape), (new_name, new_shape) in zip(trained, present, strict=False):
        if name != new_name or list(shape) != list(new_shape):
            return f"{name} was {tuple(shape)}, and {new_name} is {tuple(new_shape)}"
    if len(trained) != len(present):
        return f"it had {len(trained)} tensors, and has {len(present)}"
    return ""


def plain(name: Any) -> Any:
    """A client's name as JSON has it."""
    name = name.item() if isinstance(name, np.generic) else name
    return name if isinstance(name, str | int | float | bool) else str(name)
