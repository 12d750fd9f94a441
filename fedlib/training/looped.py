"""The executor for CNNs on a CPU: it trains one client after another, with little overhead.

Convolutions fill a core by themselves, so this executor reduces everything else. The forward and backward passes are
hand-written (`layers.py`). Images and weights are stored channels last. Parameters and gradients are views of two flat
vectors, so that an optimiser step is a handful of operations. Batches are read from the bytes of their pixels. Jobs are
dealt to threads that compute with one core each.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.chain import Chain, initialise
from fedlib.training.compiled import QUAD, samples, take
from fedlib.training.compiled import cross_entropy as cross_entropy_gradient
from fedlib.training.contract import (
    Job,
    Optimizer,
    Trained,
    contrast_gradient,
    draw_batches,
    dropout_bits,
    split_bits,
    workers,
)
from fedlib.training.layers import Network, channels_last
from fedlib.training.layout import Layout

BLOCK = 500  # samples evaluated at a time


class ClientLoop:
    """Executor that trains jobs one by one; implements `contract.Executor`."""

    measures = "test_accuracy"

    def __init__(self, net: Chain, data: Tensors, device: torch.device, threads: int) -> None:
        self.net, self.data, self.device = net, data, device
        self.layout = Layout.of(net)
        self.samples = samples(data, channels_last=True)
        self.threads, self.pool = threads, workers(threads)
        self._own = threading.local()

    def initial(self, rng: np.random.Generator) -> Tensor:
        return initialise(self.net, rng)

    def train(
        self,
        jobs: Sequence[Job],
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Trained:
        updates = torch.empty(len(jobs), self.layout.d)
        losses, steps = np.zeros(len(jobs)), np.zeros(len(jobs), int)

        def work(j: int) -> None:
            rows = [None if t is None else t[j] for t in (linear, previous)]
            losses[j], steps[j] = self._bench.train(
                jobs[j], start[jobs[j].run], local, lr, *rows, out=updates[j]
            )

        self._deal(work, np.argsort([-len(job.samples) for job in jobs], kind="stable"))
        return Trained(updates, losses, steps)

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        gradients = torch.zeros(len(jobs), self.layout.d)

        def work(j: int) -> None:
            self._bench.gradient(jobs[j], start[jobs[j].run], batch, out=gradients[j])

        self._deal(work, range(len(jobs)))
        return gradients

    def evaluate(
        self, weights: Tensor, split: Literal["train", "test"], rows: Sequence[np.ndarray] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        n = len(getattr(self.data, f"y_{split}"))
        sizes = [n if rows is None else len(rows[r]) for r in range(len(weights))]
        losses = [np.empty(size, np.float32) for size in sizes]
        correct = [np.empty(size, bool) for size in sizes]

        def work(block: tuple[int, int]) -> None:
            r, first = block
            part = slice(first, min(first + BLOCK, sizes[r]))
            where = part if rows is None else torch.from_numpy(np.ascontiguousarray(rows[r][part]))
            losses[r][part], correct[r][part] = self._bench.evaluate(weights[r], split, where)

        self._deal(work, [(r, first) for r, size in enumerate(sizes) for first in range(0, size, BLOCK)])
        return losses, correct

    def _deal(self, work, items) -> None:
        for _ in self.pool.map(work, items):
            pass

    @property
    def _bench(self) -> Bench:
        """The calling thread's own copy of the model."""
        if not hasattr(self._own, "bench"):
            self._own.bench = Bench(self.net, self.data, self.samples)
        return self._own.bench


