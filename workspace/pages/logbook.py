"""The log page of an experiment or study: do what is missing, then show what was done, how, and with which results."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown, display

from fedlib.errors import ConfigError, DataError, Unfinished
from fedlib.runs import results
from fedlib.runs.archive import path_of
from fedlib.runs.experiment import Failed, simulate
from fedlib.runs.results import failed, lacking
from fedlib.settings import params
from fedlib.settings.schema import Scale
from workspace.analysis.tables import reach
from workspace.figures import picture
from workspace.pages import tables
from workspace.pages.layout import escaped
from workspace.pages.origin import ResultsMissing


@dataclass(frozen=True)
class Logbook:
    """A finished experiment at one scale: its tidy table and the record of its runs."""

    experiment: str
    scale: Scale
    table: pd.DataFrame
    info: dict[str, Any]

    @classmethod
    def make(cls, name: str, scale: Scale | None = None, only_finished: bool = False) -> Logbook:
        """Do what is missing unless `only_finished` (progress goes to standard error), and open the results.

        If the data is not available, it leaves an empty table and a notice, and the notebook ends without an error.
        """
        from workspace.analysis.experiments import plan

        settings = params.load()
        scale = settings.scale_of(scale)
        if not isinstance(only_finished, bool):
            raise ConfigError(f"only_finished is {only_finished!r}; write True or False.")
        describe = settings.study if name in settings.studies else settings.describe
        display(Markdown(f"**{escaped(describe(name, scale).get('title', name))}**, scale {scale}."))
        whole = plan(name, scale, settings)
        try:
            simulate(
                whole,
                tell=lambda line: print(line, file=sys.stderr, flush=True),
                only_finished=only_finished,
            )
        except (DataError, Unfinished, Failed) as reason:
            if not isinstance(reason, Failed) or reason.missing:
                missing = getattr(reason, "missing", [{"reason": str(reason)}])
                _leave_empty(name, scale, len(whole.work), missing)
                display(Markdown(f"Not run: {escaped(str(reason))}"))
                raise ResultsMissing(name, scale) from None
            print(reason, file=sys.stderr, flush=True)
        log = cls(name, scale, *results.open_results(name, scale))
        if missing := lacking(log.info):
            display(
                Markdown(
                    f"{len(log.info['runs'])} of {log.info['planned']} runs; missing: {escaped(missing)}."
                )
            )
        for failure in failed(log.info):
            display(Markdown(f"Failed: {escaped(failure)}"))
        return log

    def settings(self) -> pd.DataFrame:
        """The settings of the runs, one row per key, with every value that occurs."""
        units = [run.get("run") or run["unit"] for run in self.info["runs"]]
        runs = [flat({k: v for k, v in settings.items() if k != "seed"}) for settings in units]
        keys = dict.fromkeys(key for run in runs for key in run)
        values = {key: dict.fromkeys(run[key] for run in runs if key in run) for key in keys}
        return pd.DataFrame({"setting": list(keys), "value": [" | ".join(v) for v in values.values()]})

    def runs(self) -> pd.DataFrame:
        """One row per setting and method: runs, rounds, final accuracy and costs; of a study, measurements."""
        if "client_steps" not in self.table:
            pairs = pd.DataFrame([[run["setting"], run["method"]] for run in self.info["runs"]])
            return pairs.set_axis(["setting", "method"], axis=1).value_counts(sort=False).reset_index()
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
        columns = pd.DataFrame(
            {
                "runs": grouped.size(),
                "diverged": grouped["diverged"].sum(),
                "rounds": grouped["rounds"].agg(lambda rounds: reach(np.sort(rounds))),
                "end accuracy (%)": [
                    f"{100 * m:.1f} ± {100 * s:.1f}"
                    for m, s in zip(grouped["accuracy"].mean(), spread, strict=True)
                ],
                "client steps": grouped["steps"].mean().round().astype(int),
                "MB to clients": (grouped["down"].mean() * 4e-6).round(1),
                "MB from clients": (grouped["up"].mean() * 4e-6).round(1),
                "seconds per run": grouped["seconds"].mean().round(1),
                "of these, server": grouped["server"].mean().round(2),
            }
        )
        return columns.reset_index()

    def show(self, frame: pd.DataFrame) -> None:
        tables.show(frame)

    def curves(self) -> None:
        """Test accuracy by round, and training loss if it was measured."""
        from fedlib.drawing import plots

        plots.style()
        for column in ("test_accuracy", "train_loss"):
            if column in self.table and self.table[column].notna().any():
                svg = picture.svg(plots.curves(self.table, column), f"{self.experiment} {column}")
                picture.show(svg)

    def provenance(self) -> pd.DataFrame:
        """Data, device, versions and dates of the runs, with every value that occurs."""
        rows: dict[str, dict[str, None]] = {}
        for run in self.info["runs"]:
            facts = {
                "data": f"{run['data']['provenance']} (SHA-256 {run['data']['digest'][:12]}...)",
                **{key: str(run[key]) for key in ("device", "python", "numerics") if key in run},
                **run.get("versions", {}),
                "date": run["date"][:10],
            }
            for key, value in facts.items():
                rows.setdefault(key, {})[value] = None
        return pd.DataFrame({"what": list(rows), "value": [", ".join(values) for values in rows.values()]})


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """{"local": {"lr": 0.1}} -> {"local.lr": "0.1"}; empty values are left out."""
    flattened = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flattened |= flat(value, f"{prefix}{key}.")
        elif value not in (None, [], ""):
            flattened[prefix + key] = str(value)
    return flattened


def _leave_empty(experiment: str, scale: Scale, planned: int, missing: list[dict[str, Any]]) -> None:
    info = {
        "experiment": experiment,
        "scale": scale,
        "planned": planned,
        "runs": [],
        "missing": missing,
    }
    table = pd.DataFrame({"experiment": pd.Series(dtype=str)})
    results.write_results(path_of(experiment, scale, results.RESULTS), table, info)
