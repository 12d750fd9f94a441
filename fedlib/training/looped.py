"""The executor for CNNs on a CPU: it trains one client after another, with little overhead.

Convolutions fill a core by themselves, so this executor reduces everything else. The forward and backward passes are
hand-written (`layers.py`). Images and weights are stored channels last. Batches are read from the bytes of their
pixels. Jobs are dealt to threads that compute with one core each (`serial.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training import loops
from fedlib.training.chain import Chain, initialise
from fedlib.training.contract import Batches, Job, contrast_gradient, dropout_bits, split_bits
from fedlib.training.layers import Network, channels_last
from fedlib.training.layout import Layout
from fedlib.training.serial import BLOCK, Anchors, Bench, Gradient, SerialExecutor

PART = 100  # samples in one forward pass without a backward one: the feature maps of more do not stay in a core's cache
Stored = tuple[np.ndarray, np.ndarray, np.ndarray]  # pixels, scale and shift: see `loops.samples`


class ClientLoop(SerialExecutor):
    """Executor that trains chains by hand-written passes."""

    def __init__(self, net: Chain, data: Tensors, device: torch.device, threads: int) -> None:
        super().__init__(data, device, threads)
        self.net = self.chain = net
        self.data, self.layout = data, Layout.of(net)
        self.stored = loops.samples(data, channels_last=True)

    def initial(self, rng: np.random.Generator) -> Tensor:
        return initialise(self.chain, rng)

    def new_bench(self) -> Bench:
        return ChainBench(self.chain, self.layout, self.data, self.stored)


class ChainBench(Bench):
    """A chain, with convolution weights channels last."""

    def __init__(self, net: Chain, layout: Layout, data: Tensors, stored: Stored) -> None:
        places = layout.views(torch.arange(layout.d)).values()
        order = torch.cat([channels_last(view).flatten() for view in places])
        mine = copy.deepcopy(net)
        super().__init__(mine, layout, torch.device("cpu"), order)
        self.data, self.stored, self.dropouts = data, stored, net.dropouts
        self.passes = Network(mine)

    @contextmanager
    def gradients(
        self, job: Job, batches: Batches, start: Tensor, local: Local, anchors: Anchors | None
    ) -> Generator[Gradient]:
        index, count = torch.from_numpy(batches.index[:, 0]), batches.count[:, 0].tolist()
        anchor_features = [self._features(model, index) for model in anchors or ()]
        self.load(start)

        def gradient(s: int) -> float:
            rows = index[s, : count[s]]
            bits = []
            if self.dropouts:
                random_bits = dropout_bits(job.rng, self.dropouts, local.batch, 1)[0]
                bits = split_bits(random_bits, self.dropouts, local.batch)
            logits, z = self.passes.forward(self._images("train", rows), bits, training=True)
            to_logits = torch.empty_like(logits)
            y = self.data.y_train[rows].numpy()
            loss = loops.cross_entropy(logits.numpy(), y, len(y), to_logits.numpy())
            to_logits /= len(y)
            to_features = None
            if anchor_features and local.mu:
                near, away = (features[s, : count[s]] for features in anchor_features)
                to_features = contrast_gradient(z, near, away).mul_(local.mu)
            self.passes.backward(to_logits, to_features)
            return loss

        yield gradient

    def measure(self, weights: Tensor, split: str, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        self.load(weights)
        if isinstance(rows, slice):
            rows = torch.arange(rows.start, rows.stop)
        logits, _ = self._forward(split, rows)
        y = getattr(self.data, f"y_{split}")[rows]
        return cross_entropy(logits, y, reduction="none"), logits.argmax(1) == y

    def _features(self, weights: Tensor, index: Tensor) -> Tensor:
        """(S, B, L) input of the model's output layer for every sample of index: (S, B)."""
        self.load(weights)
        rows, place = torch.unique(index, return_inverse=True)
        parts = [self._forward("train", part)[1] for part in rows.split(BLOCK)]
        return torch.cat(parts)[place]

    def _forward(self, split: str, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(n, K) logits and (n, L) inputs of the output layer for some samples.

        The samples pass in equal parts of at most PART: no part is so small that the products round differently.
        """
        parts = rows.tensor_split(-(-len(rows) // PART))
        logits, z = zip(*(self.passes.forward(self._images(split, part)) for part in parts), strict=True)
        return torch.cat(logits), torch.cat(z)

    def _images(self, split: str, rows: Tensor) -> Tensor:
        """Some samples of a split, with feature maps channels last."""
        if split == "test":
            return channels_last(self.data.x_test[rows])
        index = rows.numpy()
        n, (_, C, h, w) = len(index), self.data.x_train.shape
        batch = torch.empty(-(-n // loops.QUAD) * loops.QUAD, C * h * w)
        pixels, scale, shift = self.stored
        loops.take(pixels, index, n, scale, shift, batch.numpy())
        return batch[:n].view(n, h, w, C)
