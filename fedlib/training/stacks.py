"""Models side by side: G of them in tensors with a leading axis, with their gradients.

`DenseStack` has hand-written passes for linear layers, ReLU and dropout: at these sizes, autograd costs more than the
arithmetic. `ModuleStack` takes any module through torch.func; `MapStack` takes plain CNNs through stacked products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, pad

from fedlib.training.chain import Chain
from fedlib.training.contract import contrast, dropout_masks, dropout_threshold
from fedlib.training.known import ANYWHERE, ON_MAPS, plain
from fedlib.training.layout import Layout

Losses = Callable[[Any, Tensor], Tensor]  # (B,) of a module's output and its targets
threshold_backward = torch.ops.aten.threshold_backward.grad_input  # of ReLU, in place


def multiply(left: Tensor, right: Tensor, out: Tensor, add: Tensor | None = None) -> Tensor:
    """out = left @ right for G matrices, plus `add`.

    A factor may have G / M matrices, each for M models in a row. Every model's product then equals the one it would
    have alone: one wide product for all of them would round differently.
    """
    M = len(out) // min(len(left), len(right))
    lefts, rights, outs = (
        [t] * M if M == 1 or len(t) < len(out) else [t[m::M] for m in range(M)] for t in (left, right, out)
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

    def step(
        self,
        x: Tensor,
        target: tuple[Tensor, ...],
        weight: Tensor | None,
        bits: Tensor | None,
        loss: Tensor,
    ) -> None:
        """Forward and backward pass of one batch per model; writes the mean gradients of the active models.

        x: (G, B, D), or (G / M, B, D) where M models in a row share their batches. target: one step of `targets`.
        weight: (G, 1, B) weight of each sample, None for 1. bits: (G, n) for the dropout masks.
        loss: (G, 1, B) receives minus the samples' losses.
        """
        w, g_w, h, used = self.active, self.slopes, [x], 0
        for i, k in enumerate(self.hidden):
            z = multiply(h[-1], w[k], self._hidden[i], w[k + 1])
            if bits is not None:
                scale, threshold = self.dropouts[i]
                mask = bits[:, used : used + z[0].numel()].view(z.shape) >= threshold
                z.mul_(mask).mul_(scale)
                used += z[0].numel()
            h.append(z.relu_())
        index, one_hot = target
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
        shape: torch.Size,
        losses: Losses,
        previous: Tensor | None = None,
        mu: float = 0.0,
    ) -> None:
        self.net, self.layout, self.shape, self.losses, self.mu = net, layout, shape, losses, mu
        self.layered = isinstance(net, Chain)  # takes masks, and returns features as well
        self.learning = copy.deepcopy(
            net
        ).train()  # functional_call swaps a module's tensors: one module per thread
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

    def step(
        self,
        x: Tensor,
        target: tuple[Tensor, ...],
        weight: Tensor | None,
        bits: Tensor | None,
        loss: Tensor,
    ) -> None:
        """As `DenseStack.step`."""
        G, B = len(self.active[0]), x.shape[1]
        if len(x) < G:
            x = x.repeat_interleave(G // len(x), 0)
        x = x.view(G, B, *self.shape)
        weight = torch.ones(G, B, device=x.device) if weight is None else weight[:, 0]
        keep = (weight > 0).float() if self.normalised else None
        masks = [] if bits is None else dropout_masks(bits, self.net.dropouts, B)
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
        total = losses if not anchors else losses + self.mu * contrast(z, *anchors)
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


class MapStack(ModuleStack):
    """G plain CNNs side by side, for a GPU: every convolution is one batched product of patches and weights.

    torch.func would stack convolutions as grouped ones: on an H200, a step of 64 clients with HiCS-FL's CIFAR-10
    network takes 34 ms that way and 28 ms this way. Maps are (G, C, B, h, w), so that a convolution's patches are one
    matrix per model.
    """

    LAYERS = (*ON_MAPS, *ANYWHERE, nn.Flatten, nn.Linear)

    @classmethod
    def takes(cls, net: Chain) -> bool:
        """Whether a model consists of layers that are known here, with all parameters trained and none shared."""
        known = all(type(layer) in cls.LAYERS for layer in net)
        simple = all(
            plain(layer) and layer.groups == 1 and layer.dilation == (1, 1)
            for layer in net
            if isinstance(layer, nn.Conv2d)
        )
        trained = [p for p in net.parameters() if p.requires_grad]
        return known and simple and len(trained) == sum(len(list(layer.parameters())) for layer in net)

    def step(
        self,
        x: Tensor,
        target: tuple[Tensor, ...],
        weight: Tensor | None,
        bits: Tensor | None,
        loss: Tensor,
    ) -> None:
        """As `DenseStack.step`."""
        G, B = len(self.active[0]), x.shape[1]
        if len(x) < G:
            x = x.repeat_interleave(G // len(x), 0)
        masks = [] if bits is None else dropout_masks(bits, self.net.dropouts, B)
        parameters = {name: w.detach().requires_grad_() for name, w in self._state(self.active)[0].items()}
        with torch.enable_grad():
            logits = self._forward(parameters, x, masks)
            losses = cross_entropy(logits.flatten(0, 1), target[0].flatten(), reduction="none").view(G, B)
            total = (losses if weight is None else losses * weight[:, 0]).sum()
        gradients = torch.autograd.grad(total, list(parameters.values()))
        loss[:, 0] = -losses.detach()
        torch.div(torch.cat([g.flatten(1) for g in gradients], 1), B, out=self.slopes[0])

    def logits(self, x: Tensor) -> Tensor:
        """As `DenseStack.logits`."""
        x = x.expand(len(self.tensors[0]), *x.shape[-2:])
        return self._forward(self._state(self.tensors)[0], x, []).transpose(1, 2)

    def _forward(self, parameters: dict[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """(G, B, K) logits; x: (G, B, D), masks: (G, B, *shape) for each dropout layer, or none."""
        given = iter(masks)
        x = x.reshape(*x.shape[:2], *self.shape).transpose(1, 2)
        for i, layer in enumerate(self.net):
            weight, bias = parameters.get(f"{i}.weight"), parameters.get(f"{i}.bias")
            if isinstance(layer, nn.Conv2d):
                x = convolve(layer, x, weight, bias)
            elif isinstance(layer, nn.Linear):
                x = torch.baddbmm(bias[:, None], x, weight.mT)
            elif isinstance(layer, nn.Dropout):
                if masks:
                    mask = next(given)
                    x = x * (mask.transpose(1, 2) if x.dim() == 5 else mask)
            elif isinstance(layer, nn.Flatten):
                x = x.transpose(1, 2).flatten(2)
            elif isinstance(layer, ON_MAPS):
                x = layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                x = layer(x)
        return x


def convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """G convolutions of maps (G, C, B, h, w) with G weights (G, O, C, a, b) -> (G, O, B, h', w')."""
    (a, b), (down, right), (y, z) = layer.kernel_size, layer.stride, layer.padding
    if y or z:
        x = pad(x, (z, z, y, y))
    patches = x.unfold(3, a, down).unfold(4, b, right)  # (G, C, B, h', w', a, b)
    size = patches.shape[2:5]
    patches = patches.permute(0, 1, 5, 6, 2, 3, 4).flatten(4).flatten(1, 3)
    return torch.baddbmm(bias[:, :, None], weight.flatten(2), patches).unflatten(2, size)


Stack = DenseStack | ModuleStack
