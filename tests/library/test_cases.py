"""Small programs that once printed wrong numbers, or a traceback, print right numbers or one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from blobs import OWNER, RNG, X, Y, losses, simulate
from torch import nn

import fedlib
from fedlib.samplers import Round, Sampler, Selection


class Masked(nn.Module):
    """Attention under a mask of infinities, which is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(10, 8), nn.Linear(8, 10)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(self.embedding(x), src_mask=self.mask)[:, -1])


@pytest.mark.outside("buffers with infinities")
def test_a_mask_of_infinities_does_not_diverge() -> None:
    x = RNG.integers(10, size=(160, 6))
    result = simulate(
        x=x, y=x[:, -1], test=(x, x[:, -1]), model=Masked, T=4, local=fedlib.Local(lr=0.1, batch=8, epochs=2)
    )
    assert not result.table["diverged"].any()
    assert losses(result)[-1] < losses(result)[0]


@pytest.mark.outside("losses that weigh or sum")
def test_a_weighted_loss_is_that_of_the_test_set() -> None:
    loss, first = nn.CrossEntropyLoss(weight=torch.tensor([20.0, 1.0, 1.0, 1.0])), nn.Linear(6, 4)
    wanted = float(loss(first(torch.from_numpy(X)), torch.from_numpy(Y)).detach())

    def make() -> nn.Module:
        net = nn.Linear(6, 4)
        net.load_state_dict(first.state_dict())
        return net

    assert losses(simulate(loss=loss, model=make, T=1))[0] == pytest.approx(wanted, rel=1e-5)


# -- what the program set for torch, and what it hands over ----------------------------------------------------


@pytest.mark.outside("settings of torch and forms of data")
def test_a_default_of_double_precision_changes_nothing() -> None:
    wanted = losses(simulate())
    torch.set_default_dtype(torch.float64)
    try:
        assert losses(simulate()) == wanted
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.outside("settings of torch and forms of data")
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_mode_without_gradients_changes_nothing(mode: Any) -> None:
    wanted = losses(simulate())
    with mode():
        assert losses(simulate(x=torch.from_numpy(X))) == wanted


@pytest.mark.outside("settings of torch and forms of data")
def test_lazy_layers_take_their_shapes_from_the_data() -> None:
    lazy = simulate(model=lambda: nn.Sequential(nn.LazyLinear(8), nn.LayerNorm(8), nn.LazyLinear(4)), T=8)
    assert losses(lazy)[-1] < losses(lazy)[0]


@pytest.mark.outside("settings of torch and forms of data")
def test_shipped_models_take_whole_numbers_and_labels_that_only_the_test_has() -> None:
    whole = np.round(X * 4).astype(int)
    options = {"model": "mlp", "T": 2}
    result = simulate(x=whole, test=(whole, Y), **options)
    assert losses(result) == losses(
        simulate(x=whole.astype(np.float32), test=(whole.astype(np.float32), Y), **options)
    )
    for model in ("mlp", "logistic"):
        known = Y < 3
        unseen = simulate(x=X[known], y=Y[known], clients=OWNER[known], model=model, T=2)
        assert np.isfinite(losses(unseen)).all()
    smooth = simulate(model="mlp", loss=nn.CrossEntropyLoss(label_smoothing=0.1), T=8)
    assert losses(smooth)[-1] < losses(smooth)[0]


@pytest.mark.outside("settings of torch and forms of data")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"y": Y.astype(float), "test": (X, Y.astype(float)), "model": "mlp"},
            "give classes as whole numbers",
        ),
        ({"model": lambda: nn.Linear(6, 3), "y": np.minimum(Y, 2)}, "3 scores, but y has labels up to 3"),
        ({"model": lambda: nn.Linear(6, 4).requires_grad_(False)}, "no parameter requires a gradient"),
        ({"model": lambda: nn.LazyConv2d(4, 3)}, "its forward pass fails on inputs"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message) as raised:
        simulate(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.outside("settings of torch and forms of data")
def test_a_program_may_come_from_a_pipe(tmp_path: Path) -> None:
    program = (
        "from dataclasses import dataclass\nimport numpy as np\nimport fedlib\nfrom torch import nn\n"
        "from fedlib.samplers import Sampler, Selection\n@dataclass\nclass First(Sampler):\n"
        "    def select(self, round):\n        return Selection(np.arange(self.fed.m))\n"
        "x, y = np.ones((40, 3), np.float32), np.arange(40) % 2\n"
        "for _ in range(2):\n"
        "    r = fedlib.simulate(x, y, np.arange(40) // 10, model=lambda: nn.Linear(3, 2), methods={'a': First}, m=2,\n"
        "        T=2, local=fedlib.Local(lr=0.1, batch=5, epochs=1), store='runs', threads=1, tell=lambda text: None)\n"
        "print(len(r.table))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-"],
        input=program,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "3\n", done.stderr
    assert len(list(tmp_path.glob("runs/*/*/run.json"))) == 1


# -- methods that fail, and summaries --------------------------------------------------------------------------


class Fails(Sampler):
    def select(self, round: Round) -> Selection:
        if round.t == 2:
            raise RuntimeError("no more")
        return Selection(np.arange(self.fed.m))


@pytest.mark.outside("methods that fail")
def test_a_method_that_fails_leaves_the_others_results() -> None:
    with pytest.warns(UserWarning, match="method 'mine': .*round 2, select: RuntimeError: no more"):
        result = simulate(methods={"Random": "uniform", "mine": Fails})
    assert set(result.table["method"]) == {"Random"}
    assert list(result.failures) == [("mine", 0)]
    pd.testing.assert_series_equal(result.table["test_loss"], simulate().table["test_loss"])


def test_a_summary_ranks_by_rounds_and_then_by_the_end() -> None:
    """A method that is never slower and never worse comes first; one that never arrives comes last."""
    curves = {
        "slow": [0.1, 0.2, 0.3, 0.5, 0.6],
        "fast": [0.1, 0.5, 0.6, 0.7, 0.8],
        "never": [0.1, 0.1, 0.2, 0.3, 0.4],
        "fast, better": [0.1, 0.5, 0.7, 0.8, 0.9],
    }
    blank = {"parameters_down": 1, "parameters_up": 1, "scalars_up": 0, "client_steps": 1, "diverged": False}
    rows = [
        {"experiment": "", "setting": "", "method": method, "seed": seed, "round": t, "test_accuracy": value}
        | blank
        for method, curve in curves.items()
        for seed in (0, 1)
        for t, value in enumerate(curve)
    ]
    table = pd.DataFrame(rows).assign(samples_evaluated=0, test_loss=lambda t: 1 - t["test_accuracy"])
    summary = fedlib.Result(table).summary(target=0.5)
    assert summary["rank"].to_dict() == {"fast, better": 1, "fast": 2, "slow": 3, "never": 4}
    assert list(summary.index) == ["fast, better", "fast", "slow", "never"]
    assert summary["reached"].to_dict() == {"fast, better": 2, "fast": 2, "slow": 2, "never": 0}
    by_loss = fedlib.Result(table).summary(target=0.5, column="test_loss")
    assert by_loss["rank"].to_dict() == summary["rank"].to_dict()
    high = fedlib.Result(table).summary(target=0.5, column="test_loss", better="high")
    assert high["rank"].idxmin() == "never"
