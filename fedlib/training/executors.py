"""Which executor trains a model: by the model and the device, the fastest that can."""

from __future__ import annotations

import torch

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import ConfigError
from fedlib.training.contract import Executor
from fedlib.training.looped import ClientLoop
from fedlib.training.models import build, features
from fedlib.training.stacked import StackedExecutor


def make_executor(
    model: str, data: Tensors, device: str | torch.device = "cpu", threads: int | None = None
) -> Executor:
    """The executor that suits a model and a device; threads: CPU workers (None: as many as torch would use).

    Raises:
        ConfigError: there is no such device, the model cannot take this data's images, or its weights are missing.
    """
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"FEDLIB_DEVICE is {str(device)!r}; it must be cpu or cuda.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"FEDLIB_DEVICE is {str(device)!r}, but torch finds no GPU here; set it to cpu.")
    seen = features(model)
    if seen is not None:
        data = Tensors(seen(data.x_train), data.y_train, seen(data.x_test), data.y_test)
    device = torch.device(device)
    net = build(model, tuple(data.x_train.shape[1:]), int(data.y_train.max()) + 1)
    if device.type != "cpu":
        executor = StackedExecutor
    elif net.is_dense:
        from fedlib.training.compiled import CompiledExecutor as executor
    else:
        executor = ClientLoop
    return executor(net, data, device, threads or torch.get_num_threads())
