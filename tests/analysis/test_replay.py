"""The plain loop comes to what the engine comes to, given its draws: and not to it, given others."""

from __future__ import annotations

import numpy as np
import pytest

from fedlib.data import datasets, partition
from fedlib.settings.schema import Local, Method, Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor
from workspace.analysis.plain_fedavg import replay

WORK = {
    "steps": Local(lr=0.1, batch=10, steps=5),
    "epochs, momentum": Local(
        lr=0.05, batch=16, epochs=1, momentum=0.9, weight_decay=1e-3, lr_decay={3: 0.5}
    ),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_the_engine_is_replayed(model: str, work: str) -> None:
    data = datasets.load("digits")
    run = Run(
        dataset="digits",
        partition={"scheme": "shards", "shards": 2},
        model=model,
        N=20,
        m=6,
        T=5,
        local=WORK[work],
        method=Method(sampler="md"),
        seed=3,
    )
    parts, tensors = partition.make(run.partition, data, run.N, run.seed), datasets.tensors(data)
    lockstep = Lockstep([run], [parts], make_executor(model, tensors, threads=1))
    live = lockstep.live[0]
    start = live.models[0].clone()
    while lockstep.active:
        lockstep.advance()
    engine = np.array([(row["test_loss"], row["test_accuracy"]) for row in live.rows])
    drawn = [row["clients"] for row in live.rows[1:]]
    np.testing.assert_allclose(replay(run, parts, tensors, start, drawn), engine, atol=1e-5)
    others = replay(run, parts, tensors, start, [[(k + 1) % 20 for k in clients] for clients in drawn])
    assert np.abs(others - engine)[:, 0].max() > 1e-3
