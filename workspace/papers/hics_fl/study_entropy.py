"""HiCS-FL, Figures 9 to 12: how well a client's update of the output layer estimates its label entropy.

Each case is one setting of an experiment, trained as in its warm-up: ceil(N / K) rounds of K clients drawn without
replacement, whose plain mean is the next model. For each client the study keeps the update of the output bias, from
which the paper estimates the entropy, and the row means of the output weight's update, from which its code does: once
from the warm-up (each client from another early model) and once from the common initial model. The paper does not state
the round at which it measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlib.errors import ConfigError
from fedlib.kinds import Settings
from fedlib.runs.measuring import Halfway, everyone, start
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit, units_of
from fedlib.settings.params import Experiments, build, merge
from fedlib.settings.schema import Scale
from fedlib.settings.sections import Study
from fedlib.simulation.live import Live
from fedlib.streams import stream


class EntropyCase(Settings, extra="allow"):
    """An experiment and one of its settings; all other keys change its runs."""

    experiment: str
    setting: str


class EntropyKeys(Study):
    method: str
    cases: dict[str, EntropyCase]


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """settings: `cases`, name -> `experiment`, `setting`, and the keys of the run to change."""
    for case, changes in settings["cases"].items():
        changes = dict(changes)
        experiment, setting = changes.pop("experiment"), changes.pop("setting")
        study = {**settings, "experiments": {case: experiment}, "settings": [setting]}
        followed = list(units_of({**study, "methods": [settings["method"]]}, experiments, scale))
        if not followed:
            raise ConfigError(
                f"studies: case {case!r} names setting {setting!r}, which {experiment} has not."
            )
        for unit in followed:
            run = merge(unit["run"], changes)
            build({key: run[key] for key in run if key != "seed"}, run["seed"], f"studies: case {case!r}")
            yield {"labels": unit["labels"] | {"method": ""}, "dataset": run["dataset"], "run": run}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per (when, client): entropy (nats, true), group, bias (K,), weight (K,); T_s, the experiment's."""
    lockstep = start(unit["run"], place)
    live = lockstep.live[0]
    live.t = 1
    common = lockstep.train(everyone(lockstep, live), "probe").updates
    early = torch.zeros_like(common)
    order = stream(live.run.seed, "probe").permutation(live.fed.N)
    for first in range(0, live.fed.N, live.fed.m):
        block = order[first : first + live.fed.m]
        updates = lockstep.train([(live, int(k), 0) for k in block]).updates
        early[torch.as_tensor(block)] = updates
        live.models = live.models + updates.mean(0, keepdim=True)
        live.t += 1
    tables = [describe(live, "warm-up", early), describe(live, "common start", common)]
    return pd.concat(tables).assign(T_s=live.run.method.params["T_s"])


def describe(live: Live, when: str, updates: torch.Tensor) -> pd.DataFrame:
    parts, K = live.partition, live.fed.K
    bias = updates[:, live.fed.output_bias].cpu().numpy().astype(float)
    weight = updates[:, live.fed.output_weight].view(len(updates), K, -1).mean(-1).cpu().numpy().astype(float)
    return pd.DataFrame(
        {
            "when": when,
            "client": np.arange(live.fed.N),
            "group": 0 if parts.group is None else parts.group,
            "entropy": parts.label_entropy,
            "bias": bias.tolist(),
            "weight": weight.tolist(),
        }
    )
