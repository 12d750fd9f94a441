"""Choose the executor for a model and a device: the fastest one that can train it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from fedlib.data.datasets import Tensors
from fedlib.errors import ConfigError
from fedlib.training import maps
from fedlib.training.card import CardExecutor
from fedlib.training.chain import Chain, initialise
from fedlib.training.contract import Executor
from fedlib.training.known import as_chain
from fedlib.training.layout import with_values
from fedlib.training.looped import ClientLoop
from fedlib.training.models import build, features, maker
from fedlib.training.modules import ModuleExecutor
from fedlib.training.objective import Function, too_few
from fedlib.training.randomness import made
from fedlib.training.stacked import StackedExecutor


@dataclass(frozen=True)
class ProgramModel:
    """A model that a program passes to `fedlib.simulate`.

    make: makes a new model on each call. loss, metric: functions of output and targets; None for cross-entropy and
        accuracy.
    """

    make: Callable[[], nn.Module]
    loss: Function | None = None
    metric: Function | None = None


def make_executor(
    model: str | ProgramModel,
    data: Tensors,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    by_torch: bool = False,
) -> Executor:
    """The executor for a model on a device. threads: number of CPU workers (None: as many as torch would use).

    by_torch: whether torch itself has to train it (`Local.by_torch`).

    Raises:
        ConfigError: the device or model does not exist, the model cannot take this data, or its weights are missing.
    """
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device is {str(device)!r}; it must be cpu or cuda.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is {str(device)!r}, but torch finds no GPU here; set it, or FEDLIB_DEVICE, to cpu."
        )
    if kind == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # it would keep 10 bits of a float's mantissa in convolutions
    device, threads = torch.device(device), threads or torch.get_num_threads()
    if isinstance(model, str):
        see = features(model)
        if see is not None:
            data = Tensors(see(data.x_train), data.y_train, see(data.x_test), data.y_test)
        shape, classes = tuple(data.x_train.shape[1:]), int(torch.cat([data.y_train, data.y_test]).max()) + 1
        net = build(model, shape, classes)
        if by_torch or not isinstance(net, Chain):
            model = ProgramModel(partial(shipped, model, shape, classes))
    if isinstance(model, ProgramModel):
        net = None if by_torch else own_chain(model, data)
        if net is None:
            return ModuleExecutor(model.make, data, device, threads, model.loss, model.metric)
        labels = torch.cat([data.y_train, data.y_test])
        output = net[-1]
        if isinstance(output, nn.Linear) and output.out_features <= int(labels.max()):
            raise ConfigError(too_few(output.out_features, labels))
    assert isinstance(net, Chain)
    if device.type != "cpu":
        executor = CardExecutor if maps.takes(net) else StackedExecutor
    elif net.is_dense:
        from fedlib.training.compiled import CompiledExecutor as executor
    else:
        executor = ClientLoop
    return executor(net, data, device, threads)


def own_chain(model: ProgramModel, data: Tensors) -> Chain | None:
    """A program's own model as a `Chain`, if its layers allow that and it learns labels; else None."""
    plain = model.loss is None and model.metric is None
    labels = data.y_train.dim() == 1 and not data.y_train.is_floating_point()
    if not (plain and labels and data.x_train.is_floating_point()):
        return None
    try:
        return as_chain(made(model.make, 0), model.make, tuple(data.x_train.shape[1:]))
    except RuntimeError:  # it does not fit the data; the other executor reports why
        return None


def shipped(name: str, size: tuple[int, ...], classes: int) -> nn.Module:
    """A shipped model as a module that returns its scores alone, with initial values from torch's generator."""
    net = build(name, size, classes)
    if not isinstance(net, Chain):
        return maker(name)(size, classes)
    seed = int(torch.randint(2**62, ()))
    return with_values(nn.Sequential(*net), initialise(net, np.random.default_rng(seed)))
