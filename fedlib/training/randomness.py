"""Control over everything that an `nn.Module` draws: when it is made, and in its forward pass."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.training.layout import Layout

FEATURES = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
GLOBAL = threading.Lock()  # all threads share torch's own generator


class Source:
    """The generator that a module's dropout layers draw from at present. It is on the CPU, whatever the device."""

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


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Generator[None]:
    """In this context, torch's own generators start from `seed`. Afterwards they continue as if nothing was drawn."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with GLOBAL, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def redirect_dropout(net: nn.Module, source: Source) -> None:
    """Let dropout layers at any depth draw from `source`. Other layers that draw are left (see `draws`)."""
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d) and (
                type(child) in (nn.Dropout, *FEATURES)
            ):
                setattr(module, name, Dropout(child.p, type(child) in FEATURES, source))


def draws(net: nn.Module, x: Tensor) -> bool:
    """Whether a forward pass, with our dropout layers, still draws from torch's own generator."""
    net = copy.deepcopy(net)
    redirect_dropout(net, Source())

    def states() -> Tensor:
        on_gpu = [torch.cuda.get_rng_state(x.device)] if x.device.type == "cuda" else []
        return torch.cat([torch.get_rng_state(), *on_gpu])

    with seeded(0, x.device), torch.no_grad():
        before = states()
        net.train()(x)
        net.eval()(x)
        return not torch.equal(before, states())


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
    return Layout.of(net).values(net)


def has_dropout(net: nn.Module) -> bool:
    """Whether the module contains a dropout layer, at any depth."""
    net = copy.deepcopy(net)
    redirect_dropout(net, Source())
    return any(isinstance(layer, Dropout) and layer.p for layer in net.modules())


def keeps_statistics(net: nn.Module, x: Tensor) -> bool:
    """Whether a forward pass in training mode changes a buffer of the module."""
    net = copy.deepcopy(net).train()
    before = {name: b.clone() for name, b in net.named_buffers()}
    with seeded(0, x.device), torch.no_grad():
        net(x)
    return any(not torch.equal(before[name], b) for name, b in net.named_buffers())
