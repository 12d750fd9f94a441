"""What a model minimises and how it is measured: cross-entropy and accuracy, or a program's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import cross_entropy

from fedlib.errors import ConfigError

Function = Callable[[Any, Tensor], Tensor]


class Objective:
    """A loss and a metric of a model's output and the targets y: (B, ...).

    Both may return one value per sample, (B,) or (B, ...), or the mean over the batch.

    loss: None for cross-entropy.
    metric: None for accuracy if the output is (B, K) and y holds labels, and otherwise for no metric.
    column: name of the metric in the results; None where there is none.
    """

    def __init__(self, loss: Function | None, metric: Function | None, out: Any, y: Tensor) -> None:
        """out, y: the model's output for two samples, and their targets.

        Raises:
            ConfigError: the loss or the metric cannot be computed from them.
        """
        labels = y.dim() == 1 and not y.is_floating_point()
        scores = isinstance(out, Tensor) and out.dim() == 2
        if loss is None and not (labels and scores):
            raise ConfigError(
                f"cross-entropy needs outputs (B, K) and whole numbers (B,) as targets; the model returns {shape(out)} "
                f"and y holds {shape(y)}: pass loss=, a function of output and y."
            )
        self.loss, self.metric = loss or cross_entropies, metric
        self.column = "test_metric" if metric else None
        if metric is None and labels and scores:
            self.metric, self.column = _hits, "test_accuracy"
        self._each = {}
        for what, function in (("loss", self.loss), ("metric", self.metric)):
            if function is not None:
                self._each[what] = _by_sample(what, function, out, y)

    def mean(self, out: Any, y: Tensor) -> Tensor:
        """The mean loss of a batch, as a differentiable tensor."""
        loss = self.loss(out, y)
        return loss.mean() if loss.dim() else loss

    def losses(self, out: Any, y: Tensor) -> Tensor:
        """(B,) loss of each sample."""
        return self._each["loss"](out, y)

    def scores(self, out: Any, y: Tensor) -> Tensor:
        """(B,) metric of each sample, NaN where there is none."""
        if self.metric is None:
            return torch.full((len(y),), torch.nan)
        return self._each["metric"](out, y)


def cross_entropies(out: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(out, y, reduction="none")


def _hits(out: Tensor, y: Tensor) -> Tensor:
    return out.argmax(1) == y


def _by_sample(what: str, function: Function, out: Any, y: Tensor) -> Function:
    """Turn a function of a batch into one with a value per sample. out, y: of two samples, to try it on."""

    def given(out: Any, y: Tensor) -> Tensor:
        value = function(out, y)
        return value.flatten(1).float().mean(1) if value.dim() > 1 else value

    def together(out: Any, y: Tensor) -> Tensor:
        return vmap(lambda o, t: function(o.unsqueeze(0), t.unsqueeze(0)))(out, y)

    def one_by_one(out: Any, y: Tensor) -> Tensor:
        return torch.stack([function(out[i : i + 1], y[i : i + 1]) for i in range(len(y))])

    try:
        value = function(out, y)
    except Exception as error:
        raise ConfigError(
            f"{what}: it fails on outputs {shape(out)} and targets {shape(y)}: {first_line(error)}"
        ) from None
    if not isinstance(value, Tensor) or (value.dim() and len(value) != len(y)):
        raise ConfigError(
            f"{what}: it must return a tensor, one value per sample or their mean, not {shape(value)} for 2 samples."
        )
    if value.dim():
        return given
    try:
        together(out, y)
    except Exception:
        return one_by_one
    return together


def too_few(scores: int, y: Tensor) -> str:
    """The error message for a model with fewer scores than there are classes."""
    return f"the model returns {scores} scores, but y has labels up to {int(y.max())}: give it one score per class."


def shape(value: Any) -> str:
    """Type and shape of a tensor, for messages."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} ({', '.join(map(str, value.shape))})"


def first_line(error: Exception) -> str:
    """The message of an error, as one sentence."""
    return str(error).strip().split("\n")[0].rstrip(".") + "."
