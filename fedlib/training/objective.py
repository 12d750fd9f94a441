"""What a model minimises and how it is measured: cross-entropy and accuracy, or a program's own functions.

A program's function is tried on samples before training. What it returns for a batch decides how it is used:

    one value per sample      each depends on its own sample alone
    their mean                the same in one number
    their sum                 trained on as it is; what is told is the mean
    a weighted mean           class weights, or labels to ignore: sums of weighted losses over sums of weights
    anything else             a loss is refused; a metric is measured on the whole test set at once
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import cross_entropy

from fedlib.errors import ConfigError

Function = Callable[[Any, Tensor], Tensor]
Kind = Literal["each", "mean", "sum", "weighted", "together"]
MOST_LABELS = 2_000  # of which the weights in a loss are found out
TRIED = 64  # samples that functions are tried on, besides one of every label


class Objective:
    """A loss and a metric of a model's output and the targets y: (B, ...).

    loss: None for cross-entropy.
    metric: None for accuracy if the output is (B, K) and y holds labels, and otherwise for no metric.
    column: name of the metric in the results; None where there is none.
    kind, metric_kind: what the functions return for a batch. weights: of each label, for a weighted loss.
    """

    def __init__(self, loss: Function | None, metric: Function | None, out: Any, y: Tensor) -> None:
        """out, y: the model's output for the samples `tried_on`, and their targets.

        Raises:
            ConfigError: the loss or the metric cannot be computed from them, or a loss is undefined for one sample.
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
        self.kind: Kind = "each"
        self.metric_kind: Kind = "each"
        self.weights: tuple[Tensor, Tensor] | None = None
        if loss is not None:
            self.kind = _kind("loss", loss, out, y)
        if self.kind == "together":
            self.weights = _weights(self.loss, out, y)
            if self.weights is None:
                raise ConfigError(_undefined("loss", out, y))
            self.kind = "weighted"
        if loss is not None and _finite(out) and torch.isnan(_flat(loss(out, y))).all():
            raise ConfigError(
                f"loss: it is not a number (0 / 0) for {len(y)} samples although the model's outputs are finite, "
                "as when the weights of all labels are 0; give at least one of them a weight above 0."
            )
        if metric is not None:
            self.metric_kind = _kind("metric", metric, out, y)
            if self.metric_kind == "sum":
                self.metric_kind = "together"
        elif labels and scores and int(y.min()) >= 0:
            self.metric, self.column = _hits, "test_accuracy"
        self._loss_of_each = _of_each(self.loss, self.kind, out, y)
        self._score_of_each = _of_each(self.metric, self.metric_kind, out, y) if self.metric else None

    def mean(self, out: Any, y: Tensor) -> Tensor:
        """The loss of a batch as it is minimised, as a differentiable tensor: the function's own mean or sum."""
        loss = self.loss(out, y)
        return loss.mean() if loss.dim() else loss

    def mean_loss(self, loss: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch, from what was minimised."""
        return loss / len(y) if self.kind == "sum" else loss

    def weight(self, y: Tensor) -> Tensor | None:
        """(B,) weight of each sample in a mean loss; None for equal weights."""
        if self.weights is None:
            return None
        return _by_sample(*self.weights, y)

    def losses(self, out: Any, y: Tensor) -> Tensor:
        """(B,) loss of each sample; 0 where its weight is 0."""
        by_sample, weight = self._loss_of_each(out, y), self.weight(y)
        return by_sample if weight is None else torch.where(weight > 0, by_sample, 0.0)

    def scores(self, out: Any, y: Tensor) -> Tensor:
        """(B,) metric of each sample, NaN where there is none. A metric of all together is the same for each."""
        if self._score_of_each is None or self.metric is None:
            return torch.full((len(y),), torch.nan)
        if self.metric_kind == "together":
            return torch.as_tensor(self.metric(out, y)).float().expand(len(y))
        return self._score_of_each(out, y)


def tried_on(y: Tensor) -> Tensor:
    """Rows of y to try functions on: some that are spread evenly, and the first of every label (but not too many)."""
    rows = torch.linspace(0, len(y) - 1, min(TRIED, len(y))).long()
    if not y.is_floating_point():
        flat = y.flatten().cpu()
        labels, place = torch.unique(flat, return_inverse=True)
        first = torch.full((len(labels),), len(flat)).scatter_reduce(
            0, place, torch.arange(len(flat)), "amin"
        )
        rows = torch.cat([rows, first[:MOST_LABELS] // max(1, y[0].numel())])
    return torch.unique(rows)


def cross_entropies(out: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(out, y, reduction="none")


def measured(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(R, n) losses and correctness, from logits (R, K, n) and labels (n,)."""
    truth = y.expand(len(logits), 1, -1)
    losses = -torch.log_softmax(logits, 1).gather(1, truth)[:, 0]
    return losses, logits.max(1).indices == truth[:, 0]  # argmax would take five times as long


def _hits(out: Tensor, y: Tensor) -> Tensor:
    return out.argmax(1) == y


# -- how a function treats a batch ---------------------------------------------------------------------------------


def _kind(what: str, function: Function, out: Any, y: Tensor) -> Kind:
    """What a function returns for a batch, as seen on these outputs, and on outputs with noise.

    Raises:
        ConfigError: it fails, or returns something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about broadcasting; what comes of it is found below
            value = function(out, y)
    except Exception as error:
        raise ConfigError(
            f"{what}: it fails on outputs {shape(out)} and targets {shape(y)}: {first_line(error)}"
        ) from None
    if what == "metric" and isinstance(value, float | int):
        value = torch.tensor(float(value))
    if not isinstance(value, Tensor) or (value.dim() and len(value) != len(y)):
        raise ConfigError(
            f"{what}: it must return a tensor, one value per sample or their mean, not {shape(value)} for {len(y)} "
            "samples."
        )
    kinds: set[Kind] = set()
    for outputs in _outputs(out):
        try:
            batch = _flat(function(outputs, y))
            singles = torch.stack(
                [_flat(function(_rows(outputs, i), y[i : i + 1])).reshape(()) for i in range(len(y))]
            )
        except Exception:
            if outputs is out:
                kinds.add("together")
            continue  # noise can leave a function's domain
        choices: dict[Kind, Tensor] = {"mean": singles.mean(), "sum": singles.sum()}
        if value.dim():
            choices = {"each": singles}
        kinds.add(next((kind for kind, expected in choices.items() if close(batch, expected)), "together"))
    if value.dim() and kinds != {"each"}:
        raise ConfigError(_undefined(what, out, y))
    return kinds.pop() if len(kinds) == 1 else "together"


def _outputs(out: Any) -> Iterator[Any]:
    """A model's outputs, and outputs that differ more: those of a fresh model may all be the same."""
    yield out
    if isinstance(out, Tensor) and out.is_floating_point():
        noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out.device)
        yield out + noise


