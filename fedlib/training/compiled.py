"""Logistic regression and MLPs on a CPU: each client's local training is one compiled loop.

At these sizes a step takes a few tens of microseconds. Interpreting it, and fetching its batch from memory, cost as
much as the arithmetic. Therefore a client's steps run in machine code without the interpreter's lock. Samples are read
as the bytes of their pixels: these are four times smaller than floats, so they stay in the core's cache. The two
products that a layer needs are blocked for the core's vector registers.

`stacked.py` handles momentum, Adam, Moon's objective and single gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.data.datasets import Tensors
from fedlib.training.chain import Chain
from fedlib.training.contract import Batches, Job, LocalWork, dropout_bits, dropout_threshold
from fedlib.training.loops import LINE, QUAD, descend, samples
from fedlib.training.stacked import StackedExecutor


class CompiledExecutor(StackedExecutor):
    """Executor that trains dense models by SGD in compiled loops."""

    def __init__(self, net: Chain, data: Tensors, device: torch.device, threads: int) -> None:
        super().__init__(net, data, device, threads)
        self._samples = samples(data)
        self._labels = self.y["train"].numpy()
        self._sizes = np.array([shape[1] for shape in self.layout.shapes[::2]] + [self.layout.shapes[-1][0]])
        dropouts = [(dropout_threshold(p), 1 / (1 - p)) for p, _ in net.dropouts]
        self._dropouts = np.array(dropouts).reshape(-1, 2)

    def _trained(self, chunk: LocalWork, batches: Batches) -> tuple[Tensor, Tensor]:
        local, linear = chunk.local, chunk.linear
        if not local.plain or chunk.previous is not None:
            return super()._trained(chunk, batches)
        lr, start, nothing = chunk.lr, chunk.start.numpy(), np.empty((0, 0), np.float32)
        G, d = start.shape
        w = torch.zeros(G, -(-d // LINE) * LINE).numpy()
        w[:, :d] = start
        shift = nothing if linear is None else linear.numpy() * np.float32(-lr)
        if local.mu:
            pull = start * np.float32(lr * local.mu)
            shift = pull if linear is None else shift + pull
        loss = np.zeros((len(batches.index), G), np.float32)
        descend(
            *self._samples,
            self._labels,
            batches.index,
            batches.count,
            self._sizes,
            self._dropouts,
            self._masks(chunk.jobs[:: G // len(batches.steps)], len(batches.index), local.batch),
            torch.zeros(-(-local.batch // QUAD) * QUAD, self._sizes[0]).numpy(),
            w,
            np.float32(lr),
            np.float32(1 - lr * (local.weight_decay + local.mu)),
            shift,
            loss,
        )
        return torch.from_numpy(w[:, :d] - start), torch.from_numpy(loss)

    def _masks(self, jobs: Sequence[Job], steps: int, batch: int) -> np.ndarray:
        """(J, S, n) random bits for the jobs' dropout masks."""
        if not self.dropouts:
            return np.empty((0, 0, 0), np.int16)
        return np.stack([dropout_bits(job.rng, self.dropouts, batch, steps) for job in jobs])
