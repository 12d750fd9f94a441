"""A federation of five clients, as our engine has it and as Flower has it: the same data, training and streams."""

from __future__ import annotations

import functools

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.flower import Answers
from fedlib.samplers.hcsfed import HCSFed
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.streams import stream
from fedlib.training.contract import Executor, Job
from fedlib.training.executors import make_executor

N, M, T, CLASSES, FEATURES = 5, 2, 6, 4, 6
METHODS = {
    "uniform": {},
    "power_of_choice": {"d": 4},
    "hics_fl": {"T_s": 0.05},
    "hcsfed": {"R": 0.5, "H": 2},
    "fedcor": {"warmup": 2, "dt": 2, "gpr_begin": 0},
    "md": {},
    "divfl": {},
}


@functools.cache
def tensors() -> Tensors:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    y = rng.integers(0, CLASSES, 500)
    x = torch.tensor(centres[y] + rng.normal(size=(500, FEATURES)), dtype=torch.float32)
    return Tensors(x[:400], torch.tensor(y[:400]), x[400:], torch.tensor(y[400:]))


@functools.cache
def partition() -> Partition:
    """Clients of unequal sizes, sorted by label, so that it matters who is selected."""
    y = tensors().y_train.numpy()
    train = np.split(np.argsort(y, kind="stable"), [10, 50, 130, 250])
    labels = np.stack([np.bincount(y[k], minlength=CLASSES) for k in train])
    return Partition(train=train, holdout=None, test=None, labels=labels)


@functools.cache
def executor() -> Executor:
    return make_executor("logistic", tensors(), threads=1)


def a_run(sampler: str, T: int = T) -> Run:
    return Run(
        dataset="digits",
        partition={"scheme": "iid"},
        model="logistic",
        N=N,
        m=M,
        T=T,
        local={"lr": 0.1, "batch": 8, "steps": 5},
        method={"sampler": sampler, "params": METHODS[sampler]},
        seed=1,
    )


def engine_rows(sampler: str) -> list[dict]:
    lockstep = Lockstep([a_run(sampler)], [partition()], executor())
    while lockstep.active:
        lockstep.advance()
    return lockstep.live[0].rows


# -- the same in Flower ----------------------------------------------------------------------------------------


def to_record(flat: torch.Tensor) -> ArrayRecord:
    views = executor().layout.views(flat)
    return ArrayRecord({name: Array(view.numpy().copy()) for name, view in views.items()})


def to_flat(record: ArrayRecord) -> torch.Tensor:
    return torch.cat([torch.from_numpy(record[name].numpy()).ravel() for name in executor().layout.names])


def initial() -> ArrayRecord:
    return to_record(executor().initial(stream(1, "init", 0)))


def a_job(message: Message, context: Context) -> tuple[Job, torch.Tensor]:
    config, k = message.content["config"], context.node_config["partition-id"]
    where = (config["seed"], config["purpose"], config["server-round"], k, config["draw"])
    samples = partition().train[k]
    return Job(run=0, samples=samples, source=stream(*where), draws=(*where, id(samples))), to_flat(
        message.content["arrays"]
    )[None]


def train(message: Message, context: Context) -> Message:
    job, start = a_job(message, context)
    local = a_run("uniform").local
    trained = executor().train([job], start, local, local.lr)
    metrics = {
        "train_loss": float(trained.losses[0]),
        "num-examples": len(job.samples),
        "steps": int(trained.steps[0]),
    }
    content = {"arrays": to_record((start + trained.updates)[0]), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    samples = partition().train[context.node_config["partition-id"]]
    losses, _ = executor().evaluate(to_flat(message.content["arrays"])[None], "train", [samples])
    metrics = {"eval_loss": float(losses[0].mean(dtype=float)), "num-examples": len(samples)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def gradient(message: Message, context: Context) -> Message:
    job, start = a_job(message, context)
    content = {"arrays": to_record(executor().gradients([job], start, 8)[0])}
    return Message(RecordDict(content), reply_to=message)


def size(context: Context) -> int:
    return len(partition().train[context.node_config["partition-id"]])


def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    loss, hit = executor().evaluate(to_flat(arrays)[None], "test")
    return MetricRecord(
        {"test_loss": float(loss[0].mean(dtype=float)), "test_accuracy": float(hit[0].mean())}
    )


def client_app(encodes: bool = True) -> ClientApp:
    encode = HCSFed(**METHODS["hcsfed"]).encode if encodes else None
    app = ClientApp(mods=[Answers(size=size, gradient=gradient, encode=encode)])
    app.train()(train)
    app.evaluate()(evaluate)
    return app
