"""Small data for tests of the round loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.training.executors import make_executor
from tests.simulation.lockstep import CLASSES, FEATURES, N


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(0)
    y_train, y_test = rng.integers(0, CLASSES, 400), rng.integers(0, CLASSES, 100)
    centres = rng.normal(size=(CLASSES, FEATURES))

    def x(y):
        return torch.tensor(centres[y] + rng.normal(size=(len(y), FEATURES)), dtype=torch.float32)

    return Tensors(
        x_train=x(y_train), y_train=torch.tensor(y_train), x_test=x(y_test), y_test=torch.tensor(y_test)
    )


@pytest.fixture(scope="module")
def executor(tensors):
    return make_executor("logistic", tensors)


@pytest.fixture(scope="module")
def partition(tensors):
    order = np.random.default_rng(1).permutation(400)
    train = np.split(order, np.cumsum([10, 20, 30, 40, 60, 70, 80]))
    labels = np.stack([np.bincount(tensors.y_train.numpy()[k], minlength=CLASSES) for k in train])
    test = np.array_split(np.arange(100), N)
    return Partition(train=train, holdout=None, test=test, labels=labels)
