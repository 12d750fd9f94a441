"""The contract of local objectives: a function of a mini-batch that returns the number to be minimised.

An objective is a function, or a dataclass whose instances are called like one. A registered class has a name, which
`params.yaml` can write, and its fields are its parameters::

    @register("proximal")
    @dataclass
    class Proximal:
        '''The loss plus (mu / 2) ||w - w_t||^2.'''

        mu: NotNegative = 0.1

        def __call__(self, step: Step) -> Tensor:
            moved = [((w - step.start[name]) ** 2).sum() for name, w in step.net.named_parameters()]
            return step.loss + self.mu / 2 * torch.stack(moved).sum()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlib.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

REGISTRY = Registry("objective", "fedlib.objectives", group="fedlib.objectives")
register, find, version_of, load_all = (
    REGISTRY.register,
    REGISTRY.find,
    REGISTRY.version_of,
    REGISTRY.load_all,
)


@dataclass(frozen=True)
class Step:
    """A mini-batch of a client's local training.

    net: the module that is trained. x, y: the batch (B, ...). output: of the net for x, loss: its mean loss, both with
    gradients. start: the tensors of the global model that the round began with, by their names in the net. teach: makes
    that model's output for some samples, in evaluation mode and without gradients.
    """

    net: nn.Module
    x: Tensor
    y: Tensor
    output: Any
    loss: Tensor
    start: Mapping[str, Tensor]
    teach: Callable[[Tensor], Any]
