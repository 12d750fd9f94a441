"""Every argument of `fedlib.simulate`, given values of every wrong type: a result, or one sentence."""

from __future__ import annotations

import datetime
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedlib

Y = np.arange(80) % 4
X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
GOOD = {
    "x": X,
    "y": Y,
    "clients": np.arange(80) // 10,
    "test": (X, Y),
    "model": lambda: nn.Linear(6, 4),
    "methods": {"Random": "uniform"},
    "m": 2,
    "T": 1,
    "local": fedlib.Local(lr=0.1, batch=5, epochs=1),
    "threads": 1,
    "tell": lambda text: None,
}


class NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Attributes(dict):
    __getattr__ = dict.__getitem__


def wrong() -> dict[str, Any]:
    """Values of all kinds, made anew: some are right for an argument."""
    numbers = {
        "flag": True,
        "five": 5,
        "minus one": -1,
        "zero": 0,
        "half": 0.5,
        "one and a half": 1.5,
        "nan": np.nan,
        "infinite": np.inf,
        "huge": 10**30,
        "complex": 1j,
        "whole of numpy": np.int64(3),
        "decimal of numpy": np.float32(0.5),
        "flag of numpy": np.bool_(True),
        "date": datetime.date(2020, 1, 1),
        "date of numpy": np.datetime64("2020-01-01"),
    }
    texts = {"text": "x", "empty text": "", "bytes": b"x", "slice": slice(3), "range": range(3), "none": None}
    holders = {
        "empty list": [],
        "list": [1],
        "ragged list": [[1], [1, 2]],
        "nested list": [[[[]]]],
        "empty tuple": (),
        "tuple": (1, 2),
        "set": {1},
        "empty mapping": {},
        "mapping": {"a": 1},
        "mapping of numbers": {1: 2},
        "mapping read as attributes": Attributes(a=1),
        "array": np.arange(3),
        "array of one number": np.array(3),
        "array of objects": np.array([object(), None]),
        "array of texts": np.array(["a", "b"]),
        "masked array": np.ma.MaskedArray([1, 2], [True, False]),
        "tensor": torch.zeros(3),
    }
    others = {
        "object": object(),
        "object without a text": NoText(),
        "function": lambda *a: None,
        "class": int,
        "class of errors": ValueError,
        "python's module": np,
        "torch's module": nn.Linear(6, 4),
        "generator": (i for i in range(3)),
        "local": fedlib.Local(lr=0.1, batch=5, epochs=1),
        "scheme": fedlib.IID(),
    }
    return numbers | texts | holders | others


ARGUMENTS = list(inspect.signature(fedlib.simulate).parameters)


@pytest.mark.outside("arguments of every wrong type")
@pytest.mark.bad_input
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_every_wrong_value_is_one_sentence(
    argument: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, value in wrong().items():
        try:
            result = fedlib.simulate(**GOOD | {argument: value})
        except (fedlib.ConfigError, fedlib.SamplerError) as error:
            assert str(error).count("\n") == 0, kind  # noqa: PT017
            assert str(error).endswith((".", "?")), (kind, str(error))  # noqa: PT017
        except Exception as error:
            pytest.fail(f"{argument} = {kind}: {type(error).__name__}: {error}")
        else:
            assert len(result.table), kind
