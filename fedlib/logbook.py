"""An experiment's log page (`notebooks/simulate.ipynb`): train what is missing, say what was run and how it went."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import pandas as pd
from IPython.display import SVG, Markdown, display

from fedlib import config, results
from fedlib.artifact import ResultsMissing, svg
from fedlib.config import Scale
from fedlib.files import write_whole


@dataclass(frozen=True)
class Logbook:
    """A finished experiment at one scale: its tidy table, and what made each run."""

    experiment: str
    scale: Scale
    table: pd.DataFrame
    info: dict[str, Any]

    @classmethod
    def train(cls, experiment: str, scale: Scale | None = None) -> Logbook:
        """Train what is missing (progress goes to standard error) and open the results.

        An experiment whose data is not here leaves an empty table and a notice, and ends the notebook in order.
        """
        from fedlib import pipeline

        settings = config.load()
        scale = scale or settings.scale
        title = settings.describe(experiment, scale).get("title", experiment)
        display(Markdown(f"**{title}**, scale {scale}."))
        if reason := pipeline.absent(experiment, scale):
            _leave_empty(experiment, scale, len(settings.runs(experiment, scale)), reason)
            display(Markdown(f"Not run: {reason}"))
            raise ResultsMissing(experiment, scale)
        results.simulate(experiment, scale, tell=lambda line: print(line, file=sys.stderr, flush=True))
        return cls(experiment, scale, *results.open_results(experiment, scale))

    def settings(self) -> pd.DataFrame:
        """The settings of the runs, a row a key; where runs differ, every value."""
        runs = [flat({k: v for k, v in run["run"].items() if k != "seed"}) for run in self.info["runs"]]
        keys = dict.fromkeys(key for run in runs for key in run)
        values = {key: dict.fromkeys(run[key] for run in runs if key in run) for key in keys}
        return pd.DataFrame({"setting": keys, "value": [" | ".join(v) for v in values.values()]})

    def runs(self) -> pd.DataFrame:
        """A row a setting and method: runs, rounds, how it ended, what it cost."""
        end = self.table.groupby(["setting", "method", "seed"], sort=False)
        per_run = end.agg(
            rounds=("round", "max"),
            accuracy=("test_accuracy", "last"),
            diverged=("diverged", "any"),
            steps=("client_steps", "sum"),
            down=("parameters_down", "sum"),
            up=("parameters_up", "sum"),
            seconds=("seconds", "sum"),
            server=("server_seconds", "sum"),
        )
        grouped = per_run.groupby(["setting", "method"], sort=False)
        spread = grouped["accuracy"].std().fillna(0)
        shown = pd.DataFrame(
            {
                "runs": grouped.size(),
                "diverged": grouped["diverged"].sum(),
                "rounds": grouped["rounds"].max(),
                "end accuracy (%)": [
                    f"{100 * m:.1f} ± {100 * s:.1f}"
                    for m, s in zip(grouped["accuracy"].mean(), spread, strict=True)
                ],
                "client steps": grouped["steps"].mean().round().astype(int),
                "MB to clients": (grouped["down"].mean() * 4e-6).round(1),
                "MB from clients": (grouped["up"].mean() * 4e-6).round(1),
                "seconds a run": grouped["seconds"].mean().round(1),
                "of them server": grouped["server"].mean().round(2),
            }
        )
        return shown.reset_index()

    def curves(self) -> None:
        """Test accuracy, and training loss where it was measured, by round."""
        from fedlib import plots

        for column in ("test_accuracy", "train_loss"):
            if self.table[column].notna().any():
                display(SVG(svg(plots.curves(self.table, column), f"{self.experiment} {column}")))

    def provenance(self) -> pd.DataFrame:
        """What the runs were made with: data, device, versions, dates; every value that occurs."""
        rows: dict[str, dict[str, None]] = {}
        for run in self.info["runs"]:
            made = {
                "data": f"{run['data']['provenance']} (SHA-256 {run['data']['digest'][:12]}...)",
                "device": run["device"],
                "python": run["python"],
                **run["versions"],
                "numerics": str(run["numerics"]),
                "date": run["date"][:10],
            }
            for key, value in made.items():
                rows.setdefault(key, {})[value] = None
        return pd.DataFrame({"what": rows.keys(), "value": [", ".join(values) for values in rows.values()]})


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """{"local": {"lr": 0.1}} -> {"local.lr": "0.1"}; what is empty is left out."""
    out = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        elif value not in (None, [], ""):
            out[prefix + key] = str(value)
    return out


def _leave_empty(experiment: str, scale: Scale, planned: int, reason: str) -> None:
    path = results.path_of(experiment, scale)
    info = {"experiment": experiment, "scale": scale, "planned": planned, "runs": [], "missing": reason}
    write_whole(path.with_suffix(".json"), json.dumps(info, indent=1, sort_keys=True).encode())
    write_whole(path, results.to_parquet(pd.DataFrame({"experiment": pd.Series(dtype=str)})))