class Bench:
    """A model whose parameters and gradients are views of flat vectors, with convolution weights channels last.

    order: for each position in the flat vector used here, its position in the model's layout.
    """

    def __init__(self, net: Chain, data: Tensors, samples: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        self.net, self.data, self.samples = copy.deepcopy(net), data, samples
        layout = Layout.of(net)
        self.n = layout.n_trainable
        self.w, self.g = torch.zeros(layout.d), torch.zeros(self.n)
        order = layout.views(torch.arange(layout.d))
        self.order = torch.cat([channels_last(view).flatten() for view in order.values()])
        self.back = torch.argsort(self.order)
        parameters = dict(self.net.named_parameters())
        for name, shape, where in zip(layout.names, layout.shapes, layout.slices.values(), strict=True):
            if name in parameters:
                parameters[name].data = view_as(self.w[where], shape)
                parameters[name].grad = view_as(self.g[where], shape)
            else:
                module, _, buffer = name.rpartition(".")
                self.net.get_submodule(module).register_buffer(buffer, self.w[where])
        self.passes = Network(self.net)

    @torch.no_grad()
    def train(
        self,
        job: Job,
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None,
        previous: Tensor | None,
        out: Tensor,
    ) -> tuple[float, int]:
        """Local training of one job. Writes its update to out: (d,); returns its mean loss and number of steps."""
        batches = draw_batches([job], local.batch, local.steps, local.epochs)
        index, count, steps = (
            torch.from_numpy(batches.index[:, 0]),
            batches.count[:, 0].tolist(),
            len(batches.count),
        )
        features = [None if previous is None else self._features(w, index) for w in (start, previous)]
        self.w.copy_(start[self.order])
        own = local if previous is None else local.model_copy(update={"mu": 0.0})
        shift = None if linear is None else linear[self.order[: self.n]]
        optimizer = Optimizer(own, lr, self.w[: self.n], shift)
        losses = np.empty(steps)
        for s in range(steps):
            losses[s], z = self._forward(job, index[s, : count[s]], local.batch)
            to_features = None
            if previous is not None and local.mu:
                to_features = contrast_gradient(z, *(f[s, : count[s]] for f in features)).mul_(local.mu)
            self.passes.backward(self.to_logits, to_features)
            optimizer.step(self.w[: self.n], self.g)
        torch.sub(self.w[self.back], start, out=out)
        return batches.mean_loss(0, losses, local.epochs), steps

    @torch.no_grad()
    def gradient(self, job: Job, start: Tensor, batch: int, out: Tensor) -> None:
        """Write the gradient of one mini-batch to out: (d,). Its last places, batch statistics, are not changed."""
        batches = draw_batches([job], batch, steps=1)
        count = int(batches.count[0, 0])
        rows = torch.from_numpy(batches.index[0, 0, :count])
        self.w.copy_(start[self.order])
        self._forward(job, rows, batch)
        self.passes.backward(self.to_logits)
        out[: self.n] = self.g[self.back[: self.n]]

    @torch.no_grad()
    def evaluate(self, weights: Tensor, split: str, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Loss and correctness of each sample in `rows`."""
        self.w.copy_(weights[self.order])
        logits, _ = self.passes.forward(self.images(split, rows))
        y = getattr(self.data, f"y_{split}")[rows]
        return cross_entropy(logits, y, reduction="none"), logits.argmax(1) == y

    @torch.no_grad()
    def _features(self, weights: Tensor, index: Tensor) -> Tensor:
        """(S, B, L) input of the model's output layer for every sample of index: (S, B)."""
        self.w.copy_(weights[self.order])
        rows, place = torch.unique(index, return_inverse=True)
        parts = [self.passes.forward(self.images("train", part))[1] for part in rows.split(BLOCK)]
        return torch.cat(parts)[place]

    def _forward(self, job: Job, rows: Tensor, batch: int) -> tuple[float, Tensor]:
        """Mean loss of some samples, and their features. The gradient of the logits is left in `to_logits`."""
        bits = []
        if self.net.dropouts:
            bits = split_bits(dropout_bits(job.rng, self.net.dropouts, batch, 1)[0], self.net.dropouts, batch)
        logits, z = self.passes.forward(self.images("train", rows), bits, training=True)
        self.to_logits = torch.empty_like(logits)
        y = self.data.y_train[rows].numpy()
        loss = cross_entropy_gradient(logits.numpy(), y, len(y), self.to_logits.numpy())
        self.to_logits /= len(y)
        return loss, z

    def images(self, split: str, rows: Tensor | slice) -> Tensor:
        """Some samples of a split, with feature maps channels last."""
        if split == "test":
            return channels_last(self.data.x_test[rows])
        index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows.numpy()
        n, (_, C, h, w) = len(index), self.data.x_train.shape
        batch = torch.empty(-(-n // QUAD) * QUAD, C * h * w)
        take(self.samples[0], index, n, *self.samples[1:], batch.numpy())
        return batch[:n].view(n, h, w, C)


def view_as(flat: Tensor, shape: torch.Size) -> Tensor:
    """A flat vector in channels-last order as a tensor of the given shape."""
    if len(shape) != 4:
        return flat.view(shape)
    out, into, height, width = shape
    return flat.view(out, height, width, into).permute(0, 3, 1, 2)
