"""Models side by side: G of them in tensors with a leading axis, with their gradients.

`DenseStack` has hand-written passes for linear layers, ReLU and dropout: at these sizes, autograd costs more than the
arithmetic. `ModuleStack` takes any module through torch.func. `maps.py` has what plain CNNs need on a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import pad

from fedlib.training.chain import Chain
from fedlib.training.contract import contrast, dropout_masks, dropout_threshold
from fedlib.training.layout import Layout

Losses = Callable[[Any, Tensor], Tensor]  # (B,) of a module's output and its targets
threshold_backward = torch.ops.aten.threshold_backward.grad_input  # of ReLU, in place


class Batch(NamedTuple):
    """One step's batch of every model.

    x: (G, B, D), or (G / M, B, D) where M models in a row share their batches. target: one step of a stack's `targets`.
    weight: (G, 1, B) weight of each sample, None for 1. bits: (G, n) for the dropout masks.
    loss: (G, 1, B) receives minus the samples' losses.
    """

    x: Tensor
    target: tuple[Tensor, ...]
    weight: Tensor | None
    bits: Tensor | None
    loss: Tensor


def multiply(first: Tensor, second: Tensor, out: Tensor, add: Tensor | None = None) -> Tensor:
    """out = first @ second for G matrices, plus `add`.

    A factor may have G / M matrices, each for M models in a row. Every model's product then equals the one it would
    have alone: one wide product for all of them would round differently.
    """
    M = len(out) // min(len(first), len(second))
    lefts, rights, outs = (
        [t] * M if M == 1 or len(t) < len(out) else [t[m::M] for m in range(M)] for t in (first, second, out)
    )
    for m in range(M):
        if add is None:
            outs[m].baddbmm_(lefts[m], rights[m], beta=0)
        else:
            torch.baddbmm(add[m::M], lefts[m], rights[m], out=outs[m])
    return out


class DenseStack:
    """G models of linear layers, ReLU and dropout, side by side.

    Hidden layers keep their weights as (G, in, out) and their activations as (G, B, out). The output layer keeps
    (G, K, L), and its logits as (G, K, B). In these orders, no long product runs down the columns of both its matrices,
    and the softmax runs over an axis that is not the innermost. Other orders cost up to a factor of 3.
    """

    def __init__(self, net: Chain, layout: Layout, w: Tensor) -> None:
        self.layout = layout
        self.dropouts = [(1 / (1 - p), dropout_threshold(p)) for p, _ in net.dropouts]
        self.tensors = self.unflatten(w)
        self.gradients = [torch.zeros_like(t) for t in self.tensors]
        self.hidden = range(0, len(self.tensors) - 2, 2)

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """(G, d) -> weight, bias, weight, bias, ... in this stack's shapes."""
        return [t.clone(memory_format=torch.contiguous_format) for t in self._views(flat)]

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """The inverse of `unflatten`."""
        flat = tensors[0].new_empty(len(tensors[0]), self.layout.d)
        for view, t in zip(self._views(flat), tensors, strict=True):
            view.copy_(t)
        return flat

    def _views(self, flat: Tensor) -> list[Tensor]:
        *hidden, weight, bias = self.layout.views(flat).values()
        turned = [t.transpose(1, 2) if t.dim() == 3 else t.unsqueeze(1) for t in hidden]
        return [*turned, weight, bias.unsqueeze(2)]

    def targets(self, y: Tensor) -> tuple[Tensor, ...]:
        """(S, G, B) labels of all steps -> the targets for `step`: as an index, and one-hot (S, G, K, B)."""
        index = y.unsqueeze(2)
        one_hot = self.tensors[-1].new_zeros(*y.shape[:2], self.tensors[-1].shape[1], y.shape[2])
        return index, one_hot.scatter_(2, index, 1.0)

    def shrink(self, active: int, batch: int) -> None:
        """Continue with only the first `active` models."""
        self.active = [t[:active] for t in self.tensors]
        self.slopes = [t[:active] for t in self.gradients]
        new = self.active[0].new_empty
        self._hidden = [new(active, batch, self.active[k].shape[2]) for k in self.hidden]
        self._back = [torch.empty_like(h) for h in self._hidden]
        self._logits, self._g = new(2, active, self.active[-1].shape[1], batch)

    def step(self, batch: Batch) -> None:
        """Forward and backward pass of one batch per model; writes the mean gradients of the active models."""
        x, (index, one_hot), weight, bits, loss = batch
        w, g_w, h, used = self.active, self.slopes, [x], 0
        for i, k in enumerate(self.hidden):
            z = multiply(h[-1], w[k], self._hidden[i], w[k + 1])
            if bits is not None:
                scale, threshold = self.dropouts[i]
                mask = bits[:, used : used + z[0].numel()].view(z.shape) >= threshold
                z.mul_(mask).mul_(scale)
                used += z[0].numel()
            h.append(z.relu_())
        multiply(w[-2], h[-1].transpose(1, 2), self._logits, w[-1])
        g = torch.log_softmax(self._logits, 1, out=self._g)
        torch.gather(g, 1, index, out=loss)
        g.exp_().sub_(one_hot)
        if weight is not None:
            g.mul_(weight)
        if self.hidden:
            torch.bmm(g.transpose(1, 2), w[-2], out=self._back[-1])
        multiply(g, h[-1], g_w[-2])
        torch.sum(g, 2, keepdim=True, out=g_w[-1])
        for i, k in reversed(list(enumerate(self.hidden))):
            g = self._back[i]
            threshold_backward(g, h[i + 1], 0, grad_input=g)
            if bits is not None:
                g.mul_(self.dropouts[i][0])
            if i:
                torch.bmm(g, w[k].transpose(1, 2), out=self._back[i - 1])
            multiply(h[i].transpose(1, 2), g, g_w[k])
            torch.sum(g, 1, keepdim=True, out=g_w[k + 1])
        for slope in g_w:
            slope.div_(x.shape[1])

    def logits(self, x: Tensor) -> Tensor:
        """(G, K, n) logits of every model, without dropout; x: (n, D) or (G, n, D)."""
        *hidden, weight, bias = self.tensors
        h = x.expand(len(weight), *x.shape[-2:])
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            h = torch.baddbmm(b, h, w).relu_()
        return torch.baddbmm(bias, weight, h.transpose(1, 2))


