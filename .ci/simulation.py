"""Two methods on a federation of one's own, with what `pip install fedlib` brings: no repository, no data sets."""

import numpy as np
import torch

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

rng = np.random.default_rng(0)
centres, y = rng.normal(size=(4, 6)), np.repeat(np.arange(4), 100)
x = torch.tensor(centres[y] + rng.normal(size=(400, 6)), dtype=torch.float32)
clients = np.array_split(np.arange(400), 20)
labels = np.stack([np.bincount(y[k], minlength=4) for k in clients])
settings = {
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 20,
    "m": 4,
    "T": 20,
}
settings |= {"local": {"lr": 0.1, "batch": 8, "epochs": 1}, "seed": 0}
runs = [Run(**settings, method={"sampler": name}) for name in ("uniform", "hcsfed", "fedcor")]
executor = make_executor("logistic", Tensors(x, torch.tensor(y), x, torch.tensor(y)))
lockstep = Lockstep(runs, [Partition(train=clients, holdout=None, test=None, labels=labels)] * 3, executor)
while lockstep.active:
    lockstep.advance()
for live in lockstep.live:
    print(live.name, f"{live.rows[-1]['test_accuracy']:.3f}")
    assert live.rows[-1]["test_accuracy"] > live.rows[0]["test_accuracy"] + 0.2
