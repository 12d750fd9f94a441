"""What a client does in a round: the contract between the engine and whoever does the arithmetic.

A `Job` is one client's local training in one round; an `Executor` does many at once. There are four behind the one
contract, and nobody above knows which one ran: `compiled.py` trains a client in one compiled loop (logistic regression
and MLPs on a CPU), `looped.py` one client after the other through torch, without waste (CNNs on a CPU), `stacked.py`
many clients as one stack of tensors (all of these on a GPU, on a CPU what the compiled loop lacks), `modules.py` any
other module. All equal a plain loop to float32 rounding, and a job's result depends neither on the other jobs of the
call nor on the number of threads.

What is random in a job comes from its own generator, in this order: all its batches, then step by step its dropout
masks (`modules.py`: a seed for whatever its forward pass draws).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, softplus

from fedlib.settings.schema import Local
from fedlib.training.layout import Layout

Dropouts = Sequence[tuple[float, tuple[int, ...]]]  # each layer's p and the shape that it masks
TEMPERATURE = 0.5  # of Moon's contrastive term (Li et al., CVPR 2021, section 4.1)


@dataclass(frozen=True)
class Job:
    """One client's local training in one round.

    run: row of `start` that it trains from. samples: (n,) indices into the training set, which may repeat.
    rng: its own generator. draws: jobs with equal ones have the same samples and generators in the same state, so
    that they train on the same batches (a client that several samplers chose); None: no other job has.
    """

    run: int
    samples: np.ndarray
    rng: np.random.Generator
    draws: Hashable = None


@dataclass
class Trained:
    """What J jobs gave, in their order.

    updates: (J, d) new minus start, on the executor's device. losses: (J,) mean training loss per sample over the
    last local epoch, or over all steps where the work is counted in steps. steps: (J,) SGD steps done.
    """

    updates: Tensor
    losses: np.ndarray
    steps: np.ndarray


class Executor(Protocol):
    """Trains, differentiates and evaluates models that are written as flat (d,) vectors.

    pool: its threads, for whatever else clients do side by side. measures: the results' column of what `evaluate`
    gives beside the loss, None where that is nothing.
    """

    net: nn.Module
    measures: str | None
    layout: Layout
    device: torch.device
    threads: int
    pool: ThreadPoolExecutor

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


def workers(threads: int) -> ThreadPoolExecutor:
    """Threads that each let torch use one core: the parts of the work do not depend on how many there are.

    numpy's and scipy's products go to one core as well: the samplers' are small, and BLAS threads that wait for more
    keep the cores from us (rounds of Algorithm 2 took twice as long).
    """
    _keep_freed_memory()
    threadpool_limits(1, user_api="blas")
    return ThreadPoolExecutor(threads, "fedlib", initializer=torch.set_num_threads, initargs=(1,))


def _keep_freed_memory() -> None:
    """Have glibc keep what a step frees for the next step, which needs the same.

    Else it goes back to the system, which hands it out again page by page: thousands of faults a step of a CNN.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, 2**30)


@dataclass(frozen=True)
class Batches:
    """The samples of every step of J jobs of at most S steps of at most B samples.

    index: (S, J, B) rows of the training set; places that a batch does not fill hold any row of the job.
    count: (S, J) how many places of each batch are filled, 0 once a job is done. steps: (J,).
    """

    index: np.ndarray
    count: np.ndarray
    steps: np.ndarray

    def mean_loss(self, j: int, loss: np.ndarray, epochs: int | None) -> float:
        """Job j's mean loss per sample over its last epoch (all its steps); loss: (S,) batches' mean losses."""
        last = self.steps[j]
        first = last - last // (epochs or 1)
        return float(np.average(loss[first:last], weights=self.count[first:last, j]))


def draw_batches(
    jobs: Sequence[Job], batch: int, steps: int | None = None, epochs: int | None = None
) -> Batches:
    """Each job's mini-batches from its own generator.

    steps: every step draws min(batch, n) distinct samples; epochs: every epoch is a pass over a fresh permutation,
    its last batch as large as what is left.
    """
    sizes = np.array([len(job.samples) for job in jobs])
    place, count = _distinct(jobs, sizes, batch, steps) if steps else _passes(jobs, sizes, batch, epochs)
    place += (np.cumsum(sizes) - sizes)[:, None, None]
    index = np.concatenate([job.samples for job in jobs]).take(place.transpose(1, 0, 2))
    return Batches(index, count, (count > 0).sum(0))


