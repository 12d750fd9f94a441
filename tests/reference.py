"""Local training as one would write it first: one client at a time, autograd, torch's optimisers, float64.

It shares with the executors only what a job draws (its batches, its dropout bits) and the models themselves.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.chain import Chain
from fedlib.training.contract import Job, draw_batches, dropout_bits
from fedlib.training.layout import Layout


class Reference:
    """The plain trainer of a model; takes and gives flat vectors."""

    def __init__(self, net: Chain, data: Tensors) -> None:
        self.net = copy.deepcopy(net).double()
        self.layout = Layout.of(self.net)
        self.x, self.y = data.x_train.double(), data.y_train
        self.x_test, self.y_test = data.x_test.double(), data.y_test

    def model(self, w: Tensor) -> Chain:
        """A fresh module with the values of a flat vector."""
        net = copy.deepcopy(self.net)
        state = {name: view.double().clone() for name, view in self.layout.views(w).items()}
        net.load_state_dict(state, strict=False)
        return net

    def flat(self, net: Chain) -> Tensor:
        return torch.cat([net.state_dict()[name].flatten() for name in self.layout.names])

    def train(
        self,
        job: Job,
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> tuple[Tensor, float, int]:
        """The job's update (d,), its mean loss, its steps."""
        net, fixed = self.model(start).train(), self.model(start).eval()
        before = None if previous is None else self.model(previous).eval()
        weights = list(net.parameters())
        extra = [torch.zeros_like(w) for w in weights]
        if linear is not None:
            extra = [self.layout.views(linear)[name].double() for name, _ in net.named_parameters()]
        if local.optimizer == "adam":
            optimizer = torch.optim.Adam(weights, lr, weight_decay=local.weight_decay)
        else:
            optimizer = torch.optim.SGD(weights, lr, local.momentum, weight_decay=local.weight_decay)
        halving = torch.optim.lr_scheduler.StepLR(optimizer, local.halve_every or sys.maxsize, 0.5)
        batches = list(self.batches(job, local))
        losses = []
        for rows, masks in batches:
            logits, z = net(self.x[rows], masks)
            loss = cross_entropy(logits, self.y[rows])
            losses.append((loss.item(), len(rows)))
            if previous is None:
                pairs = zip(weights, fixed.parameters(), strict=True)
                loss = loss + local.mu / 2 * sum(((w - w0.detach()) ** 2).sum() for w, w0 in pairs)
            else:
                near = torch.exp(cosine_similarity(z, fixed(self.x[rows])[1].detach()) / 0.5)
                away = torch.exp(cosine_similarity(z, before(self.x[rows])[1].detach()) / 0.5)
                loss = loss - local.mu * torch.log(near / (near + away)).mean()
            loss = loss + sum((w * e).sum() for w, e in zip(weights, extra, strict=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            halving.step()
        counted = losses[-len(losses) // local.epochs :] if local.epochs else losses
        mean = sum(loss * n for loss, n in counted) / sum(n for _, n in counted)
        return self.flat(net) - start.double(), mean, len(batches)

    def gradient(self, job: Job, start: Tensor, batch: int) -> Tensor:
        """(d,) gradient of one mini-batch, 0 for batch statistics."""
        net = self.model(start).train()
        rows, masks = next(self.batches(job, Local(lr=1, batch=batch, steps=1)))
        cross_entropy(net(self.x[rows], masks)[0], self.y[rows]).backward()
        flat = torch.zeros(self.layout.d, dtype=torch.float64)
        flat[: self.layout.n_trainable] = torch.cat([p.grad.flatten() for p in net.parameters()])
        return flat

    @torch.no_grad()
    def evaluate(self, w: Tensor, split: str, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Loss and correctness of each sample."""
        x, y = (self.x, self.y) if split == "train" else (self.x_test, self.y_test)
        rows = np.arange(len(y)) if rows is None else rows
        logits, _ = self.model(w).eval()(x[rows])
        loss = cross_entropy(logits, y[rows], reduction="none")
        return loss.numpy(), (logits.argmax(1) == y[rows]).numpy()

    def batches(self, job: Job, local: Local) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Each step's samples and dropout masks."""
        drawn = draw_batches([job], local.batch, local.steps, local.epochs)
        for index, count in zip(drawn.index[:, 0], drawn.count[:, 0], strict=True):
            yield torch.as_tensor(index[:count]), [m[:count] for m in self.masks(job, local.batch)]

    def masks(self, job: Job, batch: int) -> list[Tensor]:
        """One step's masks, place by place: sample, then position, then channel."""
        dropouts = self.net.dropouts
        if not dropouts:
            return []
        numbers = dropout_bits(job.rng, dropouts, batch, 1)[0].astype(int) + 2**15  # 0 to 65535
        masks = []
        for p, (channels, *size) in dropouts:
            own, numbers = np.split(numbers, [batch * channels * math.prod(size)])
            kept = own.reshape(batch, *size, channels) >= round(p * 65536)
            masks.append(torch.tensor(np.moveaxis(kept, -1, 1) / (1 - p)))
        return masks


def relative_error(mine: Tensor, true: Tensor) -> float:
    """||mine - true|| / ||true||."""
    return float((mine.cpu().double() - true).norm() / true.norm())
