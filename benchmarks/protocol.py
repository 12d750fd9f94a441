"""How every candidate is measured: the same data, the same work, the same clock.

A candidate is a program that trains one workload in its own process and prints one line of JSON. Before each round it
asks `measured_rounds` whether to train another one. This module decides how many, times them, and checks after a fixed
number of rounds that the candidate learns. It runs in every candidate's environment and therefore needs only numpy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


def tell(text: str) -> None:
    """Print a line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Workload:
    """N clients of n samples each; every round m of them do `steps` SGD steps on batches of `batch` samples.

    layers: sizes of a dense network with ReLU between its layers, None for the convolutional network (Clustered
    Sampling's for CIFAR-10). R: independent runs. check: warm-up rounds, after which the model is measured; 0 if a
    round is long enough to need none: then a stretch is one round, and the model is measured at the end.
    """

    dataset: str
    scaling: str
    model: str
    layers: tuple[int, ...] | None
    n: int
    steps: int
    lr: float
    check: int
    R: int = 1
    N: int = 100
    m: int = 10
    batch: int = 50

    @property
    def gigaflops(self) -> float:
        """Needed arithmetic of one round of one run: forward, weight gradients, and input gradients of all layers
        but the first; 1e9 floating-point operations."""
        if self.layers is None:
            maps = (30 * 30 * 32 * 3 * 9, 13 * 13 * 64 * 32 * 9, 4 * 4 * 64 * 64 * 9, 1024 * 64, 64 * 10)
        else:
            maps = tuple(a * b for a, b in zip(self.layers, self.layers[1:], strict=False))
        per_sample = 2 * (3 * sum(maps) - maps[0])
        return per_sample * self.batch * self.steps * self.m / 1e9


WORKLOADS = {
    "W1": Workload("mnist", "unit", "logistic", (784, 10), n=600, steps=50, lr=0.01, check=10),
    "W2": Workload("mnist", "unit", "mlp", (784, 50, 10), n=600, steps=50, lr=0.01, check=10),
    "W3": Workload("cifar10", "half", "cs_cnn", None, n=500, steps=100, lr=0.05, check=0),
    "W4": Workload("mnist", "unit", "mlp", (784, 50, 10), n=600, steps=50, lr=0.01, check=1, R=25),
}


@dataclass(frozen=True)
class Options:
    """The options of a candidate; `arguments` explains them."""

    workload: Workload
    arrays: Path
    seed: int
    threads: int
    seconds: float
    stretches: int

    @classmethod
    def of(cls, given: argparse.Namespace) -> Options:
        own = {name: getattr(given, name) for name in ("arrays", "seed", "threads", "seconds", "stretches")}
        work = WORKLOADS[given.workload]
        return cls(replace(work, check=work.check if given.check is None else given.check), **own)


def arguments(*workloads: str) -> argparse.ArgumentParser:
    """The command line of a candidate that can run these workloads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=workloads)
    parser.add_argument("--arrays", type=Path, help="folder made by `python -m benchmarks.arrays`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="cores to use")
    parser.add_argument("--check", type=int, help="rounds before the model is measured and timing begins")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a timed stretch, at least")
    parser.add_argument("--stretches", type=int, default=3, help="how many are timed")
    return parser


@dataclass(frozen=True)
class Arrays:
    """x_train: (N, n, C, H, W) float32, scaled, by client; y_train: (N, n) int64; the test set likewise, uncut."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(folder: Path, test: bool = True) -> Arrays:
    """The data of a workload, as `arrays.write` wrote it; the test set only if `test`."""

    def scaled(name: str) -> np.ndarray:
        x = np.load(folder / f"{name}.npy").astype(np.float32)
        mean, std = np.load(folder / "scaling.npy")
        x /= 255
        x -= mean
        x /= std
        return x

    labels = {name: np.load(folder / f"{name}.npy") for name in ("y_train", "y_test")}
    return Arrays(scaled("x_train"), x_test=scaled("x_test") if test else np.zeros(0), **labels)


def measured_rounds(
    options: Options,
    evaluate: Callable[[], tuple[float, float]],
    packages: tuple[str, ...],
    multiple: int = 1,
    facts: Callable[[], dict[str, Any]] = dict,
) -> Iterator[None]:
    """Yield before every round to be trained; print the measurements after the last one.

    evaluate: test loss and accuracy of the current model (of the first run), called once, untimed. multiple: the number
    of rounds in a stretch is a multiple of it. facts: further values for the candidate's output.
    """
    work = options.workload
    pace, learnt = math.inf, None
    for done in range(work.check):
        if done == work.check // 2:
            middle = time.perf_counter()
        yield
    if work.check:
        pace = (time.perf_counter() - middle) / (work.check - work.check // 2)
        learnt = evaluate()
    rounds = multiple * max(1, math.ceil(options.seconds / pace / multiple))
    rates, others, cpu = [], [], []
    for _ in range(options.stretches):
        machine, own, started = machine_seconds(), tree_seconds(), time.perf_counter()
        for _ in range(rounds):
            yield
        elapsed = time.perf_counter() - started
        cpu.append((tree_seconds() - own) / rounds)
        rates.append(work.R * rounds / elapsed)
        others.append(max(0.0, machine_seconds() - machine - (tree_seconds() - own)) / elapsed)
    loss, accuracy = learnt or evaluate()
    result = {
        "rates": rates,  # rounds/s; run-rounds/s for several runs
        "loss": loss,
        "accuracy": accuracy,
        "memory": peak_memory(),
        "others": others,  # cores that other programs kept busy meanwhile
        "cpu": cpu,  # seconds a round, of all cores
        "versions": {name: version(name) for name in packages},
        "seed": options.seed,
        "check": work.check or options.stretches,
    }
    print(json.dumps(result | facts()), flush=True)


# -- what Linux says of this process, its descendants and the machine; elsewhere NaN --------------------------------


def machine_seconds() -> float:
    """CPU seconds that the machine has been busy, or was kept from running, since it started."""
    try:
        user, nice, system, _, _, irq, softirq, steal, *_ = Path("/proc/stat").read_text().split()[1:]
    except FileNotFoundError:
        return math.nan
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def tree() -> list[Path]:
    """The /proc folders of this process and all its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return [Path("/proc") / str(pid) for pid in found]


def tree_seconds() -> float:
    """CPU seconds of this process and its descendants."""
    total = 0
    for folder in tree():
        try:
            total += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / os.sysconf("SC_CLK_TCK")


def peak_memory() -> float:
    """MiB: the largest resident set of this process, and what its descendants hold now (shared pages in shares)."""
    try:
        total = _kibibytes(Path("/proc/self/status"), "VmHWM:")
    except FileNotFoundError:
        return math.nan
    for folder in tree()[1:]:
        try:
            total += _kibibytes(folder / "smaps_rollup", "Pss:")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1024


def _kibibytes(file: Path, key: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(key))