def _distinct(
    jobs: Sequence[Job], sizes: np.ndarray, batch: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Subsets without replacement, for all steps of all jobs together -> (J, S, B) places, (S, J) counts.

    Drawn with replacement; then repetitions are drawn again until there are none, which favours no subset. A client
    with few samples more than a batch draws permutations instead.
    """
    take = np.minimum(sizes, batch)
    place = np.zeros((len(jobs), steps, batch), np.int64)
    for own, job, n, b in zip(place, jobs, sizes, take, strict=True):
        if n < 2 * batch:
            own[:, :b] = job.rng.permuted(np.broadcast_to(np.arange(n), (steps, n)), axis=1)[:, :b]
        else:
            own[:] = job.rng.integers(n, size=(steps, batch))
    batches = place.reshape(-1, batch)
    unfinished = np.flatnonzero(np.repeat(sizes >= 2 * batch, steps))
    while len(unfinished):
        drawn = np.sort(batches[unfinished], axis=1)
        row, column = np.nonzero(drawn[:, 1:] == drawn[:, :-1])
        repeated = np.bincount(unfinished[row] // steps, minlength=len(jobs))
        again = [job.rng.integers(n, size=k) for job, n, k in zip(jobs, sizes, repeated, strict=True) if k]
        drawn[row, column] = np.concatenate([*again, row[:0]])  # there may be none
        batches[unfinished] = drawn
        unfinished = unfinished[np.unique(row)]
    return place, np.tile(take, (steps, 1))


def _passes(jobs: Sequence[Job], sizes: np.ndarray, batch: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Permutations cut in batches -> (J, S, B) places, (S, J) counts."""
    length = -(-sizes // batch)
    place = np.zeros((len(jobs), epochs * length.max(), batch), np.int64)
    count = np.zeros(place.shape[1::-1], np.int64)
    for j, (job, n, l) in enumerate(zip(jobs, sizes, length, strict=True)):
        passes = np.zeros((epochs, l * batch), np.int64)
        passes[:, :n] = job.rng.permuted(np.broadcast_to(np.arange(n), (epochs, n)), axis=1)
        place[j, : epochs * l] = passes.reshape(-1, batch)
        count[: epochs * l, j] = np.tile(np.minimum(n - batch * np.arange(l), batch), epochs)
    return place, count


def dropout_bits(rng: np.random.Generator, dropouts: Dropouts, batch: int, steps: int) -> np.ndarray:
    """(steps, n) random int16, n of them for all dropout masks of a step; the last few may go unused."""
    n = sum(batch * math.prod(shape) for _, shape in dropouts)
    words = rng.bit_generator.random_raw(steps * -(-n // 4))
    return words.view(np.int16).reshape(steps, -1)


def split_bits(bits, dropouts: Dropouts, batch: int) -> list:
    """(..., n) random int16 of a step, an array or a tensor -> for each dropout layer its (..., B * values)."""
    ends = np.cumsum([batch * math.prod(shape) for _, shape in dropouts]).tolist()
    return [bits[..., first:last] for first, last in pairwise([0, *ends])]


def dropout_threshold(p: float) -> int:
    """What a random int16 must reach for its value to be kept."""
    return round(p * 2**16) - 2**15


def dropout_masks(bits: Tensor, dropouts: Dropouts, batch: int) -> list[Tensor]:
    """(..., n) random int16 -> for each dropout layer its (..., B, *shape) mask of 0 and 1/(1-p).

    Maps are filled channel last, the order in which a CPU convolves fastest. p is met to 1/65536.
    """
    masks = []
    for (p, shape), own in zip(dropouts, split_bits(bits, dropouts, batch), strict=True):
        scaled = (own >= dropout_threshold(p)).float().mul_(1 / (1 - p))
        maps = scaled.view(*bits.shape[:-1], batch, *shape[1:], shape[0])
        masks.append(maps.movedim(-1, -len(shape)))
    return masks


class Optimizer:
    """SGD or Adam on flat weights, in torch's conventions, with the pull of a local objective.

    w: (..., d) weights it starts from. linear: (..., d) what is added to every gradient. The leading axis may shrink
    from step to step as the shorter jobs of a stack end.
    """

    def __init__(self, local: Local, lr: float, w: Tensor, linear: Tensor | None = None) -> None:
        adam = local.optimizer == "adam"
        self.local, self.lr, self.linear, self.t = local, lr, linear, 0
        self.start = w.clone() if local.mu else None
        self.momentum = torch.zeros_like(w) if adam or local.momentum else None
        self.square = torch.zeros_like(w) if adam else None

    def step(self, w: Tensor, g: Tensor) -> None:
        """One step on w with the loss's gradient g, which is overwritten."""
        lr = self.lr * 0.5 ** (self.t // (self.local.halve_every or math.inf))
        self.t += 1
        active = len(w)
        if self.local.weight_decay:
            g.add_(w, alpha=self.local.weight_decay)
        if self.start is not None:  # not mu w - mu start: Adam would magnify what rounding leaves of it
            g.add_(w - self.start[:active], alpha=self.local.mu)
        if self.linear is not None:
            g.add_(self.linear[:active])
        if self.square is not None:
            first, second = 0.9, 0.999
            m = self.momentum[:active].lerp_(g, 1 - first)
            v = self.square[:active].mul_(second).addcmul_(g, g, value=1 - second)
            root = torch.sqrt(v, out=g).div_(math.sqrt(1 - second**self.t)).add_(1e-8)
            w.addcdiv_(m, root, value=-lr / (1 - first**self.t))
        elif self.momentum is not None:
            w.add_(self.momentum[:active].mul_(self.local.momentum).add_(g), alpha=-lr)
        else:
            w.add_(g, alpha=-lr)


def contrast(z: Tensor, z_start: Tensor, z_previous: Tensor) -> Tensor:
    """(B,) Moon's contrastive loss (Li et al., CVPR 2021, equation 3) of features z, z_start, z_previous: (B, L)."""
    away, near = (cosine_similarity(z, other, dim=-1) for other in (z_previous, z_start))
    return softplus((away - near) / TEMPERATURE)


@torch.enable_grad()
def contrast_gradient(z: Tensor, z_start: Tensor, z_previous: Tensor) -> Tensor:
    """(B, L) the gradient of the mean of `contrast` with respect to z."""
    z = z.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(contrast(z, z_start, z_previous).mean(), z)
    return gradient
