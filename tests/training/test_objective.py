"""How a program's loss and metric treat a batch is found out beforehand; what is measured is right for each kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.errors import ConfigError
from fedlib.training.objective import Objective, tried_on

GENERATOR = torch.Generator().manual_seed(1)
K, n, L = 5, 40, 3
LOGITS = torch.randn(n, K, generator=GENERATOR)
LABELS = torch.randint(K, (n,), generator=GENERATOR)
TOKENS = torch.randint(K, (n, L), generator=GENERATOR)
SCORES = torch.randn(n, K, L, generator=GENERATOR)
REAL = torch.randn(n, generator=GENERATOR)
WEIGHTS = torch.tensor([20.0, 1.0, 0.5, 3.0, 0.1])


def some_ignored() -> Tensor:
    y = LABELS.clone()
    y[::3] = -100
    return y


class Focal(nn.Module):
    """A mean of its own, with weights of labels that no attribute names."""

    def __init__(self, by_label: Tensor) -> None:
        super().__init__()
        self.by_label = by_label

    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        p = out.softmax(1)[torch.arange(len(y)), y]
        w = self.by_label[y]
        return (-w * (1 - p) ** 2 * p.log()).sum() / w.sum()


LOSSES: dict[str, tuple[Callable, Tensor, Tensor, str]] = {
    "cross-entropy": (nn.CrossEntropyLoss(), LOGITS, LABELS, "mean"),
    "of each": (nn.CrossEntropyLoss(reduction="none"), LOGITS, LABELS, "each"),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), LOGITS, LABELS, "mean"),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), LOGITS, LABELS, "sum"),
    "weighted": (nn.CrossEntropyLoss(weight=WEIGHTS), LOGITS, LABELS, "weighted"),
    "weighted, smoothed": (nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.2), LOGITS, LABELS, "weighted"),
    "weighted by a function": (
        lambda o, y: F.cross_entropy(o, y, weight=WEIGHTS),
        LOGITS,
        LABELS,
        "weighted",
    ),
    "weighted partial": (partial(F.cross_entropy, weight=WEIGHTS), LOGITS, LABELS, "weighted"),
    "focal": (Focal(WEIGHTS), LOGITS, LABELS, "weighted"),
    "ignored": (nn.CrossEntropyLoss(), LOGITS, some_ignored(), "weighted"),
    "a class ignored": (nn.CrossEntropyLoss(ignore_index=2), LOGITS, LABELS, "weighted"),
    "weighted and ignored": (nn.CrossEntropyLoss(WEIGHTS, ignore_index=2), LOGITS, LABELS, "weighted"),
    "tokens": (nn.CrossEntropyLoss(), SCORES, TOKENS, "mean"),
    "tokens ignored": (nn.CrossEntropyLoss(ignore_index=0), SCORES, TOKENS, "weighted"),
    "tokens of each": (nn.CrossEntropyLoss(reduction="none"), SCORES, TOKENS, "each"),
    "tokens weighted": (lambda o, y: F.cross_entropy(o, y, WEIGHTS), SCORES, TOKENS, "weighted"),
    "squares": (nn.MSELoss(), REAL + 1, REAL, "mean"),
    "probabilities": (nn.BCELoss(), REAL.sigmoid(), (REAL > 0).float(), "mean"),
}


@pytest.mark.outside("losses that weigh or sum")
@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_over_samples_is_the_loss_of_them_together(name: str) -> None:
    loss, out, y, kind = LOSSES[name]
    rows = tried_on(y)
    objective = Objective(loss, None, out[rows], y[rows])
    assert objective.kind == kind
    for part in (slice(None), slice(0, 7), slice(5, 30)):
        o, t = out[part], y[part]
        each, weight, batch = objective.losses(o, t), objective.weight(t), loss(o, t)
        wanted = batch / len(t) if kind == "sum" else batch.mean()
        weight = torch.ones(len(t)) if weight is None else weight
        assert float((each * weight).sum() / weight.sum()) == pytest.approx(float(wanted), rel=1e-4)
        assert float(objective.mean_loss(objective.mean(o, t), t)) == pytest.approx(float(wanted), rel=1e-5)


def test_equal_outputs_hide_no_weights() -> None:
    """A fresh model may return zeros for everybody: all losses are the same, whatever their weights."""
    objective = Objective(nn.CrossEntropyLoss(weight=WEIGHTS), None, torch.zeros(n, K), LABELS)
    assert objective.kind == "weighted"


def test_a_label_that_is_rare_is_tried() -> None:
    y = torch.zeros(10_000, dtype=torch.long)
    y[4_321] = 1
    assert 4_321 in tried_on(y).tolist()
    tokens = torch.zeros(10_000, 4, dtype=torch.long)
    tokens[1_234, 3] = 7
    assert 1_234 in tried_on(tokens).tolist()


def contrastive(out: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(out, dim=1)
    same = (y[:, None] == y[None]).float()
    return (-(z @ z.T / 0.5).log_softmax(1) * same).sum(1).mean()


UNDEFINED: dict[str, tuple[Callable, Tensor, Tensor, str]] = {
    "contrastive": (contrastive, LOGITS, LABELS, "neither the mean, nor a weighted mean, nor the sum"),
    "contrastive of each": (
        lambda o, y: (o @ o.T).logsumexp(1),
        LOGITS,
        LABELS,
        "return one value per sample that depends on that sample alone",
    ),
    "root": (lambda o, y: ((o - y) ** 2).mean().sqrt(), REAL + 1, REAL, "neither the mean"),
    "(B, 1) against (B,)": (nn.MSELoss(), REAL[:, None] + 1, REAL, "broadcast against each other"),
    "(B,) against (B, 1)": (nn.MSELoss(), REAL + 1, REAL[:, None], "broadcast against each other"),
    "(B, 1) against (B,), each": (nn.L1Loss(reduction="none"), REAL[:, None], REAL, "broadcast"),
    "against the batch's mean": (lambda o, y: (o - y.mean()) ** 2, REAL, REAL, "on that sample alone"),
}


@pytest.mark.outside("losses that mix samples")
@pytest.mark.bad_input
@pytest.mark.parametrize("name", UNDEFINED)
def test_a_loss_without_a_value_for_one_sample_is_refused(name: str) -> None:
    loss, out, y, words = UNDEFINED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match=words) as raised:
            Objective(loss, None, out, y)
    assert "\n" not in str(raised.value)


METRICS: dict[str, tuple[Callable, str]] = {
    "mean": (nn.L1Loss(), "mean"),
    "each": (lambda o, y: (o - y).abs(), "each"),
    "root": (lambda o, y: ((o - y) ** 2).mean().sqrt(), "together"),
    "share explained": (lambda o, y: 1 - ((o - y) ** 2).sum() / ((y - y.mean()) ** 2).sum(), "together"),
    "a number": (lambda o, y: float((o - y).abs().max()), "together"),
    "sum": (nn.L1Loss(reduction="sum"), "together"),
}


@pytest.mark.outside("metrics of all samples")
@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_that_of_all_samples_together(name: str) -> None:
    metric, kind = METRICS[name]
    out = REAL + torch.randn(n, generator=torch.Generator().manual_seed(2))
    objective = Objective(nn.MSELoss(), metric, out, REAL)
    assert objective.metric_kind == kind
    wanted = torch.as_tensor(metric(out, REAL)).mean()
    assert float(objective.scores(out, REAL).mean()) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.bad_input
def test_a_metric_of_each_that_is_broadcast_is_refused() -> None:
    with pytest.raises(ConfigError, match="metric: outputs .* broadcast"):
        Objective(lambda o, y: (o[:, 0] - y) ** 2, lambda o, y: (o - y).abs(), REAL[:, None] + 1, REAL)
