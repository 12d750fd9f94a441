"""What a store brings back: the numbers of the same program, never those of another."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedlib
from fedlib.library import simulate as module

RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=160)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(160, 6))).astype(np.float32)
OWNER = np.arange(160) // 20
SCALE = 1.0


class Net(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.out, self.scale = nn.Linear(6, 4), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x) * self.scale * SCALE


def simulate(store: Path | None, **options) -> fedlib.Result:
    given = {"x": X, "y": Y, "clients": OWNER, "test": (X, Y), "model": Net, "methods": {"Random": "uniform"}}
    given |= {"m": 3, "T": 3, "local": fedlib.Local(lr=0.2, batch=8, epochs=1), "threads": 1}
    return fedlib.simulate(**given | options, store=store, tell=lambda text: None)


def rounds(result: fedlib.Result) -> pd.DataFrame:
    return result.table.drop(columns=["seconds", "server_seconds", "method"])


def smoothed(share: float) -> Callable:
    return lambda out, y: nn.functional.cross_entropy(out, y, label_smoothing=share)


OTHERS = {  # kind -> two programs
    "setting of a loss": [{"loss": nn.CrossEntropyLoss(label_smoothing=s)} for s in (0.0, 0.5)],
    "closure of a loss": [{"loss": smoothed(s)} for s in (0.0, 0.5)],
    "attribute of the module": [{"model": lambda: Net(1.0)}, {"model": lambda: Net(2.0)}],
    "attribute set by a closure": [{"model": lambda s=s: Net(s)} for s in (1.0, 2.0)],
}


@pytest.mark.outside("stores and other programs")
@pytest.mark.parametrize("kind", OTHERS)
def test_another_program_is_trained(kind: str, tmp_path: Path) -> None:
    for options in OTHERS[kind]:
        pd.testing.assert_frame_equal(
            rounds(simulate(tmp_path, **options)), rounds(simulate(None, **options)), check_exact=True
        )


def test_a_global_that_changed_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(tmp_path)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    pd.testing.assert_frame_equal(rounds(simulate(tmp_path)), rounds(simulate(None)), check_exact=True)


SCRIPT = """\
# {comment}
from dataclasses import dataclass
import numpy as np
import fedlib
from fedlib.samplers import Sampler, Selection
from torch import nn

@dataclass
class Last(Sampler):
    skip: int = 0
    def select(self, round):  # {comment}
        return Selection(np.arange(self.skip, self.skip + self.fed.m)){after}

def net():
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4))

rng = np.random.default_rng(0)
y = rng.integers(4, size=80)
x = (rng.normal(size=(4, 6))[y] + rng.normal(size=(80, 6))).astype(np.float32)
result = fedlib.simulate(x, y, np.arange(80) // 10, model=net, methods={{"R": "uniform", "L": Last}}, m=2, T=2,
    local=fedlib.Local(lr=0.1, batch=8, epochs=1), seeds={seeds}, store="runs", threads=1, tell=lambda text: None)
print("{comment}")
"""


def test_an_edited_script_trains_what_is_new_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained: list[int] = []
    whole = module.train_group

    def count(runs, *more, **options):
        trained.append(len(runs))
        return whole(runs, *more, **options)

    monkeypatch.setattr(module, "train_group", count)

    def run(comment: str, seeds: int, after: str = "") -> int:
        trained.clear()
        (tmp_path / "script.py").write_text(SCRIPT.format(comment=comment, seeds=seeds, after=after))
        runpy.run_path("script.py", run_name="__main__")
        return sum(trained)

    assert run("one", 1) == 2
    assert run("another", 1) == 0, "a comment and a print"
    assert run("another", 2) == 2, "the new seed"
    assert run("another", 2, after="  # why") == 0
    text = SCRIPT.replace("self.skip + self.fed.m", "self.skip + 1 * self.fed.m")
    monkeypatch.setitem(globals(), "SCRIPT", text)
    assert run("another", 2) == 2, "the changed sampler, for two seeds"


def test_what_cannot_be_identified_needs_a_key(tmp_path: Path) -> None:
    lock = threading.Lock()

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with lock:
            return nn.functional.cross_entropy(out, y)

    simulate(None, loss=loss)
    with pytest.raises(
        fedlib.ConfigError, match=r"loss\.lock is a lock, which cannot be identified; pass key="
    ):
        simulate(tmp_path, loss=loss)
    assert not list(tmp_path.iterdir())
    first = simulate(tmp_path, loss=loss, key="a")
    assert len(list(tmp_path.glob("*/*/run.json"))) == 1
    simulate(tmp_path, loss=loss, key="a")
    assert len(list(tmp_path.glob("*/*/run.json"))) == 1
    again = simulate(tmp_path, loss=loss, key="b")
    assert len(list(tmp_path.glob("*/*/run.json"))) == 2
    pd.testing.assert_frame_equal(rounds(first), rounds(again))
