"""What a client does in a round: the contract between the engine and whoever does the arithmetic.

A `Job` is one client's local training in one round; an `Executor` does many at once. There are two behind the one
contract, and nobody above knows which one ran: `stacked.py` trains many clients as one stack of tensors (logistic
regression and MLPs everywhere, everything on a GPU), `looped.py` one client after the other without waste (CNNs on a
CPU, where stacking is the wrong tool). Both equal a plain loop to float32 rounding, and a job's result depends neither
on the other jobs of the call nor on the number of threads.

What is random in a job comes from its own generator, in this order: all its batches, then step by step its dropout
masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from fedlib.config import Local
from fedlib.models import Layout, build, resnet18_features


TEMPERATURE = 0.5  # of Moon's contrastive term (Li et al., CVPR 2021, section 4.1)


@dataclass(frozen=True)
class Job:
    """One client's local training in one round.

    run: row of `start` that it trains from. samples: (n,) indices into the training set, which may repeat.
    rng: its own generator.
    """

    run: int
    samples: np.ndarray
    rng: np.random.Generator


@dataclass
class Trained:
    """What J jobs gave, in their order.

    updates: (J, d) new minus start, on the executor's device. losses: (J,) mean training loss per sample over the
    last local epoch, or over all steps where the work is counted in steps. steps: (J,) SGD steps done.
    """

    updates: Tensor
    losses: np.ndarray
    steps: np.ndarray


class Tensors(Protocol):
    """A data set, shared by all runs: x float32 (n, ...) and y int64 (n,)."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


class Executor(Protocol):
    """Trains, differentiates and evaluates models that are written as flat (d,) vectors."""

    layout: Layout
    device: torch.device

    def initial(self, rng: np.random.Generator) -> Tensor:
        """(d,) a fresh model, drawn from its specification's distribution."""

    def train(
        self,
        jobs: Sequence[Job],
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Trained:
        """Local training of every job from its run's row of `start`: (R, d).

        A step's gradient is grad CE(batch) + weight_decay w + mu (w - start) + linear_j.

        linear: (J, d) a constant added to each job's gradient (SCAFFOLD's c - c_k, FedDyn's -h_k).
        previous: (J, d) each client's previous local model; then mu weighs Moon's contrastive term instead of the
            proximal one.
        """

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        """(J, d) each job's gradient of the loss of one mini-batch at its row of `start`: (R, d)."""

    def evaluate(
        self, weights: Tensor, split: Literal["train", "test"], rows: Sequence[np.ndarray] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Loss (float32) and correctness (bool) of each sample under each model, in evaluation mode.

        weights: (R, d). rows: for each model the samples of the split to measure, or None for all of them.
        """


def make_executor(
    model: str, data: Tensors, device: str | torch.device = "cpu", threads: int | None = None
) -> Executor:
    """The executor that suits a model and a device; threads: CPU workers (None: as many as torch would use).

    Raises:
        ConfigError: the model cannot take this data's images.
    """
    from fedlib.looped import ClientLoop
    from fedlib.stacked import StackedExecutor

    device = torch.device(device)
    net = build(model, tuple(data.x_train.shape[1:]), int(data.y_train.max()) + 1)
    executor = StackedExecutor if net.is_dense or device.type != "cpu" else ClientLoop
    return executor(net, data, device, threads or torch.get_num_threads())


@dataclass(frozen=True)
class Batches:
    """The samples of every step of J jobs of at most S steps of at most B samples.

    index: (S, J, B) rows of the training set; places that a batch does not fill hold any row of the job.
    count: (S, J) how many places of each batch are filled, 0 once a job is done. steps: (J,).
    """

    index: np.ndarray
    count: np.ndarray
    steps: np.ndarray


def draw_batches(
    jobs: Sequence[Job], batch: int, steps: int | None = None, epochs: int | None = None
) -> Batches:
    """Each job's mini-batches from its own generator.

    steps: every step draws min(batch, n) distinct samples; epochs: every epoch is a pass over a fresh permutation,
    its last batch as large as what is left.
    """
    sizes = np.array([len(job.samples) for job in jobs])
    place, count = _distinct(jobs, sizes, batch, steps) if steps else _passes(jobs, sizes, batch, epochs)
    place += (np.cumsum(sizes) - sizes)[:, None]
    index = np.concatenate([job.samples for job in jobs]).take(place)
    return Batches(index, count, (count > 0).sum(0))


def _distinct(
    jobs: Sequence[Job], sizes: np.ndarray, batch: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Floyd's sampling without replacement, for all steps of all jobs together -> (S, J, B) places, (S, J) counts.

    The i-th of b samples is drawn from the first n - b + i + 1 places; where that one is taken, the last of these
    places, which cannot be, is taken instead.
    """
    take = np.minimum(sizes, batch)
    draws = np.zeros((batch, steps, len(jobs)), np.int64)
    for j, job in enumerate(jobs):
        draws[: take[j], :, j] = job.rng.integers(2**32, size=(take[j], steps), dtype=np.uint32)
    last = sizes - take + np.arange(batch)[:, None]
    place = draws * (last[:, None] + 1) >> 32
    row = (
        np.arange(steps)[:, None] * sizes.sum() + np.cumsum(sizes) - sizes
    )  # where each (step, job) starts in taken
    taken = np.zeros(steps * sizes.sum() + 1, bool)
    place += row
    last = np.where(np.arange(batch)[:, None] < take, last, 0)
    place[
        np.arange(batch)[:, None, None] >= np.broadcast_to(take, (steps, len(jobs)))
    ] = -1  # the spare last place
    for i in range(take.max()):
        clash = taken[place[i]]
        np.copyto(place[i], row + last[i], where=clash)
        taken[place[i]] = True
    place -= row
    return place.transpose(1, 2, 0), np.broadcast_to(take, (steps, len(jobs)))


def _passes(jobs: Sequence[Job], sizes: np.ndarray, batch: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Permutations cut in batches -> (S, J, B) places, (S, J) counts."""
    length = -(-sizes // batch)
    place = np.zeros((epochs * length.max(), len(jobs), batch), np.int64)
    count = np.zeros(place.shape[:2], np.int64)
    for j, (job, n, l) in enumerate(zip(jobs, sizes, length, strict=True)):
        passes = np.zeros((epochs, l * batch), np.int64)
        passes[:, :n] = job.rng.permuted(np.broadcast_to(np.arange(n), (epochs, n)), axis=1)
        place[: epochs * l, j] = passes.reshape(-1, batch)
        count[: epochs * l, j] = np.tile(np.minimum(n - batch * np.arange(l), batch), epochs)
    return place, count