class ModuleStack:
    """G modules side by side, differentiated by torch.func: for a GPU, and for Moon's objective.

    x is (G, B, D) as for `DenseStack`; `shape` is the shape of a sample for the module. losses: (B,) from its output
    and targets. previous: (G, d) for Moon, whose contrastive term has weight mu.
    """

    def __init__(
        self,
        net: nn.Module,
        layout: Layout,
        w: Tensor,
        shape: tuple[int, ...],
        losses: Losses,
        previous: Tensor | None = None,
        mu: float = 0.0,
    ) -> None:
        self.net, self.layout, self.shape, self.losses, self.mu = net, layout, shape, losses, mu
        self.layered = isinstance(net, Chain)  # takes masks, and returns features as well
        self.dropouts = net.dropouts if isinstance(net, Chain) else []
        # functional_call swaps a module's tensors: one module per thread
        self.learning = copy.deepcopy(net).train()
        self.normalised = any(isinstance(layer, nn.BatchNorm2d) for layer in net.modules()) and self.layered
        self.anchors = [] if previous is None else [self.unflatten(w), self.unflatten(previous)]
        self.tensors = self.unflatten(w)
        self.gradients = [torch.zeros_like(self.tensors[0])]

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """(G, d) -> trained and other values: (G, n_trainable), (G, d - n_trainable)."""
        n = self.layout.n_trainable
        return [t.clone() for t in flat.split([n, self.layout.d - n], 1)]

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """The inverse of `unflatten`; zeros for what is missing."""
        flat = torch.cat(list(tensors), 1)
        return pad(flat, (0, self.layout.d - flat.shape[1]))

    def targets(self, y: Tensor) -> tuple[Tensor, ...]:
        """As `DenseStack.targets`, but only the labels."""
        return (y,)

    def shrink(self, active: int, batch: int) -> None:
        """Continue with only the first `active` models."""
        self.active = [t[:active] for t in self.tensors]
        self.slopes = [t[:active] for t in self.gradients]

    def step(self, batch: Batch) -> None:
        """As `DenseStack.step`."""
        x, target, weight, bits, loss = batch
        G, B = len(self.active[0]), x.shape[1]
        if len(x) < G:
            x = x.repeat_interleave(G // len(x), 0)
        x = x.view(G, B, *self.shape)
        weight = torch.ones(G, B, device=x.device) if weight is None else weight[:, 0]
        keep = (weight > 0).float() if self.normalised else None
        masks = [] if bits is None else dropout_masks(bits, self.dropouts, B)
        anchors = [vmap(self._evaluated)(self._state([t[:G] for t in fixed]), x)[1] for fixed in self.anchors]
        gradient = vmap(grad(self._loss, has_aux=True), (0, 0, 0, 0, 0, None if keep is None else 0, 0, 0))
        parameters, buffers = self._state(self.active)
        gradients, losses = gradient(parameters, buffers, x, *target, weight, keep, masks, anchors)
        loss[:, 0] = -losses
        torch.div(torch.cat([g.flatten(1) for g in gradients.values()], 1), B, out=self.slopes[0])

    def _loss(self, parameters, buffers, x, y, weight, keep, masks, anchors) -> tuple[Tensor, Tensor]:
        """Weighted sum of one model's losses on its batch, and the loss of each sample."""
        state = (parameters, buffers)
        if self.layered:
            out, z = functional_call(self.learning, state, (x, masks, keep))
        else:
            out, z = functional_call(self.learning, state, (x,)), None
        losses = self.losses(out, y)
        total = losses if z is None or not anchors else losses + self.mu * contrast(z, *anchors)
        return (total * weight).sum(), losses

    def _evaluated(
        self, state: tuple[dict[str, Tensor], dict[str, Tensor]], x: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits and features of one chain."""
        return functional_call(copy.deepcopy(self.net).eval(), state, (x,))

    def _state(self, tensors: Sequence[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Parameters and buffers by name, as views."""
        trained, fixed = tensors
        n, state = self.layout.n_trainable, ({}, {})
        for (name, where), shape in zip(self.layout.slices.items(), self.layout.shapes, strict=True):
            values = trained[:, where] if where.stop <= n else fixed[:, where.start - n : where.stop - n]
            state[where.start >= n][name] = values.view(-1, *shape)
        return state

    def logits(self, x: Tensor) -> Tensor:
        """As `DenseStack.logits`."""
        x = x.view(*x.shape[:-1], *self.shape)
        in_dims = (0, 0 if x.dim() > 1 + len(self.shape) else None)
        return vmap(self._evaluated, in_dims)(self._state(self.tensors), x)[0].transpose(1, 2)


Stack = DenseStack | ModuleStack
