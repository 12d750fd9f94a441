"""Many clients as one stack of tensors: the executor for logistic regression and MLPs, and for everything on a GPU.

J clients' models of one shape lie in tensors with a leading client axis, so that one batched matrix product does for
all of them what would else be J small ones, and Python is paid once a step instead of once a client's step. The
backward pass of linear layers, ReLU, dropout and cross-entropy is written by hand: at these sizes autograd costs more
than the arithmetic.

The longest jobs stand first, so that those still at work are always the first rows of every tensor; a batch that is
not full is filled up with samples of weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.config import Local
from fedlib.data import Tensors
from fedlib.local import Batches, Job, Optimizer, Trained, draw_batches, dropout_bits, workers
from fedlib.models import Chain, Layout, initialise

CHUNK = 8  # jobs trained together on a CPU; more would leave the cache
BLOCK = 64  # jobs whose batches are drawn at a time
ROWS = 1000  # samples evaluated at a time
WIDTH = 16  # hidden layers are filled up with idle units to a multiple of what a vector register holds


class StackedExecutor:
    """Executor that trains jobs side by side; implements `local.Executor`."""

    def __init__(self, net: Chain, data: Tensors, device: torch.device, threads: int) -> None:
        self.net, self.device, self.threads = net, device, threads
        self.layout = Layout.of(net)
        self.x = {"train": data.x_train.flatten(1).to(device), "test": data.x_test.flatten(1).to(device)}
        self.y = {"train": data.y_train.to(device), "test": data.y_test.to(device)}
        self._pool = workers(threads)

    def initial(self, rng: np.random.Generator) -> Tensor:
        return initialise(self.net, rng).to(self.device)

    def train(
        self,
        jobs: Sequence[Job],
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Trained:
        updates = torch.empty(len(jobs), self.layout.d, device=self.device)
        losses, steps = np.zeros(len(jobs)), np.zeros(len(jobs), int)

        def work(rows: np.ndarray, batches: Batches) -> None:
            chunk = [jobs[j] for j in rows]
            w = start[[job.run for job in chunk]]
            stack = Stack(self.net, self.layout, w)
            rule = descent(stack, local, lr, None if linear is None else stack.unflatten(linear[rows]))
            loss = self._steps(stack, chunk, batches, local.batch, rule)
            updates[rows] = stack.flatten(stack.tensors).sub_(w)
            steps[rows] = batches.steps
            losses[rows] = [batches.mean_loss(i, loss[:, i], local.epochs) for i in range(len(chunk))]

        self._deal(work, jobs, local)
        return Trained(updates, losses, steps)

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        gradients = torch.empty(len(jobs), self.layout.d, device=self.device)

        def work(rows: np.ndarray, batches: Batches) -> None:
            chunk = [jobs[j] for j in rows]
            stack = Stack(self.net, self.layout, start[[job.run for job in chunk]])
            rule = Collect(stack, batch)
            self._steps(stack, chunk, batches, batch, rule)
            gradients[rows] = stack.flatten(rule.gradients)

        self._deal(work, jobs, Local(lr=1, batch=batch, steps=1))
        return gradients

    def _deal(self, work: Callable[[np.ndarray, Batches], None], jobs: Sequence[Job], local: Local) -> None:
        """Train in chunks, the longest jobs first; the batches of later jobs are drawn while earlier ones train."""
        order = np.argsort([-len(job.samples) for job in jobs], kind="stable")
        waiting = []
        for first in range(0, len(jobs), BLOCK):
            block = order[first : first + BLOCK]
            batches = draw_batches([jobs[j] for j in block], local.batch, local.steps, local.epochs)
            parts = max(-(-len(block) // CHUNK), min(self.threads, len(block)))
            for rows in np.array_split(np.arange(len(block)), parts):
                waiting.append(self._pool.submit(work, block[rows], batches.of(rows)))
        for future in waiting:
            future.result()

    @torch.no_grad()
    def _steps(self, stack: Stack, jobs: Sequence[Job], batches: Batches, B: int, rule: Rule) -> np.ndarray:
        """All steps of a chunk of jobs; returns each step's mean loss, (S, G)."""
        x_train = self.x["train"]
        index = torch.from_numpy(batches.index).to(self.device)
        y = self.y["train"][index].unsqueeze(2)
        count = torch.from_numpy(batches.count).to(self.device)
        keep = (torch.arange(B, device=self.device) < count[:, :, None]).float()
        weight = (keep * (B / count.clamp(min=1))[:, :, None]).unsqueeze(2)
        partial = ((batches.count < B) & (batches.count > 0)).any(1).tolist()
        loss = torch.zeros(len(index), len(jobs), 1, B, device=self.device)
        bits = self._bits(jobs, B, len(index))
        active = 0
        for s, now in enumerate((batches.count > 0).sum(1).tolist()):
            if now != active:
                active = now
                stack.shrink(active)
                x = torch.empty(active, B, x_train.shape[1], device=self.device)
            torch.index_select(x_train, 0, index[s, :active].reshape(-1), out=x.view(active * B, -1))
            stack.step(
                x,
                y[s, :active],
                rule,
                weight[s, :active] if partial[s] else None,
                None if bits is None else bits[s, :active],
                loss[s, :active],
            )
        return ((loss.squeeze(2) * keep).sum(2) / -count.clamp(min=1)).cpu().numpy()

    def _bits(self, jobs: Sequence[Job], batch: int, steps: int) -> Tensor | None:
        """(S, G, n) what the chunk's dropout masks are made of."""
        dropouts = self.net.dropouts
        if not dropouts:
            return None
        bits = np.stack([dropout_bits(job.rng, dropouts, batch, steps) for job in jobs], 1)
        return torch.from_numpy(bits).to(self.device)

    @torch.no_grad()
    def evaluate(
        self, weights: Tensor, split: Literal["train", "test"], rows: Sequence[np.ndarray] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        x, y = self.x[split], self.y[split]
        sizes = [len(y)] * len(weights) if rows is None else [len(own) for own in rows]
        losses = [np.empty(n, np.float32) for n in sizes]
        correct = [np.empty(n, bool) for n in sizes]

        @torch.no_grad()
        def work(stack: Stack, runs: range, first: int) -> None:
            part = slice(first, first + ROWS)
            samples = part if rows is None else torch.as_tensor(rows[runs.start][part], device=self.device)
            logits = stack.logits(x[samples])
            truth = y[samples].expand(len(runs), 1, -1)
            loss = -torch.log_softmax(logits, 1).gather(1, truth)[:, 0]
            hit = logits.argmax(1) == truth[:, 0]
            for r, own_loss, own_hit in zip(runs, loss.cpu().numpy(), hit.cpu().numpy(), strict=True):
                losses[r][part], correct[r][part] = own_loss, own_hit

        together = [range(len(weights))] if rows is None else [range(r, r + 1) for r in range(len(weights))]
        waiting = []
        for runs in together:
            stack = Stack(self.net, self.layout, weights[runs.start : runs.stop])
            waiting += [
                self._pool.submit(work, stack, runs, first) for first in range(0, sizes[runs.start], ROWS)
            ]
        for future in waiting:
            future.result()
        return losses, correct


class Rule(Protocol):
    """What happens to a gradient as soon as it is known."""

    def matrix(self, k: int, w: Tensor, left: Tensor, right: Tensor) -> None:
        """Tensor k of the stack, now w, has the gradient left @ right / B."""

    def vector(self, k: int, b: Tensor, g: Tensor) -> None:
        """Tensor k of the stack, now b, has the gradient g / B."""


class Stack:
    """G models of linear layers, ReLU and dropout, side by side.

    Hidden layers keep their weight as (G, in, out) and their activations as (G, B, out); the output layer keeps
    (G, K, L) and its logits as (G, K, B). In these orders all long products run along rows in both passes, and the
    softmax runs over an axis that is not the innermost: other orders cost up to a factor 3. Idle units have zero
    weights, so they stay zero and idle whatever the optimiser.
    """

    def __init__(self, net: Chain, layout: Layout, w: Tensor) -> None:
        self.layout = layout
        self.dropouts = [(1 / (1 - p), round(p * 2**16) - 2**15, units) for p, (units,) in net.dropouts]
        linear = [layer for layer in net if isinstance(layer, nn.Linear)]
        widths = [linear[0].in_features] + [-(-layer.out_features // WIDTH) * WIDTH for layer in linear[:-1]]
        self.shapes = [shape for i, o in zip(widths, widths[1:], strict=False) for shape in ((i, o), (1, o))]
        self.shapes += [(linear[-1].out_features, widths[-1]), (linear[-1].out_features, 1)]
        self.hidden = range(0, len(self.shapes) - 2, 2)
        self.tensors = self.unflatten(w)
        self.shrink(len(w))

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """(G, d) -> weight, bias, weight, bias, ... as this stack keeps them."""
        tensors = [flat.new_zeros(len(flat), *shape) for shape in self.shapes]
        for t, view in zip(tensors, self._views(flat), strict=True):
            t[:, : view.shape[1], : view.shape[2]] = view
        return tensors

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """The inverse of `unflatten`."""
        flat = tensors[0].new_empty(len(tensors[0]), self.layout.d)
        for t, view in zip(tensors, self._views(flat), strict=True):
            view.copy_(t[:, : view.shape[1], : view.shape[2]])
        return flat

    def _views(self, flat: Tensor) -> list[Tensor]:
        *hidden, weight, bias = self.layout.views(flat).values()
        return [t.transpose(1, 2) if t.dim() == 3 else t.unsqueeze(1) for t in hidden] + [
            weight,
            bias.unsqueeze(2),
        ]

    def shrink(self, active: int) -> None:
        """Go on with the first `active` models alone."""
        self.now = [t[:active] for t in self.tensors]

    def step(
        self, x: Tensor, y: Tensor, rule: Rule, weight: Tensor | None, bits: Tensor | None, loss: Tensor
    ) -> None:
        """Forward and backward pass of one batch a model; `rule` is handed every gradient as soon as w may change.

        x: (G, B, D). y: (G, 1, B). weight: (G, 1, B) of each sample, None for 1. bits: (G, n) of the dropout masks.
        loss: (G, 1, B) receives minus the samples' losses.
        """
        now, h, used = self.now, [x], 0
        for k in self.hidden:
            z = torch.baddbmm(now[k + 1], h[-1], now[k])
            if bits is not None:
                scale, threshold, units = self.dropouts[k // 2]
                mask = bits[:, used : used + z.shape[1] * units].view(len(z), -1, units) >= threshold
                z[..., :units].mul_(mask).mul_(scale)
                used += z.shape[1] * units
            h.append(z.relu_())
        g = torch.log_softmax(torch.baddbmm(now[-1], now[-2], h[-1].transpose(1, 2)), 1)
        torch.gather(g, 1, y, out=loss)
        g.exp_().scatter_add_(1, y, g.new_full((), -1.0).expand(y.shape))
        if weight is not None:
            g.mul_(weight)
        back = torch.bmm(g.transpose(1, 2), now[-2]) if self.hidden else None
        rule.matrix(-2, now[-2], g, h[-1])
        rule.vector(-1, now[-1], g.sum(2, keepdim=True))
        for k in reversed(self.hidden):
            g = torch.ops.aten.threshold_backward(back, h[k // 2 + 1], 0)
            if bits is not None:
                g.mul_(self.dropouts[k // 2][0])
            back = torch.bmm(g, now[k].transpose(1, 2)) if k else None
            rule.matrix(k, now[k], h[k // 2].transpose(1, 2), g)
            rule.vector(k + 1, now[k + 1], g.sum(1, keepdim=True))

    def logits(self, x: Tensor) -> Tensor:
        """(G, K, n) logits of every model, without dropout; x: (n, D) or (G, n, D)."""
        *hidden, weight, bias = self.tensors
        h = x.expand(len(weight), *x.shape[-2:])
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            h = torch.baddbmm(b, h, w).relu_()
        return torch.baddbmm(bias, weight, h.transpose(1, 2))


def descent(stack: Stack, local: Local, lr: float, linear: list[Tensor] | None) -> Rule:
    """The rule of a client's optimiser; linear: what is added to every gradient, as the stack keeps its tensors."""
    if local.optimizer == "sgd" and not local.momentum:
        return Descent(stack, local, lr, linear)
    return Optimised(stack, local, lr, linear)


class Descent:
    """SGD without momentum: w <- (1 - lr (weight_decay + mu)) w + shift - lr g; the product itself adds its result."""

    def __init__(self, stack: Stack, local: Local, lr: float, linear: list[Tensor] | None) -> None:
        self.alpha = -lr / local.batch
        self.beta = 1 - lr * (local.weight_decay + local.mu)
        self.shift = None if linear is None else [t * -lr for t in linear]
        if local.mu:
            pull = [t * (lr * local.mu) for t in stack.tensors]
            self.shift = (
                pull if linear is None else [a.add_(b) for a, b in zip(self.shift, pull, strict=True)]
            )

    def matrix(self, k: int, w: Tensor, left: Tensor, right: Tensor) -> None:
        w.baddbmm_(left, right, beta=self.beta, alpha=self.alpha)
        if self.shift is not None:
            w.add_(self.shift[k][: len(w)])

    def vector(self, k: int, b: Tensor, g: Tensor) -> None:
        if self.beta != 1:
            b.mul_(self.beta)
        b.add_(g, alpha=self.alpha)
        if self.shift is not None:
            b.add_(self.shift[k][: len(b)])


class Collect:
    """Keeps the gradients of a step and leaves the weights alone."""

    def __init__(self, stack: Stack, batch: int) -> None:
        self.batch = batch
        self.gradients = [torch.empty_like(t) for t in stack.tensors]

    def matrix(self, k: int, w: Tensor, left: Tensor, right: Tensor) -> None:
        torch.bmm(left, right, out=self.gradients[k][: len(w)]).div_(self.batch)

    def vector(self, k: int, b: Tensor, g: Tensor) -> None:
        torch.div(g, self.batch, out=self.gradients[k][: len(b)])


class Optimised(Collect):
    """Any optimiser, on one tensor after the other."""

    def __init__(self, stack: Stack, local: Local, lr: float, linear: list[Tensor] | None) -> None:
        super().__init__(stack, local.batch)
        shifts = linear or [None] * len(stack.tensors)
        self.optimizers = [
            Optimizer(local, lr, w, shift) for w, shift in zip(stack.tensors, shifts, strict=True)
        ]

    def matrix(self, k: int, w: Tensor, left: Tensor, right: Tensor) -> None:
        super().matrix(k, w, left, right)
        self.optimizers[k].step(w, self.gradients[k][: len(w)])

    def vector(self, k: int, b: Tensor, g: Tensor) -> None:
        super().vector(k, b, g)
        self.optimizers[k].step(b, self.gradients[k][: len(b)])
