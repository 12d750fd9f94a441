"""FLGo's FedAvg in a pool of as many threads as cores, each with one torch thread.

The pool took as much processor time a round as one client after another.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import flgo
import flgo.algorithm.fedavg

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
sys.argv[1:] = []  # FLGo would parse them too
*_, X_TEST, Y_TEST = torch_model.tensors(options.arrays)
with tempfile.TemporaryDirectory() as task:
    Path(task, "record").mkdir()
    Path(task, "info").write_text(json.dumps({"benchmark": "benchmarks.peers.flgo"}))
    Path(task, "data.json").write_text(json.dumps({"client_names": [str(k) for k in range(work.N)]}))
    server = flgo.init(
        task,
        flgo.algorithm.fedavg,
        {
            "arrays": options.arrays,
            "seed": options.seed,
            "dataseed": options.seed,  # of the initial model too
            "sample": "uniform",
            "aggregate": "uniform",
            "proportion": work.m / work.N,
            "num_steps": work.steps,
            "batch_size": work.batch,
            "learning_rate": work.lr,
            "train_holdout": 0.0,
            "eval_interval": 0,
            "torch_num_threads": 1,
            "num_parallels": options.threads,
            "parallel_type": "t",
            "no_log_console": True,
        },
        model=flgo.convert_model(lambda: torch_model.build(work)),
    )
    rounds = measured_rounds(
        options, lambda: torch_model.evaluate(server.model, X_TEST, Y_TEST), ("flgo", "torch")
    )
    server.register_exit_condition(lambda server: next(rounds, "over") == "over")
    server.run()
