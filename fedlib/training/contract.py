"""The contract between the engine and the executors: what a client does in a round.

A `Job` is one client's local training in one round. An `Executor` does many jobs at once, and the code that calls it
does not know which one runs (`executors.py` chooses). All equal a plain loop to float32 rounding. A job's result
depends neither on the other jobs of the call nor on the number of threads.

The randomness of a job comes from its own generator, in this order: first all its batches, then its dropout masks step
by step (in `modules.py`: a seed for everything that its forward pass draws).
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, softplus

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.layout import Layout
from fedlib.training.threads import workers

Dropouts = Sequence[tuple[float, tuple[int, ...]]]  # each layer's p, and the shape that it masks
Split = Literal["train", "test"]
Rows = Sequence[np.ndarray] | None  # for each model, some samples of a split; None for all of them
Measures = tuple[list[np.ndarray], list[np.ndarray]]  # for each model, losses and scores of samples
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
TEMPERATURE = 0.5  # of Moon's contrastive term (Li et al., CVPR 2021, section 4.1)


@dataclass(frozen=True)
class Job:
    """One client's local training in one round.

    run: row of `start` that it trains from. samples: (n,) indices into the training set, perhaps with repeats.
    source: its own generator, or a function that makes it, called once it is needed.
    draws: jobs with equal `draws` have the same samples, and generators in the same state, so they train on the same
        batches (a client that several samplers chose). None: no other job shares its batches.
    """

    run: int
    samples: np.ndarray
    source: np.random.Generator | Callable[[], np.random.Generator]
    draws: Hashable = None

    @cached_property
    def rng(self) -> np.random.Generator:
        return self.source if isinstance(self.source, np.random.Generator) else self.source()

    @property
    def key(self) -> Hashable:
        """What jobs on the same batches have in common."""
        return id(self) if self.draws is None else self.draws


@dataclass(frozen=True)
class LocalWork:
    """The local training of J jobs; see `Executor.train`."""

    jobs: Sequence[Job]
    start: Tensor
    local: Local
    lr: float
    linear: Tensor | None = None
    previous: Tensor | None = None


@dataclass
class Trained:
    """The results of J jobs, in their order.

    updates: (J, d) new minus start, on the executor's device.
    losses: (J,) mean training loss per sample over the last local epoch, or over all steps where the work is counted
        in steps.
    steps: (J,) SGD steps done.
    """

    updates: Tensor
    losses: np.ndarray
    steps: np.ndarray


@dataclass(frozen=True)
class Turns:
    """What an executor says that two groups of runs can use in turns (`simulation/turns.py`).

    jobs: of each group in a round, at least; fewer would not fill the device. host: the lock of Python code that may
        not run beside that of the other group, such as compilation, which sets global generators.
    """

    jobs: int
    host: threading.Lock


class Executor(ABC):
    """Trains, differentiates and evaluates models that are flat (d,) vectors.

    y: targets of both splits. pool: its threads, also for other work that clients do in parallel.
    measures: name of the results' column for the second value of `evaluate`; None where there is none.
    turns: None where only one group of runs can use it.
    """

    net: nn.Module
    layout: Layout
    measures: str | None = "test_accuracy"
    turns: Turns | None = None

    def __init__(self, data: Tensors, device: torch.device, threads: int) -> None:
        self.y = {"train": data.y_train.to(device), "test": data.y_test.to(device)}
        self.device, self.threads, self.pool = device, threads, workers(threads)

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Tensor:
        """(d,) the values of a fresh model, drawn from the distribution of its specification."""

    def train(
        self,
        jobs: Sequence[Job],
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Trained:
        """Local training of every job, from its run's row of `start`: (R, d).

        The gradient of a step is grad CE(batch) + weight_decay w + mu (w - start) + linear_j.

        linear: (J, d) a constant added to each job's gradient (SCAFFOLD's c - c_k, FedDyn's -h_k).
        previous: (J, d) each client's previous local model. With it, mu weights Moon's contrastive term instead of the
            proximal term.
        """
        updates = torch.empty(len(jobs), self.layout.d, device=self.device)
        trained = Trained(updates, np.zeros(len(jobs)), np.zeros(len(jobs), int))
        self._train(LocalWork(jobs, start, local, lr, linear, previous), trained)
        return trained

    @abstractmethod
    def _train(self, work: LocalWork, trained: Trained) -> None:
        """Train all jobs, and write their results."""

    @abstractmethod
    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        """(J, d) gradient of each job's loss on one mini-batch, at its run's row of `start`: (R, d)."""

    @abstractmethod
    def evaluate(self, weights: Tensor, split: Split, rows: Rows = None) -> Measures:
        """Loss (float32) and correctness (bool) of each sample under each model (R, d), in evaluation mode."""


@dataclass(frozen=True)
class Batches:
    """The samples of every step of J jobs, with at most S steps and at most B samples per step.

    index: (S, J, B) rows of the training set; unfilled places of a batch hold any row of the job.
    count: (S, J) number of filled places of each batch, 0 once a job is done. steps: (J,).
    """

    index: np.ndarray
    count: np.ndarray
    steps: np.ndarray

    def of(self, j: int) -> Batches:
        """The batches of job j alone."""
        steps = slice(self.steps[j])
        return Batches(self.index[steps, j : j + 1], self.count[steps, j : j + 1], self.steps[j : j + 1])

    def mean_loss(self, j: int, loss: np.ndarray, epochs: int | None) -> float:
        """Mean loss per sample of job j over its last epoch (or all its steps); loss: (S,) mean losses of batches."""
        last = self.steps[j]
        first = last - last // (epochs or 1)
        count = self.count[first:last, j]
        return float(np.multiply(loss[first:last], count, dtype=float).sum() / count.sum())


def longest_first(job: Job, local: Local) -> tuple[int, int]:
    """A key by which jobs with more steps come first, and among these, those with more samples."""
    n = len(job.samples)
    return -local.work(n)[0], -n


def batches_of(jobs: Sequence[Job], local: Local) -> Batches:
    """Each job's mini-batches of a round of local training, drawn from its own generator.

    With steps, each draws min(batch, n) distinct samples. Each epoch is a pass over a fresh permutation; its last batch
    holds the samples that are left, if these are not left out.
    """
    sizes = np.array([len(job.samples) for job in jobs])
    steps = np.array([local.work(int(n))[0] for n in sizes])
    if local.epochs:
        place, count = _passes(jobs, sizes, local.batch, local.epochs, steps // local.epochs)
    elif callable(local.steps) and len(jobs) > 1:
        return _side_by_side([batches_of([job], local) for job in jobs], local.batch)
    else:
        place, count = _distinct(jobs, sizes, local.batch, int(steps[0]))
    place += (np.cumsum(sizes) - sizes)[:, None, None]
    index = np.concatenate([job.samples for job in jobs]).take(place.transpose(1, 0, 2))
    return Batches(index, count, (count > 0).sum(0))


def draw_batches(
    jobs: Sequence[Job], batch: int, steps: int | None = None, epochs: int | None = None
) -> Batches:
    """`batches_of` for a local work that consists of steps or epochs alone."""
    return batches_of(jobs, Local(lr=1.0, batch=batch, steps=steps, epochs=epochs))


def _side_by_side(of_jobs: Sequence[Batches], batch: int) -> Batches:
    """The batches of jobs that take different numbers of steps."""
    longest = max(len(batches.count) for batches in of_jobs)
    index = np.stack([np.resize(batches.index[:, 0], (longest, batch)) for batches in of_jobs], 1)
    count = np.zeros((longest, len(of_jobs)), np.int64)
    for j, batches in enumerate(of_jobs):
        count[: len(batches.count), j] = batches.count[:, 0]
    return Batches(index, count, (count > 0).sum(0))


def _distinct(
    jobs: Sequence[Job], sizes: np.ndarray, batch: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Subsets without replacement, for all steps of all jobs together -> (J, S, B) places, (S, J) counts.

    They are drawn with replacement; then repeated entries are drawn again until none is left, which favours no subset.
    A client with only a few more samples than a batch draws permutations instead.
    """
    take = np.minimum(sizes, batch)
    places = np.zeros((len(jobs), steps, batch), np.int64)
    for drawn, job, n, b in zip(places, jobs, sizes, take, strict=True):
        if n < 2 * batch:
            drawn[:, :b] = job.rng.permuted(np.broadcast_to(np.arange(n), (steps, n)), axis=1)[:, :b]
        else:
            drawn[:] = job.rng.integers(n, size=(steps, batch))
    batches = places.reshape(-1, batch)
    unfinished = np.flatnonzero(np.repeat(sizes >= 2 * batch, steps))
    while len(unfinished):
        ordered = np.sort(batches[unfinished], axis=1)
        row, column = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
        repeated = np.bincount(unfinished[row] // steps, minlength=len(jobs))
        redrawn = [job.rng.integers(n, size=k) for job, n, k in zip(jobs, sizes, repeated, strict=True) if k]
        ordered[row, column] = np.concatenate([*redrawn, row[:0]])  # `redrawn` may be empty
        batches[unfinished] = ordered
        unfinished = unfinished[np.unique(row)]
    return places, np.tile(take, (steps, 1))


def _passes(
    jobs: Sequence[Job], sizes: np.ndarray, batch: int, epochs: int, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Permutations cut into `length` (J,) batches -> (J, S, B) places, (S, J) counts."""
    place = np.zeros((len(jobs), epochs * length.max(), batch), np.int64)
    count = np.zeros(place.shape[1::-1], np.int64)
    for j, (job, n, l) in enumerate(zip(jobs, sizes, length, strict=True)):
        passes = np.zeros((epochs, l * batch), np.int64)
        order = job.rng.permuted(np.broadcast_to(np.arange(n), (epochs, n)), axis=1)
        passes[:, :n] = order[:, : l * batch]
        place[j, : epochs * l] = passes.reshape(-1, batch)
        count[: epochs * l, j] = np.tile(np.minimum(n - batch * np.arange(l), batch), epochs)
    return place, count


def dropout_bits(rng: np.random.Generator, dropouts: Dropouts, batch: int, steps: int) -> np.ndarray:
    """(steps, n) random int16, with n for all dropout masks of one step; the last few may go unused."""
    n = sum(batch * math.prod(shape) for _, shape in dropouts)
    words = rng.bit_generator.random_raw(steps * -(-n // 4))
    return words.view(np.int16).reshape(steps, -1)


def split_bits(bits, dropouts: Dropouts, batch: int) -> list:
    """Split the random int16 (..., n) of a step, an array or tensor -> (..., B * values) for each dropout layer."""
    ends = np.cumsum([batch * math.prod(shape) for _, shape in dropouts]).tolist()
    return [bits[..., first:last] for first, last in pairwise([0, *ends])]


def dropout_threshold(p: float) -> int:
    """The least random int16 for which a value is kept."""
    return round(p * 2**16) - 2**15


def dropout_masks(bits: Tensor, dropouts: Dropouts, batch: int) -> list[Tensor]:
    """(..., n) random int16 -> for each dropout layer, its (..., B, *shape) mask of 0 and 1/(1-p).

    Feature maps are filled channel last, the order in which a CPU convolves fastest. p is exact to 1/65536.
    """
    masks = []
    for (p, shape), layer_bits in zip(dropouts, split_bits(bits, dropouts, batch), strict=True):
        scaled = (layer_bits >= dropout_threshold(p)).float().mul_(1 / (1 - p))
        maps = scaled.view(*bits.shape[:-1], batch, *shape[1:], shape[0])
        masks.append(maps.movedim(-1, -len(shape)))
    return masks


def rate(local: Local, lr: float, t: int) -> float:
    """The learning rate of a client's step t, from 0."""
    return lr * 0.5 ** (t // local.halve_every) if local.halve_every else lr


class Optimizer:
    """SGD or Adam on flat weights, in torch's conventions, with the proximal pull of a local objective.

    w: (..., d) initial weights. linear: (..., d) a constant added to every gradient. The leading axis may shrink from
    step to step, as the shorter jobs of a stack end.
    """

    def __init__(self, local: Local, lr: float, w: Tensor, linear: Tensor | None = None) -> None:
        adam = local.optimizer == "adam"
        self.local, self.lr, self.linear, self.t = local, lr, linear, 0
        self.start = w.clone() if local.mu else None
        self.momentum = torch.zeros_like(w) if adam or local.momentum else None
        self.square = torch.zeros_like(w) if adam else None

    def step(self, w: Tensor, g: Tensor) -> None:
        """One step on w with the gradient g of the loss; g is overwritten."""
        lr = rate(self.local, self.lr, self.t)
        self.t += 1
        self.complete(w, g)
        self.move(w, g, lr)

    def complete(self, w: Tensor, g: Tensor) -> None:
        """Clip the gradient g of the loss, then add to it all else that an objective has at w."""
        active = len(w)
        if self.local.clip:
            g.mul_(self.local.clip / g.norm().clamp(min=self.local.clip))
        if self.local.weight_decay:
            g.add_(w, alpha=self.local.weight_decay)
        if self.start is not None:  # not mu w - mu start: Adam would magnify its rounding error
            g.add_(w - self.start[:active], alpha=self.local.mu)
        if self.linear is not None:
            g.add_(self.linear[:active])

    def move(self, w: Tensor, g: Tensor, lr: float) -> None:
        """Change w by the complete gradient g, which is overwritten."""
        active = len(w)
        if self.square is not None and self.momentum is not None:
            first, second = BETAS
            m = self.momentum[:active].lerp_(g, 1 - first)
            v = self.square[:active].mul_(second).addcmul_(g, g, value=1 - second)
            root = torch.sqrt(v, out=g).div_(math.sqrt(1 - second**self.t)).add_(EPSILON)
            w.addcdiv_(m, root, value=-lr / (1 - first**self.t))
        elif self.momentum is not None:
            w.add_(self.momentum[:active].mul_(self.local.momentum).add_(g), alpha=-lr)
        else:
            w.add_(g, alpha=-lr)


def contrast(z: Tensor, z_start: Tensor, z_previous: Tensor) -> Tensor:
    """(B,) Moon's contrastive loss (Li et al., CVPR 2021, equation 3) of features z, z_start, z_previous: (B, L)."""
    away, near = (cosine_similarity(z, reference, dim=-1) for reference in (z_previous, z_start))
    return softplus((away - near) / TEMPERATURE)


@torch.enable_grad()
def contrast_gradient(z: Tensor, z_start: Tensor, z_previous: Tensor) -> Tensor:
    """(B, L) gradient of the mean of `contrast` with respect to z."""
    z = z.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(contrast(z, z_start, z_previous).mean(), z)
    return gradient
