"""The executor for everything on a GPU, and for dense models with Adam: many clients are one stack of tensors.

J clients' models of one shape lie in tensors with a leading client axis. One batched matrix product replaces J small
ones, and Python's overhead occurs once per step instead of once per step and client. The backward pass of linear
layers, ReLU, dropout and cross-entropy is hand-written: at these sizes, autograd costs more than the arithmetic.

The longest jobs come first, so that the jobs still running are always the first rows of every tensor. A partial batch
is filled up with samples of weight 0. Where several samplers train the same client, M models in a row learn from the
same batches. These are drawn and gathered once: for small models, that costs more than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.chain import Chain, initialise
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
    dropout_bits,
    longest_first,
)
from fedlib.training.layout import Layout
from fedlib.training.objective import cross_entropies, measured
from fedlib.training.stacks import Batch, DenseStack, Losses, ModuleStack, Stack
from fedlib.training.threads import workers

CHUNK = 16  # jobs trained together on a CPU, at most; many more would not fit into the cache
ON_A_GPU = {"dense": 1024, "maps": 64}  # the same on a GPU, whose memory holds the maps of 64 jobs
BITS = 2**22  # random numbers for dropout drawn at a time
FEWEST = 8  # different clients trained together, at least, where several models share each client
ROWS = 1000  # samples evaluated at a time

Measure = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# (R, n) losses and correctness, on images (n, D), labels (n,)


class StackedExecutor(Executor):
    """Executor that trains jobs side by side, in chunks: each is a `LocalWork` whose `start` has a row for each job."""

    def __init__(
        self,
        net: nn.Module,
        data: Tensors,
        device: torch.device,
        threads: int,
        layout: Layout | None = None,
        losses: Losses = cross_entropies,
    ) -> None:
        super().__init__(data, device, threads)
        self.net, self.layout, self.losses = net, layout or Layout.of(net), losses
        self.x = {"train": data.x_train.flatten(1).to(device), "test": data.x_test.flatten(1).to(device)}
        self.dropouts = net.dropouts if isinstance(net, Chain) else []
        self._shape = data.x_train.shape[1:]
        on_cpu = device.type == "cpu"
        self._lanes = threads if on_cpu else 1  # chunks at a time: one per core of a CPU, and one on a GPU
        self._feed = self.pool if on_cpu else workers(1)
        self._draw = map if on_cpu else self.pool.map  # a CPU's threads are all busy with chunks of their own
        self._dense = net if isinstance(net, Chain) and net.is_dense else None
        self._chunk = CHUNK if on_cpu else ON_A_GPU["maps" if self._dense is None else "dense"]

    def initial(self, rng: np.random.Generator) -> Tensor:
        assert isinstance(self.net, Chain)  # other modules are drawn by who made them
        return initialise(self.net, rng).to(self.device)

    def _train(self, work: LocalWork, trained: Trained) -> None:
        queued: list[tuple[np.ndarray, Batches, Tensor]] = []

        def read(rows: np.ndarray, batches: Batches, loss: Tensor) -> None:
            of_step = loss.cpu().numpy()
            client = np.repeat(np.arange(len(batches.steps)), len(rows) // len(batches.steps))
            trained.steps[rows] = batches.steps[client]
            trained.losses[rows] = [
                batches.mean_loss(k, of_step[:, i], work.local.epochs) for i, k in enumerate(client.tolist())
            ]

        def train(rows: np.ndarray, batches: Batches) -> None:
            where = self._sent(rows)  # a GPU would wait for indices of the host
            jobs = [work.jobs[j] for j in rows]
            linear, previous = (None if t is None else t[where] for t in (work.linear, work.previous))
            start = work.start[self._runs(jobs)]
            chunk = replace(work, jobs=jobs, start=start, linear=linear, previous=previous)
            trained.updates[where], loss = self._trained(chunk, batches)
            if self.device.type == "cpu":
                read(rows, batches, loss)
            else:  # it is not waited for before everything is queued
                queued.append((rows, batches, loss))

        self._deal(train, work.jobs, work.local)
        for results in queued:
            read(*results)

    def _trained(self, chunk: LocalWork, batches: Batches) -> tuple[Tensor, Tensor]:
        """The updates of a chunk of G jobs, (G, d), and the mean loss of each step, (S, G).

        batches: of the L clients of the jobs. G / L jobs in a row share those of one.

        On a CPU, jobs with Moon's objective are trained alone: how many there are would change the last bits.
        """
        if chunk.previous is not None and len(chunk.jobs) > 1 and self.device.type == "cpu":
            return self._one_by_one(chunk, batches)
        w, local = chunk.start, chunk.local
        stack = self._stack(w)
        if chunk.previous is not None:
            stack, local = self._modules(w, chunk.previous, local.mu), local.model_copy(update={"mu": 0.0})
        shifts = [None] * len(stack.tensors) if chunk.linear is None else stack.unflatten(chunk.linear)
        pairs = zip(stack.tensors, shifts, strict=True)
        optimizers = [Optimizer(local, chunk.lr, t, shift) for t, shift in pairs][: len(stack.gradients)]
        loss = self._steps(stack, chunk.jobs, batches, local.batch, optimizers)
        return stack.flatten(stack.tensors).sub_(w), loss

    def _one_by_one(self, chunk: LocalWork, batches: Batches) -> tuple[Tensor, Tensor]:
        """`_trained` of each job of a chunk by itself."""
        updates, losses = torch.empty_like(chunk.start), torch.zeros(len(batches.index), len(chunk.jobs))
        sharing = len(chunk.jobs) // len(batches.steps)
        for g in range(len(chunk.jobs)):
            row = slice(g, g + 1)
            linear, previous = (None if t is None else t[row] for t in (chunk.linear, chunk.previous))
            job = replace(
                chunk, jobs=chunk.jobs[g : g + 1], start=chunk.start[row], linear=linear, previous=previous
            )
            own = batches.of(g // sharing)
            updates[row], losses[: len(own.index), row] = self._trained(job, own)
        return updates, losses

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        gradients = torch.empty(len(jobs), self.layout.d, device=self.device)

        def work(rows: np.ndarray, batches: Batches) -> None:
            members = [jobs[j] for j in rows]
            gradients[self._sent(rows)] = self._slopes(members, batches, start[self._runs(members)], batch)

        self._deal(work, jobs, Local(lr=1, batch=batch, steps=1))
        return gradients

    def _slopes(self, jobs: Sequence[Job], batches: Batches, w: Tensor, batch: int) -> Tensor:
        """(G, d) gradients of a chunk of G jobs at w: (G, d)."""
        stack = self._stack(w)
        self._steps(stack, jobs, batches, batch, [])
        return stack.flatten(stack.gradients)

    def _measure(self, weights: Tensor) -> Measure:
        """How the models (R, d) are measured on images (n, D) and targets (n,)."""
        stack = self._stack(weights)

        def measure(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return measured(stack.logits(x), y)

        return measure

    def _stack(self, w: Tensor) -> Stack:
        return DenseStack(self._dense, self.layout, w) if self._dense is not None else self._modules(w)

    def _modules(self, w: Tensor, previous: Tensor | None = None, mu: float = 0.0) -> Stack:
        return ModuleStack(self.net, self.layout, w, self._shape, self.losses, previous, mu)

    def _deal(self, work: Callable[[np.ndarray, Batches], None], jobs: Sequence[Job], local: Local) -> None:
        """Train in chunks, longest jobs first, with as many chunks at a time as there are threads that train."""

        def draw_and_work(groups: np.ndarray) -> None:
            first = [jobs[j] for j in groups[:, 0]]
            work(groups.ravel(), batches_of(first, local))

        alike: dict[Hashable, list[int]] = {}
        for j, job in enumerate(jobs):
            alike.setdefault(job.key, []).append(j)
        waiting = []
        for M in sorted({len(places) for places in alike.values()}, reverse=True):
            groups = np.array([places for places in alike.values() if len(places) == M])
            groups = groups[
                sorted(range(len(groups)), key=lambda i: longest_first(jobs[groups[i, 0]], local))
            ]
            chunk = max(self._chunk // M, min(self._chunk, FEWEST))
            for first in range(0, len(groups), self._lanes * chunk):
                block = groups[first : first + self._lanes * chunk]
                waiting += np.array_split(block, min(self._lanes, len(block)))
        for _ in self._feed.map(draw_and_work, waiting):
            pass

    @torch.no_grad()
    def _steps(
        self, stack: Stack, jobs: Sequence[Job], batches: Batches, B: int, optimizers: Sequence[Optimizer]
    ) -> Tensor:
        """All steps of a chunk of jobs, M in a row on the same batches; returns the mean loss of each step, (S, G).

        optimizers: for each gradient of the stack; none to leave the models as they are.
        """
        x_train, G, L = self.x["train"], len(jobs), len(batches.steps)
        M = G // L
        index, count = self._sent(batches.index), self._sent(batches.count)
        labels = self.y["train"][index].repeat_interleave(M, 1)
        filled = (torch.arange(B, device=self.device) < count[:, :, None]).float()
        weight = (filled * (B / count.clamp(min=1))[:, :, None]).unsqueeze(2).repeat_interleave(M, 1)
        partial = [bool(row.any()) for row in (batches.count < B) & (batches.count > 0)]
        loss = torch.zeros(len(index), G, 1, B, device=self.device)
        targets = stack.targets(labels)
        values = max(1, G * B * sum(math.prod(shape) for _, shape in self.dropouts))
        bundle = max(1, BITS // values)
        active, x = 0, x_train
        bits: Tensor | None = None
        for s, running in enumerate((batches.count > 0).sum(1).tolist()):
            if running != active:
                active = running
                stack.shrink(active * M, B)
                x = torch.empty(active * B, x_train.shape[1], dtype=x_train.dtype, device=self.device)
            rows = slice(active * M)
            if self.dropouts and s % bundle == 0:
                fresh_bits = self._bits(jobs[: active * M : M], B, min(bundle, len(index) - s))
                bits = fresh_bits.repeat_interleave(M, 1)
            torch.index_select(x_train, 0, index[s, :active].reshape(-1), out=x)
            target = tuple(t[s, rows] for t in targets)
            bits_of_step = None if bits is None else bits[s % bundle, rows]
            weight_of_step = weight[s, rows] if partial[s] else None
            stack.step(Batch(x.view(active, B, -1), target, weight_of_step, bits_of_step, loss[s, rows]))
            for w, g, optimizer in zip(stack.active, stack.slopes, optimizers, strict=False):
                optimizer.step(w, g)
        total = (loss.squeeze(2) * filled.repeat_interleave(M, 1)).sum(2)
        return total / -count.clamp(min=1).repeat_interleave(M, 1)

    def _runs(self, jobs: Sequence[Job]) -> Tensor:
        """(J,) the run of each job, on the device."""
        return self._sent(np.array([job.run for job in jobs]))

    def _sent(self, values: np.ndarray) -> Tensor:
        """The values on the device."""
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)  # a GPU need not stop for it

    def _bits(self, jobs: Sequence[Job], batch: int, steps: int) -> Tensor:
        """(S, G, n) random bits for the jobs' dropout masks."""

        def draw(job: Job) -> Tensor:
            return self._sent(dropout_bits(job.rng, self.dropouts, batch, steps))

        return torch.stack(list(self._draw(draw, jobs)), 1)

    def _images(self, models: int) -> int:
        """How many samples to evaluate at a time."""
        return ROWS

    @torch.no_grad()
    def evaluate(self, weights: Tensor, split: Split, rows: Rows = None) -> Measures:
        x, y = self.x[split], self.y[split]
        requests = [None] * len(weights) if rows is None else rows
        # a model that asks for most samples gets all: reading them in order costs less than gathering most of them
        read = [None if request is None or 2 * len(request) > len(y) else request for request in requests]

        @torch.no_grad()
        def work(
            measure: Measure, samples: np.ndarray | None, part: slice, losses: Tensor, correct: Tensor
        ) -> None:
            where = part if samples is None else self._sent(samples[part])
            losses[:, part], correct[:, part] = measure(x[where], y[where])

        together: dict[bytes | None, list[int]] = {}  # models that need the same samples read them once
        for r, samples in enumerate(read):
            together.setdefault(None if samples is None else samples.tobytes(), []).append(r)
        waiting, results = [], []
        for runs in together.values():
            samples = read[runs[0]]
            size, n = len(y) if samples is None else len(samples), self._images(len(runs))
            losses = torch.empty(len(runs), size, device=self.device)
            correct = torch.empty(len(runs), size, dtype=torch.bool, device=self.device)
            measure = self._measure(weights[runs])
            parts = [slice(i, i + n) for i in range(0, size, n)]
            waiting += [self._feed.submit(work, measure, samples, part, losses, correct) for part in parts]
            results.append((runs, losses, correct))
        for future in waiting:
            future.result()
        nothing = [np.empty(0)] * len(weights)
        answer = nothing, nothing.copy()
        for runs, *measures in results:
            for values, of_model in zip(measures, answer, strict=True):
                for r, row in zip(runs, values.cpu().numpy(), strict=True):
                    of_model[r] = row if read[r] is requests[r] else row[requests[r]]
        return answer
