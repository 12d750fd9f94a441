"""Models as a program gives them: the name of a shipped model, or a function that makes a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedlib.errors import ConfigError
from fedlib.library.data import Samples
from fedlib.library.inputs import Unpacked
from fedlib.settings.identity import digest_of_value
from fedlib.settings.schema import OWN
from fedlib.training.executors import ProgramModel, shipped
from fedlib.training.models import maker
from fedlib.training.objective import Function, first_line, shape
from fedlib.training.randomness import made


@dataclass(frozen=True)
class Given:
    """A program's model. name: in a run's settings. use: what `make_executor` takes. make: makes a module."""

    name: str
    use: str | ProgramModel
    make: Callable[[], nn.Module]


def model_of(
    model: Any, samples: Samples, loss: Function | None, metric: Function | None, key: Any, skip: bool
) -> Given:
    """The model for these samples, identified by its code, attributes, initial values, loss and metric.

    key, skip: see `Handed`.

    Raises:
        ConfigError: it is neither a name nor a function that makes a module, no model has that name, or something that
            must be identified cannot be.
    """
    data, packing = samples.data, samples.packing
    if isinstance(model, nn.Module):
        raise ConfigError(
            "model is a module; give a function that makes it, as lambda: MyNet(), so that every seed has its own "
            "initial values."
        )
    if not isinstance(model, str) and not callable(model):
        raise ConfigError(f"model is {model!r}; give the name of a model, or a function that makes a module.")
    make, name = model, getattr(model, "__name__", "model").strip("<>")
    if isinstance(model, str):
        maker(model)
        make, name = partial(shipped, model, data.x_train.shape[1:], data.classes), model
        if loss is None and metric is None:
            return Given(model, model, make)
    tried = samples.data.tensors().x_train[:2]
    use = ProgramModel(
        lambda: ready(make() if packing is None else Unpacked(make(), packing), tried), loss, metric
    )
    net = made(use.make, 0)
    if not any(p.requires_grad for p in net.parameters()):
        raise ConfigError(
            "model: no parameter requires a gradient, so there is nothing to train; unfreeze some."
        )
    parts = {"model": make, "model()": net, "loss": loss, "metric": metric, "x": packing}
    digests = [digest_of_value(value, place, skip) for place, value in parts.items()]
    return Given(f"{OWN}{name}:{digest_of_value([*digests, key], 'key')[:12]}", use, make)


@torch.no_grad()
def ready(net: Any, x: Tensor) -> Any:
    """A new module. The layers of a lazy one take their shapes from the samples x."""
    if isinstance(net, nn.Module) and any(is_lazy(tensor) for tensor in [*net.parameters(), *net.buffers()]):
        try:
            net.eval()(x)
        except Exception as error:
            raise ConfigError(
                f"model: its forward pass fails on inputs {shape(x)}: {first_line(error)}"
            ) from error
        net.train()
    return net
