"""Distillation from the global model: a client keeps what the model that it received knows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from fedlib.kinds import NotNegative, Positive
from fedlib.objectives.base import Step, register


@register("distillation")
@dataclass
class Distillation:
    """The loss plus gamma times the mean KL divergence of the client's output from the global model's, both (B, K).

    tau: the temperature of both; the divergence is multiplied by tau^2, so that its gradient keeps its size.

    Source: Hinton, Vinyals and Dean, 2015, section 2, with the round's global model as the teacher.
    """

    gamma: NotNegative = 1.0
    tau: Positive = 1.0

    def __call__(self, step: Step) -> Tensor:
        mine, taught = (log_softmax(out / self.tau, 1) for out in (step.output, step.teach(step.x)))
        return step.loss + self.gamma * self.tau**2 * kl_div(
            mine, taught, reduction="batchmean", log_target=True
        )
