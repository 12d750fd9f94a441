"""Hand-written forward and backward passes of a network on a CPU, layer by layer.

torch convolves about as fast as the hardware allows. The operations between convolutions would cost almost as much
again if each of them went through memory separately. Here, max-pooling, ReLU and dropout are one compiled pass; so are
PReLU and batch normalisation. Layers without such a pass go through torch's autograd, one at a time.

Feature maps are (n, h, w, C) float32, channels last. A CPU convolves fastest in this order, and a compiled pass can use
whole registers of channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.training.activations import (
    activate,
    distance_sums,
    gradient_sums,
    hand_down,
    normalise,
    unnormalise,
)
from fedlib.training.chain import Chain
from fedlib.training.contract import dropout_threshold

L = TypeVar("L", bound=nn.Module)
NO_BITS = np.empty(0, np.int16)


class Stage(Protocol):
    """One or a few layers. The last call of `forward` keeps what `backward` needs."""

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        """bits: random numbers for the mask of each following dropout layer; none where nothing is dropped."""

    def backward(self, g: Tensor) -> Tensor:
        """Gradient of the loss with respect to the input (of no use from the first stage).

        The gradients of the parameters are overwritten.
        """


class Network:
    """A `Chain` as stages. Its parameters must have gradients to write to."""

    def __init__(self, net: Chain) -> None:
        self.stages = stages_of(net)

    def forward(
        self, x: Tensor, bits: Sequence[np.ndarray] = (), training: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits (n, K) of x: (n, h, w, C), and the features (n, L) that enter the output layer."""
        *hidden, output = self.stages
        waiting = iter(bits)
        for stage in hidden:
            x = stage.forward(x, waiting, training)
        return output.forward(x, waiting, training), x

    def backward(self, g: Tensor, g_features: Tensor | None = None) -> None:
        """Write the parameters' gradients, from the loss's gradients with respect to logits and (if given) features."""
        *hidden, output = self.stages
        g = output.backward(g)
        if g_features is not None:
            g += g_features
        for stage in reversed(hidden):
            g = stage.backward(g)


def stages_of(net: Chain) -> list[Stage]:
    """The layers of a chain as stages; neighbours with a common pass become one stage."""
    layers, stages = deque(net), []

    def take(kind: type[L]) -> L | None:
        if layers and isinstance(layers[0], kind):
            layer = layers.popleft()
            assert isinstance(layer, kind)
            return layer
        return None

    while layers:
        if is_plain_pooling(layers[0]) or isinstance(layers[0], nn.ReLU | nn.Dropout):
            pool, relu, dropout = take(nn.MaxPool2d), take(nn.ReLU), take(nn.Dropout)
            stages.append(Activation(2 if pool else 1, relu is not None, dropout))
            continue
        layer = layers.popleft()
        if isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
            stages.append(Convolution(layer, first=not stages))
        elif isinstance(layer, nn.Linear):
            stages.append(Linear(layer))
        elif isinstance(layer, nn.Flatten):
            stages.append(Flatten())
        elif isinstance(layer, nn.PReLU) and (norm := take(nn.BatchNorm2d)):
            stages.append(NormalisedPReLU(layer, norm))
        else:
            stages.append(ByAutograd(layer))
    return stages


