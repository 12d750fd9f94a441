"""The engine as a candidate: one process with `--threads` workers, running the experiments' round loop."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from benchmarks.arrays import split
from benchmarks.protocol import Options, Workload, arguments, measured_rounds
from fedlib.data import datasets
from fedlib.data.partition import Partition
from fedlib.data.schemes import IID
from fedlib.settings.schema import Evaluate, Local, Method, Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

FIVE = ("uniform", "md", "clustered_size", "clustered_similarity", "hics_fl")  # m clients train per round


def lockstep(
    work: Workload,
    samplers: Sequence[str],
    threads: int,
    seed: int = 0,
    every: int = 10**6,
    device: str = "cpu",
) -> Lockstep:
    """R runs, assigned to the samplers (in the format of `method`) in turn; evaluated every `every` rounds."""
    torch.set_num_threads(threads)
    datasets.prepare(work.dataset)
    dataset = datasets.load(work.dataset)
    local = Local(lr=work.lr, batch=work.batch, steps=work.steps)
    runs = [
        Run(
            dataset=work.dataset,
            scaling=work.scaling,
            partition=IID(scheme="iid"),
            model=work.model,
            N=work.N,
            m=work.m,
            T=10**6,
            local=local,
            evaluate=Evaluate(every=every),
            method=method(samplers[r % len(samplers)]),
            seed=seed + r // len(samplers),
        )
        for r in range(work.R)
    ]
    usual = work.N * work.n <= len(dataset.y_train)
    clients = split(work, dataset) if usual else overlapping(work, dataset)
    executor = make_executor(work.model, datasets.tensors(dataset, work.scaling), device, threads)
    return Lockstep(runs, [clients] * work.R, executor)


def method(text: str) -> Method:
    """`divfl:gradients=previous` -> the sampler with that setting."""
    name, *settings = text.split(":")
    return Method(sampler=name, params=dict(setting.split("=") for setting in settings))


def overlapping(work: Workload, dataset: datasets.Dataset) -> Partition:
    """N clients with n random samples each; clients share samples if there are too few."""
    rng = np.random.default_rng(0)
    train = rng.integers(len(dataset.y_train), size=(work.N, work.n))
    labels = np.stack([np.bincount(y, minlength=dataset.n_classes) for y in dataset.y_train[train]])
    return Partition(list(train), None, None, labels)


def main() -> None:
    parser = arguments("W1", "W2", "W3", "W4")
    parser.add_argument("--sampler", nargs="*", help="default: uniform; five samplers for several runs")
    parser.add_argument("--every", type=int, default=10**6, help="rounds between evaluations")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--team", action="store_true", help="let the server's work use a team of torch threads"
    )
    for name in ("N", "m", "R"):
        parser.add_argument(f"--{name}", type=int, help="instead of the workload's own")
    given = parser.parse_args()
    options = Options.of(given)
    work = changed(options.workload, given)
    if given.team:
        Lockstep.play_round = Lockstep.play_round.__wrapped__  # ty: ignore[unresolved-attribute]
    samplers = given.sampler or (FIVE if work.R > 1 else FIVE[:1])
    together = lockstep(work, samplers, options.threads, options.seed, given.every, given.device)
    # Measures the initial models now, untimed: no other candidate does that.
    together.record([(live, {}) for live in together.live])
    first = together.live[0]

    def evaluate() -> tuple[float, float]:
        losses, hits = together.executor.evaluate(first.models, "test")
        return float(losses[0].mean()), float(hits[0].mean())

    def facts() -> dict[str, float]:
        """Means over the runs' last rounds."""
        rows = [live.rows[-1] for live in together.live]
        return {key: float(np.mean([row[key] for row in rows])) for key in ("client_steps", "server_seconds")}

    multiple = given.every if given.every < 10**6 else 1
    for _ in measured_rounds(replace(options, workload=work), evaluate, ("torch", "numba"), multiple, facts):
        together.advance()


def changed(work: Workload, given: argparse.Namespace) -> Workload:
    changes = {name: getattr(given, name) for name in ("N", "m", "R")}
    return replace(work, **{name: value for name, value in changes.items() if value is not None})


if __name__ == "__main__":
    main()
