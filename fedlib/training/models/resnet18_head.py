"""A linear layer on the features of a frozen ResNet-18, for HiCS-FL's Mini-ImageNet."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.training.chain import Chain, small_normal

# torchvision's ImageNet weights; the name ends with its SHA-256's beginning
RESNET18 = "resnet18-f37072fd.pth"


def resnet18_head(shape: tuple[int, ...], classes: int) -> Chain:
    """A linear layer on the features of a frozen ResNet-18 (HiCS-FL's Mini-ImageNet); see `features`."""
    return Chain(nn.Flatten(), nn.Linear(math.prod(shape), classes), fill=small_normal)


def features(x: Tensor, weights: Path | None = None) -> Tensor:
    """(n, 512) penultimate features of a ResNet-18 trained on ImageNet, in evaluation mode; x: (n, 3, h, w).

    weights: torchvision's file; None looks where torch stores its downloads. Nothing is ever downloaded.

    Raises:
        ConfigError: the file is missing or is not torchvision's.
    """
    path = weights or Path(torch.hub.get_dir()) / "checkpoints" / RESNET18
    if not path.is_file():
        raise ConfigError(
            f"model 'resnet18_head' needs ImageNet weights: place torchvision's {RESNET18} at {path}."
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(RESNET18.removeprefix("resnet18-").removesuffix(".pth")):
        raise ConfigError(
            f"{path} is not torchvision's {RESNET18} (its SHA-256 is {digest[:8]}...); replace it."
        )
    try:
        from torchvision.models import resnet18  # slow to import, and rarely needed
    except ImportError:
        raise ConfigError(
            "model 'resnet18_head' needs torchvision; install it: pip install torchvision."
        ) from None
    net = resnet18(weights=None)
    net.load_state_dict(torch.load(path, weights_only=True))
    net.fc = nn.Identity()
    with torch.inference_mode():
        return torch.cat([net.eval()(part) for part in x.split(100)])