def is_plain_convolution(layer: nn.Module) -> bool:
    """Whether the layer is a convolution with a bias, and zeros (or nothing) around its maps."""
    return (
        type(layer) is nn.Conv2d
        and layer.bias is not None
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def is_plain_pooling(layer: nn.Module) -> bool:
    """Whether the layer takes the maximum of each 2 x 2 square."""
    return isinstance(layer, nn.MaxPool2d) and (
        (layer.kernel_size, layer.stride) == (2, 2)
        and (layer.padding, layer.dilation) == (0, 1)
        and not (layer.ceil_mode or layer.return_indices)
    )


class Convolution:
    def __init__(self, layer: nn.Conv2d, first: bool) -> None:
        self.layer, self.first = layer, first

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        self.x, layer = channels_first(x), self.layer
        return channels_last(layer(self.x))

    def backward(self, g: Tensor) -> Tensor:
        layer = self.layer
        to_x, to_weight, to_bias = torch.ops.aten.convolution_backward(
            channels_first(g),
            self.x,
            layer.weight,
            [layer.out_channels],
            layer.stride,
            layer.padding,
            layer.dilation,
            False,  # not transposed
            [0, 0],
            layer.groups,
            [not self.first, True, True],
        )
        slope_of(layer.weight).copy_(to_weight)
        slope_of(layer.bias).copy_(to_bias)
        return g if self.first else channels_last(to_x)


class Linear:
    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        self.x = x
        return torch.addmm(self.layer.bias, x, self.layer.weight.T)

    def backward(self, g: Tensor) -> Tensor:
        torch.mm(g.T, self.x, out=slope_of(self.layer.weight))
        torch.sum(g, 0, out=slope_of(self.layer.bias))
        return g @ self.layer.weight


class Flatten:
    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        self.shape = x.shape
        return channels_first(x).flatten(1)

    def backward(self, g: Tensor) -> Tensor:
        n, h, w, C = self.shape
        return channels_last(g.view(n, C, h, w))


class Activation:
    """Max-pooling, then ReLU, then dropout; each of the three may be missing."""

    def __init__(self, pool: int, relu: bool, dropout: nn.Dropout | None) -> None:
        self.pool, self.relu, self.dropout = pool, relu, dropout

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        self.shape = x.shape
        n, h, w, C = self.shape if x.dim() == 4 else (len(x), 1, 1, x.shape[1])
        mask_bits = next(bits, NO_BITS) if self.dropout else NO_BITS
        p = self.dropout.p if self.dropout and len(mask_bits) else 0.0
        self.scale = np.float32(1 / (1 - p))
        out = np.empty((n, h // self.pool, w // self.pool, C), np.float32)
        self.won = np.empty(out.shape, np.uint8)
        maps = x.numpy().reshape(n, h, w, C)
        activate(maps, self.pool, self.relu, mask_bits, dropout_threshold(p), self.scale, out, self.won)
        return torch.from_numpy(out if x.dim() == 4 else out.reshape(n, C))

    def backward(self, g: Tensor) -> Tensor:
        n, h, w, C = self.shape if g.dim() == 4 else (len(g), 1, 1, g.shape[1])
        lower = np.empty(self.shape, np.float32)
        if h % self.pool or w % self.pool:
            lower[:] = 0
        incoming, maps = g.numpy().reshape(self.won.shape), lower.reshape(n, h, w, C)
        hand_down(incoming, self.won, self.pool, self.scale, maps)
        return torch.from_numpy(lower)


class NormalisedPReLU:
    """PReLU, then batch normalisation.

    The passes see a row of a feature map as one long vector, (n, h, w C); values per channel are repeated w times.
    """

    def __init__(self, prelu: nn.PReLU, norm: nn.BatchNorm2d) -> None:
        self.prelu, self.norm = prelu, norm

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        norm, (n, h, w, C) = self.norm, x.shape
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        self.shape, self.size = x.shape, n * h * w
        self.z = x.numpy().reshape(n, h, w * C)
        self.slope = self.wide(self.prelu.weight.detach().expand(C).numpy())
        if training:
            self.mean = self.moments(np.zeros(C))[0]
            variance = self.moments(self.mean)[1]
            unbiased = variance * self.size / (self.size - 1)
            for running, new in ((norm.running_mean, self.mean), (norm.running_var, unbiased)):
                running.numpy()[:] += norm.momentum * (new - running.numpy())
        else:
            self.mean, variance = (t.numpy().astype(float) for t in (norm.running_mean, norm.running_var))
        self.inverse = 1 / np.sqrt(variance + norm.eps)
        scale = norm.weight.detach().numpy() * self.inverse
        shift = norm.bias.detach().numpy() - self.mean * scale
        out = np.empty(self.shape, np.float32)
        normalise(self.z, self.slope, self.wide(scale), self.wide(shift), out.reshape(self.z.shape))
        return torch.from_numpy(out)

    def backward(self, g: Tensor) -> Tensor:
        incoming = g.numpy().reshape(self.z.shape)
        sums = np.zeros((2, incoming.shape[2]))
        gradient_sums(incoming, self.z, self.slope, *sums)
        to_shift, to_scale = self.narrow(sums)
        to_scale = (to_scale - self.mean * to_shift) * self.inverse
        slope_of(self.norm.bias).copy_(torch.from_numpy(to_shift))
        slope_of(self.norm.weight).copy_(torch.from_numpy(to_scale))
        # below the normalisation the gradient is a g + b u + c, where u is the output of PReLU
        a = self.norm.weight.detach().numpy() * self.inverse
        b = -a * self.inverse * to_scale / self.size
        c = -a * to_shift / self.size - b * self.mean
        lower, to_slope = np.empty(self.shape, np.float32), np.zeros(incoming.shape[2])
        row = lower.reshape(incoming.shape)
        unnormalise(incoming, self.z, self.slope, self.wide(a), self.wide(b), self.wide(c), row, to_slope)
        slope = torch.from_numpy(self.narrow(to_slope))
        slope_of(self.prelu.weight).copy_(slope if self.prelu.num_parameters > 1 else slope.sum())
        return torch.from_numpy(lower)

    def moments(self, centre: np.ndarray) -> np.ndarray:
        """(2, C) means of PReLU(z) - centre and of its square."""
        sums = np.zeros((2, self.z.shape[2]))
        distance_sums(self.z, self.slope, self.wide(centre), *sums)
        return self.narrow(sums) / self.size

    def wide(self, per_channel: np.ndarray) -> np.ndarray:
        return np.tile(per_channel, self.shape[2]).astype(np.float32)

    def narrow(self, sums: np.ndarray) -> np.ndarray:
        return sums.reshape(*sums.shape[:-1], *self.shape[2:]).sum(-2)


class ByAutograd:
    """Any other layer, through autograd."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def forward(self, x: Tensor, bits: Iterator[np.ndarray], training: bool) -> Tensor:
        self.layer.train(training)
        with torch.enable_grad():
            self.x = channels_first(x).requires_grad_()
            self.out = self.layer(self.x)
        return channels_last(self.out.detach())

    def backward(self, g: Tensor) -> Tensor:
        parameters = list(self.layer.parameters())
        lower, *gradients = torch.autograd.grad(self.out, [self.x, *parameters], channels_first(g))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            slope_of(parameter).copy_(gradient)
        return channels_last(lower)


def slope_of(parameter: Tensor | None) -> Tensor:
    """Where a parameter's gradient is written."""
    assert parameter is not None
    assert parameter.grad is not None
    return parameter.grad


def channels_first(x: Tensor) -> Tensor:
    """(n, h, w, C) -> a view (n, C, h, w). Anything but feature maps is returned unchanged."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x.view_as(x)


def channels_last(x: Tensor) -> Tensor:
    """(n, C, h, w) -> (n, h, w, C), without a copy where memory has this order. Anything else is returned as it is."""
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x