def _weights(loss: Function, out: Any, y: Tensor) -> tuple[Tensor, Tensor] | None:
    """(labels, their weights) with which the loss of a batch is a weighted mean of single losses; None if it is none.

    From two samples of labels a and b: f(both) = (w_a f(a) + w_b f(b)) / (w_a + w_b).
    """
    if not isinstance(out, Tensor) or y.is_floating_point():
        return None
    labels = torch.unique(y).cpu()
    weights = torch.ones(len(labels))
    generator, device = torch.Generator().manual_seed(0), out.device
    if isinstance(stated := getattr(loss, "weight", None), Tensor) and len(stated) > int(labels.max()):
        weights = stated.detach().cpu().float()[labels.clamp(min=0)]
        weights[labels == getattr(loss, "ignore_index", None)] = 0.0
    else:
        reference: int | None = None
        for i, label in enumerate(labels.tolist()):
            pairs = torch.randn(8, 2, *out.shape[1:], generator=generator).to(device).unbind()
            single = torch.stack(
                [loss(pair[:1], torch.full_like(y[:1], label)).reshape(()) for pair in pairs]
            )
            if torch.isnan(single).any():
                weights[i] = 0.0
                continue
            if reference is None:
                reference = label
                continue
            targets = torch.cat([torch.full_like(y[:1], label), torch.full_like(y[:1], reference)])
            second_losses = torch.stack([loss(pair[1:], targets[1:]).reshape(()) for pair in pairs])
            pair_losses = torch.stack([loss(pair, targets).reshape(()) for pair in pairs])
            best = (single - second_losses).abs().argsort(descending=True)[:4]
            weights[i] = ((pair_losses - second_losses) / (single - pair_losses))[best].median().cpu()
    if not torch.isfinite(weights).all() or (weights < 0).any():
        return None
    for outputs in _outputs(out):
        single = torch.stack([loss(_rows(outputs, i), y[i : i + 1]).reshape(()) for i in range(len(y))])
        by_sample = _by_sample(labels, weights, y)
        mean = (torch.where(by_sample > 0, single, 0.0) * by_sample).sum() / by_sample.sum()
        if not close(loss(outputs, y), mean):
            return None
    return labels, weights


