"""Training one client after another: what the executors of `looped.py` and `modules.py` share.

Every thread has a `Bench`: a copy of the model whose values and gradients lie in two flat vectors, so that an optimiser
step is a handful of operations, whatever the number of tensors. A subclass of `Bench` says how a batch's gradient is
computed, and how samples are measured.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.contract import (
    Batches,
    Executor,
    Job,
    LocalWork,
    Measures,
    Optimizer,
    Rows,
    Split,
    Trained,
    batches_of,
    longest_first,
)
from fedlib.training.layout import Layout

BLOCK = 500  # samples evaluated at a time
Gradient = Callable[
    [int], Tensor | float
]  # of a step, written to the bench's g; returns the batch's mean loss
Anchors = tuple[Tensor, Tensor]  # (d,), (d,) the global and the client's previous model, of Moon's objective


class Bench(ABC):
    """A model for one thread. Its tensors are views of w: (d,), its gradients views of g: (n_trainable,).

    order: for each place in w and g, its place in the layout; None where these are the same. Convolutions then have
        their weights channels last.
    """

    def __init__(
        self, net: nn.Module, layout: Layout, device: torch.device, order: Tensor | None = None
    ) -> None:
        self.net, self.layout, self.order = net.requires_grad_(True), layout, order
        self.back = None if order is None else torch.argsort(order)
        self.w = torch.zeros(layout.d, device=device)
        self.g = torch.zeros(layout.n_trainable, device=device)
        self.trained = self.w[: layout.n_trainable]
        self.buffers: list[tuple[nn.Module, str, Tensor]] = []  # each with its module and its name there
        parameters = dict(net.named_parameters())
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            where = layout.slices[name]
            if name not in parameters:
                module, _, buffer = name.rpartition(".")
                self.buffers.append((net.get_submodule(module), buffer, self.w[where].view(shape)))
                setattr(*self.buffers[-1])
                continue
            parameters[name].data = self.view(self.w[where], shape)
            if where.stop <= layout.n_trainable:
                parameters[name].grad = self.view(self.g[where], shape)
            else:
                parameters[name].requires_grad_(False)

    def view(self, flat: Tensor, shape: torch.Size) -> Tensor:
        """A stretch of w or g as a tensor of the given shape."""
        if self.order is None or len(shape) != 4:
            return flat.view(shape)
        out, inputs, height, width = shape
        return flat.view(out, height, width, inputs).permute(0, 3, 1, 2)

    def load(self, weights: Tensor) -> None:
        """Give the model the values of a flat vector (d,)."""
        self.w.copy_(weights if self.order is None else weights[self.order])

    def values(self) -> Tensor:
        """(d,) the model's present values."""
        return self.w if self.back is None else self.w[self.back]

    def gradient(self) -> Tensor:
        """(n_trainable,) the gradient that was computed last."""
        return self.g if self.back is None else self.g[self.back[: len(self.g)]]

    @abstractmethod
    def gradients(
        self, job: Job, batches: Batches, start: Tensor, local: Local, anchors: Anchors | None
    ) -> AbstractContextManager[Gradient]:
        """Load `start` and yield the gradient of every step of a job. With anchors, mu weights Moon's objective."""

    @abstractmethod
    def measure(self, weights: Tensor, split: str, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Loss and score of each sample in `rows` of a split, under a model (d,)."""

    def optimizer(self, local: Local, lr: float, linear: Tensor | None) -> Optimizer:
        """What changes the trained values, for one job."""
        return Optimizer(local, lr, self.trained, linear)

    @torch.no_grad()
    def train(
        self,
        job: Job,
        batches: Batches,
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        anchors: Anchors | None = None,
    ) -> np.ndarray:
        """All steps of one job, whose result is then `values`; returns the mean loss of each step, (S,).

        At a rate of 0 the model stays as it is.
        """
        losses = torch.zeros(int(batches.steps[0]), device=self.w.device)
        if linear is not None:
            linear = (linear if self.order is None else linear[self.order])[: len(self.g)]
        with self.gradients(job, batches, start, local, anchors) as gradient:
            plain_local = local if anchors is None else local.model_copy(update={"mu": 0.0})
            optimizer = self.optimizer(plain_local, lr, linear)
            for s in range(len(losses)):
                losses[s] = gradient(s)
                if lr:
                    optimizer.step(self.trained, self.g)
        return losses.cpu().numpy()


class SerialExecutor(Executor):
    """Executor that trains one client after another on each of its threads.

    scores: the type of the second value that `evaluate` returns. isolated: every job, and every block that is measured,
    has a bench of its own, because the model keeps something between its calls.
    """

    scores: type = bool
    isolated: bool = False

    def __init__(self, data: Tensors, device: torch.device, threads: int) -> None:
        super().__init__(data, device, threads)
        self._thread = threading.local()

    @abstractmethod
    def new_bench(self) -> Bench:
        """A bench for a thread that has none."""

    def weighted(self, batches: Batches) -> Batches:
        """One job's batches, with the weights of their losses in the job's mean loss as `count`."""
        return batches

    @property
    def bench(self) -> Bench:
        """The calling thread's bench."""
        if self.isolated:
            return self.new_bench()
        if not hasattr(self._thread, "bench"):
            self._thread.bench = self.new_bench()
        return self._thread.bench

    def _train(self, work: LocalWork, trained: Trained) -> None:
        jobs, local, linear, previous = work.jobs, work.local, work.linear, work.previous
        order = sorted(range(len(jobs)), key=lambda j: longest_first(jobs[j], local))
        all_batches = batches_of([jobs[j] for j in order], local)

        def train(i: int) -> None:
            j, bench, batches = order[i], self.bench, all_batches.of(i)
            model = work.start[jobs[j].run]
            shift = None if linear is None else linear[j]
            anchors = None if previous is None else (model, previous[j])
            loss = bench.train(jobs[j], batches, model, local, work.lr, shift, anchors)
            torch.sub(bench.values(), model, out=trained.updates[j])
            trained.losses[j] = self.weighted(batches).mean_loss(0, loss, local.epochs)
            trained.steps[j] = len(loss)

        self.deal(train, range(len(jobs)))

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        gradients = torch.zeros(len(jobs), self.layout.d, device=self.device)
        local = Local(lr=1, batch=batch, steps=1)

        def work(j: int) -> None:
            bench = self.bench
            bench.train(jobs[j], batches_of([jobs[j]], local), start[jobs[j].run], local, lr=0.0)
            gradients[j, : self.layout.n_trainable] = bench.gradient()

        self.deal(work, range(len(jobs)))
        return gradients

    @torch.no_grad()
    def evaluate(self, weights: Tensor, split: Split, rows: Rows = None) -> Measures:
        sizes = [len(self.y[split]) if rows is None else len(rows[r]) for r in range(len(weights))]
        losses = [np.empty(size, np.float32) for size in sizes]
        scores = [np.empty(size, self.scores) for size in sizes]

        @torch.no_grad()
        def work(block: tuple[int, int]) -> None:
            r, first = block
            part = slice(first, min(first + BLOCK, sizes[r]))
            where = part if rows is None else torch.from_numpy(np.ascontiguousarray(rows[r][part]))
            loss, score = self.bench.measure(weights[r], split, where)
            losses[r][part], scores[r][part] = loss.cpu().numpy(), score.cpu().numpy()

        self.deal(work, [(r, first) for r, size in enumerate(sizes) for first in range(0, size, BLOCK)])
        return losses, scores

    def deal(self, work: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Do a piece of work on every item, by all threads."""
        for _ in self.pool.map(work, items):
            pass
