"""Estimate the time that an experiment takes: its work is counted, and the speed is measured on this machine.

Counted: the local steps of the clients that train in a round, including those that train only because a sampler asks
(found by running the sampler for a few rounds on single samples), and the samples that are evaluated. Measured: the
seconds of a client's step and of an evaluated sample, for the model on images of that shape, with many clients at once.
Left out: the samplers' own work, and the time for partitions and files. A run that ends at its target (`Until`) is
counted to T: nobody knows when it gets there. `shortest` gives the lower bound. Where runs alike are finished, `Spent`
knows their seconds, and no speed is measured.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import torch

from fedlib.data import datasets
from fedlib.data.schemes.equal import IID
from fedlib.data.sources import KINDS
from fedlib.runs.place import Place, runs_in_lockstep
from fedlib.runs.work import LABELS, Plan, Work
from fedlib.samplers import ServerLosses, find
from fedlib.settings.schema import Evaluate, Local, Method, Run
from fedlib.streams import stream
from fedlib.training.contract import Executor, Job
from fedlib.training.executors import make_executor

PROBED_ROUNDS = 5
LONG = 1000  # rounds of the run whose first are probed: more than any warm-up
PROBED_CLIENTS = 20
PROBED_SECONDS = 0.5


@dataclass(frozen=True)
class Speed:
    """step: seconds of one client's SGD step. sample: seconds of evaluating one sample."""

    step: float
    sample: float


def seconds(run: Run, speed: Speed | None = None) -> float:
    """Estimated training time of a run at this speed; None: on all cores of this machine."""
    speed = speed or measured(run.dataset, run.model, run.local.batch)
    measures = run.evaluate
    n_train, n_test = datasets.counts(run.dataset)
    samples = n_test * measures.test / measures.every
    samples += n_train * measures.train / (measures.train_every or measures.every)
    return steps(run) * speed.step + run.T * samples * speed.sample


def shortest(run: Run) -> Run:
    """The run as if it reached its target at once; a run without a target is unchanged."""
    return run.model_copy(update={"T": run.until.least, "until": None}) if run.until else run


def core_seconds(run: Run) -> float:
    """Estimated core time for a run, trained as on a worker of a cluster, whatever else this machine is doing."""
    return seconds(run, measured(run.dataset, run.model, run.local.batch, threads=1))


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Time until all jobs are done, each on one of the workers, longest first."""
    free_at = [0.0] * workers
    for job in sorted(seconds, reverse=True):
        heapq.heapreplace(free_at, free_at[0] + job)
    return max(free_at)


def steps(run: Run) -> float:
    """Planned SGD steps of all clients of a run, with those that train only because a sampler asks."""
    single, whole = asking(run.method.model_dump_json(), run.N, run.m)
    return run.T * (single + max(run.m, whole) * local_steps(run))


def local_steps(run: Run) -> float:
    """Mean number of a client's SGD steps per round, on the data that it does not hold out."""
    steps = run.local.steps
    if isinstance(steps, int):
        return steps
    sizes = run.partition.planned_sizes(run.N, datasets.counts(run.dataset)[0])
    kept = [
        (clients, int((1 - run.holdout) * n + 1e-9) if run.holdout else math.ceil(n)) for clients, n in sizes
    ]
    return sum(clients * run.local.work(n)[0] for clients, n in kept) / run.N