def _by_sample(labels: Tensor, weights: Tensor, y: Tensor) -> Tensor:
    """(B,) weight of each sample: that of its label, or the sum of those of its labels; labels: sorted."""
    labels, weights = labels.to(y.device), weights.to(y.device)
    of_labels = weights[torch.searchsorted(labels, y).clamp(max=len(labels) - 1)]
    return of_labels.flatten(1).sum(1) if y.dim() > 1 else of_labels


def close(value: Tensor, expected: Tensor) -> bool:
    """Whether two tensors differ by rounding alone."""
    scale = float(expected.nan_to_num().abs().max()) if expected.numel() else 0.0
    return bool(
        torch.allclose(value.float(), expected.float(), rtol=1e-3, atol=1e-4 * scale + 1e-7, equal_nan=True)
    )


def _finite(out: Any) -> bool:
    """Whether all tensors of a model's output are finite."""
    return all(bool(torch.isfinite(t).all()) for t in tensors_of(out))


def tensors_of(out: Any) -> list[Tensor]:
    """All tensors of a model's output."""
    if isinstance(out, Tensor):
        return [out]
    return [tensor for part in (parts_of(out) or {}).values() for tensor in tensors_of(part)]


def _flat(value: Any) -> Tensor:
    """Values of a batch as (B,), or as one number."""
    value = torch.as_tensor(value)
    return value.flatten(1).float().mean(1) if value.dim() > 1 else value


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A value, or a list, tuple, mapping or dataclass of values, with its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    parts = parts_of(value)
    if parts is None:
        return value
    return rebuilt(value, {key: mapped(change, part) for key, part in parts.items()})


def parts_of(value: Any) -> Mapping[Any, Any] | None:
    """The values that a list, tuple, mapping, dataclass or namespace holds, by key; None if it is something else."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return vars(value) if type(value) is SimpleNamespace else None


def rebuilt(like: Any, parts: Mapping[Any, Any]) -> Any:
    """A value of the same kind as another one, from other parts."""
    kind = type(like)
    if isinstance(like, list | tuple):
        return kind(*parts.values()) if hasattr(kind, "_fields") else kind(parts.values())
    if is_dataclass(like) or kind is SimpleNamespace:
        return kind(**parts)
    return kind(parts)


def _rows(out: Any, i: int) -> Any:
    """The output of one sample."""
    return mapped(lambda t: t[i : i + 1], out)


def _of_each(function: Function, kind: Kind, out: Any, y: Tensor) -> Function:
    """A function of a batch as one with a value per sample. out, y: to try it on."""

    def of_batch(out: Any, y: Tensor) -> Tensor:
        return _flat(function(out, y))

    def stacked(out: Any, y: Tensor) -> Tensor:
        return vmap(lambda o, t: function(o.unsqueeze(0), t.unsqueeze(0)))(out, y)

    def one_by_one(out: Any, y: Tensor) -> Tensor:
        return torch.stack([torch.as_tensor(function(_rows(out, i), y[i : i + 1])) for i in range(len(y))])

    if kind == "each":
        return of_batch
    try:
        stacked(out, y)
    except Exception:
        return one_by_one
    return stacked


# -- words ---------------------------------------------------------------------------------------------------------


def _undefined(what: str, out: Any, y: Tensor) -> str:
    if isinstance(out, Tensor) and out.shape != y.shape and out.squeeze().shape == y.squeeze().shape:
        return (
            f"{what}: outputs {shape(out)} and targets {shape(y)} are broadcast against each other, every sample's "
            "against every other's: give both one shape, for example with nn.Flatten(0) as the model's last layer."
        )
    return (
        f"{what}: its value of a batch is neither the mean, nor a weighted mean, nor the sum of its values of single "
        "samples, so that the loss of a client or a test set is undefined: return one value per sample that depends on "
        "that sample alone."
    )


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
