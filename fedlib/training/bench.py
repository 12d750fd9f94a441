"""Any `nn.Module` with its values in two flat vectors, and with control over the randomness of its forward pass."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.training.layout import Layout

FEATURES = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
GLOBAL = threading.Lock()  # all threads share torch's own generator


class Source:
    """The generator that the dropout layers of a bench draw from at present. It is on the CPU, whatever the device."""

    generator = torch.Generator()


class Dropout(nn.Module):
    """Dropout with a generator of ours. channels: whether whole channels are dropped."""

    def __init__(self, p: float, channels: bool, source: Source) -> None:
        super().__init__()
        self.p, self.channels, self.source = p, channels, source

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        size = (*x.shape[:2], *[1] * (x.dim() - 2)) if self.channels else x.shape
        mask = torch.empty(size).bernoulli_(1 - self.p, generator=self.source.generator)
        return x * mask.mul_(1 / (1 - self.p) if self.p < 1 else 0.0).to(x.device)


class Bench:
    """A copy of a model for one thread. Its tensors are views of w: (d,), its gradients views of g: (n_trainable,)."""

    def __init__(self, net: nn.Module, layout: Layout, device: torch.device) -> None:
        self.net, self.layout, self.source = copy.deepcopy(net).to(device), layout, Source()
        self.net.requires_grad_(True)
        with_own_dropout(self.net, self.source)
        self.w = torch.zeros(layout.d, device=device)
        self.g = torch.zeros(layout.n_trainable, device=device)
        parameters, self._buffers = dict(self.net.named_parameters()), {}
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            where = layout.slices[name]
            if name not in parameters:
                module, _, buffer = name.rpartition(".")
                self._buffers[name] = self.w[where].view(shape)
                setattr(self.net.get_submodule(module), buffer, self._buffers[name])
                continue
            parameters[name].data = self.w[where].view(shape)
            if where.stop <= layout.n_trainable:
                parameters[name].grad = self.g[where].view(shape)
            else:
                parameters[name].requires_grad_(False)
        self.trained = self.w[: layout.n_trainable]
        self._training: bool | None = None
        self._counts = {name: b.clone() for name, b in self.net.named_buffers() if not b.is_floating_point()}

    def load(self, weights: Tensor, training: bool) -> nn.Module:
        """The module with the values of a flat vector (d,), and with its counters as they were at creation."""
        self.values()
        self.w.copy_(weights)
        if self._counts:
            for name, buffer in self.net.named_buffers():
                if name in self._counts:
                    buffer.copy_(self._counts[name])
        if self._training != training:  # it visits every layer
            self._training = training
            self.net.train(training)
        return self.net

    def values(self) -> Tensor:
        """(d,) the module's present values, including buffers that its forward pass replaced."""
        for name, own in self._buffers.items():
            module, _, buffer = name.rpartition(".")
            parent = self.net.get_submodule(module)
            if (now := getattr(parent, buffer)) is not own:
                own.copy_(now.detach())
                setattr(parent, buffer, own)
        return self.w

    @contextmanager
    def drawing(self, seed: int, random: bool) -> Iterator[None]:
        """In this context, everything that the forward pass draws comes from this seed.

        random: whether it draws from torch's own generator. Then only one thread at a time may run it.
        """
        self.source.generator = torch.Generator().manual_seed(seed)
        with seeded(seed, self.w.device) if random else nullcontext():
            yield


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """In this context, torch's own generators start from `seed`. Afterwards they continue as if nothing was drawn."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with GLOBAL, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def with_own_dropout(net: nn.Module, source: Source) -> None:
    """Replace torch's dropout layers, at any depth, by ours. Other layers that draw are left (see `draws`)."""
    for module in list(net.modules()):
        for name, child in module.named_children():
            if type(child) in (nn.Dropout, *FEATURES):
                setattr(module, name, Dropout(child.p, type(child) in FEATURES, source))


def draws(net: nn.Module, x: Tensor) -> bool:
    """Whether a forward pass, with our dropout layers, still draws from torch's own generator."""
    net = copy.deepcopy(net)
    with_own_dropout(net, Source())
    with seeded(0, x.device), torch.no_grad():
        before = torch.get_rng_state(), x.device.type == "cuda" and torch.cuda.get_rng_state(x.device)
        net.train()(x)
        net.eval()(x)
        after = torch.get_rng_state(), x.device.type == "cuda" and torch.cuda.get_rng_state(x.device)
    return any(not torch.equal(a, b) for a, b in zip(before, after, strict=True) if a is not False)


def made(make: Callable[[], nn.Module], seed: int, device: torch.device | None = None) -> nn.Module:
    """A new module from `make`, with torch's generators seeded by `seed`.

    Raises:
        ConfigError: `make` does not return a module.
    """
    with seeded(seed, device):
        net = make()
    if not isinstance(net, nn.Module):
        raise ConfigError(f"model: it must make a torch.nn.Module, but makes a {type(net).__name__}.")
    return net.float().to(device)


def drawn(make: Callable[[int], nn.Module], rng: np.random.Generator) -> Tensor:
    """(d,) the values of a fresh model that `make` draws by its own code, from a seed taken from `rng`."""
    net = make(int(rng.integers(2**63)))
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    return torch.cat([tensors[name].detach().flatten() for name in Layout.of(net).names])


def has_dropout(net: nn.Module) -> bool:
    """Whether the module contains a dropout layer, at any depth."""
    net = copy.deepcopy(net)
    with_own_dropout(net, Source())
    return any(isinstance(layer, Dropout) and layer.p for layer in net.modules())


def keeps_statistics(net: nn.Module, x: Tensor) -> bool:
    """Whether a forward pass in training mode changes a buffer of the module."""
    net = copy.deepcopy(net).train()
    before = {name: b.clone() for name, b in net.named_buffers()}
    with seeded(0, x.device), torch.no_grad():
        net(x)
    return any(not torch.equal(before[name], b) for name, b in net.named_buffers())
