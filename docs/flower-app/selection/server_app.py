"""The server: a sampler of fedlib, by the name and the parameters in the app's settings, chooses the clients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedlib.flower import SamplerStrategy
from fedlib.samplers import SAMPLERS
from selection import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    sampler = SAMPLERS[config["sampler"]](**json.loads(config["parameters"]))
    _, _, x, y = task.digits()

    def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        weight, bias = (array.numpy() for array in arrays.values())
        return MetricRecord({"accuracy": float(((x @ weight.T + bias).argmax(axis=1) == y).mean())})

    zeros = {"weight": np.zeros((10, 64), np.float32), "bias": np.zeros(10, np.float32)}
    arrays = ArrayRecord({name: Array(value) for name, value in zeros.items()})
    strategy = SamplerStrategy(sampler, N=config["clients"], m=config["per-round"], seed=0)
    strategy.start(grid, arrays, num_rounds=config["num-server-rounds"], evaluate_fn=accuracy)
    if config["rows"]:
        Path(config["rows"]).write_text(json.dumps(strategy.rows))