@cache
def measured(dataset: str, model: str, batch: int, threads: int | None = None) -> Speed:
    """Measure a few clients' steps, and an evaluation, on random samples. threads = 1: in processor time."""
    kind, rng = KINDS[dataset], np.random.default_rng(0)
    n = max(2 * batch, 512)
    x = rng.integers(256, size=(n, *kind.shape), dtype=np.uint8)
    if kind.values == "numbers":
        x = rng.standard_normal((n, *kind.shape), dtype=np.float32)
    y = np.arange(n) % kind.n_classes
    images = datasets.Dataset(dataset, x, y, x, y, (), "random", "")
    executor = make_executor(model, datasets.tensors(images), threads=threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    usual = torch.get_num_threads()
    torch.set_num_threads(threads or usual)
    start = executor.initial(stream(0, "init"))[None]
    step = _time(lambda steps: _train(executor, start, n, batch, steps), clock) / PROBED_CLIENTS
    sample = _time(lambda times: [executor.evaluate(start, "test") for _ in range(times)], clock) / n
    torch.set_num_threads(usual)
    return Speed(step, sample)


def _train(executor: Executor, start: torch.Tensor, n: int, batch: int, steps: int) -> None:
    jobs = [Job(0, np.arange(n), stream(0, "local", 1, k, 0)) for k in range(PROBED_CLIENTS)]
    executor.train(jobs, start, Local(lr=0.01, batch=batch, steps=steps), 0.01)


def _time(work: Callable[[int], object], clock: Callable[[], float]) -> float:
    """Seconds per repetition of `work(repetitions)`; repetitions are doubled until they take long enough to measure."""
    work(1)
    repetitions = 1
    while True:
        started = clock()
        work(repetitions)
        if (seconds := clock() - started) > PROBED_SECONDS or repetitions >= 256:
            return seconds / repetitions
        repetitions *= 2


@cache
def asking(method: str, N: int, m: int) -> tuple[float, float]:
    """Clients per round that do a single step (for a gradient), and clients that train (the chosen and the asked)."""
    mine = Method.model_validate_json(method)
    once = _probe(mine, N, m, steps=1)
    if once <= m:  # nobody but the chosen does a step
        return 0.0, once
    twice = _probe(mine, N, m, steps=2)
    return max(0.0, 2 * once - twice), twice - once


def _probe(method: Method, N: int, m: int, steps: int) -> float:
    """Mean number of steps of all clients in a round of `steps` local steps, found by running the sampler."""
    dataset = datasets.load("digits")
    samples, questions = len(dataset.y_train), find(method.sampler).asks
    clients = min(N, samples)
    clients -= samples % clients == 0  # some samples stay with the server, for samplers that ask it
    proximal = method.algorithm_params.get("mu", 0.1) if method.algorithm == "feddyn" else 0.0
    run = Run(
        dataset="digits",
        partition=IID(scheme="iid"),
        model="logistic",
        N=clients,
        m=min(m, clients),
        T=LONG,
        local=Local(lr=0.01, batch=1, steps=steps, mu=proximal),
        evaluate=Evaluate(every=LONG),
        validation=1 if questions and ServerLosses in questions else None,
        method=method,
        seed=0,
    )
    lockstep = runs_in_lockstep([run], Place(threads=1))
    for _ in range(PROBED_ROUNDS):
        lockstep.advance()
    return sum(row["client_steps"] for row in lockstep.live[0].rows) / PROBED_ROUNDS


# which runs are alike, from the closest on
LIKE = (["name", "setting", "method"], ["name", "method"], ["name"])
SHAPE = ["dataset", "model", "batch"]


class Spent:
    """What finished runs took.

    finished: plans, each with the tidy table of what is finished of it. steps: the SGD steps that all clients of a run
    will do (`cost.steps`).
    """

    def __init__(self, finished: Iterable[tuple[Plan, pd.DataFrame]], steps: Callable[[Run], float]) -> None:
        self.steps = steps
        rows = []
        for plan, table in finished:
            runs = {tuple(work.columns.values()): work for work in plan.work if work.run}
            for labels, rounds in table.groupby([*LABELS], sort=False) if len(table) else ():
                if work := runs.get(labels):
                    took = rounds[["seconds", "client_steps"]].sum().tolist()
                    rows.append([*_kind(work), int(rounds["round"].max()), *took])
        columns = ["name", "setting", "method", *SHAPE, "rounds", "seconds", "steps"]
        self.runs = pd.DataFrame(rows, columns=columns)

    def seconds(self, work: Work) -> float | None:
        """Estimated seconds of a run; None if no run of its dataset, model and batch size is finished.

        By the seconds of a round of runs that are alike: of the same method in the same setting, of the method in the
        experiment, or of the experiment; else by the seconds of a client's step. A run that ends at a target is taken
        to end when those do.
        """
        run = work.run
        if run is None:
            return None
        kind = pd.Series(_kind(work), index=self.runs.columns[:6])
        for keys in LIKE:
            alike = self.runs[(self.runs[keys] == kind[keys]).all(axis=1)]
            if alike["rounds"].sum():
                rounds = min(run.T, alike["rounds"].mean()) if run.until else run.T
                return float(rounds * alike["seconds"].sum() / alike["rounds"].sum())
        alike = self.runs[(self.runs[SHAPE] == kind[SHAPE]).all(axis=1)]
        if not alike["steps"].sum():
            return None
        return float(self.steps(run) * alike["seconds"].sum() / alike["steps"].sum())


def _kind(work: Work) -> list[object]:
    assert work.run is not None
    shape = [work.run.dataset, work.run.model, work.run.local.batch]
    return [work.name, work.labels["setting"], work.labels["method"], *shape]
