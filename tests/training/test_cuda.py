"""Everything on a GPU equals what a CPU gives, to rounding. Skipped where there is no GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedlib.streams import stream
from fedlib.training.executors import make_executor
from fedlib.training.models import build
from fedlib.training.modules import ModuleExecutor
from tests.reference import Reference, relative_error
from tests.test_pins import choices, names, pinned
from tests.training import test_contract, test_modules

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


@pytest.mark.parametrize(("model", "work"), [*itertools.product(test_contract.SHAPES, test_contract.WORK)])
def test_our_models_train_as_the_reference(model: str, work: str):
    data = test_contract.dataset(test_contract.SHAPES[model])
    reference = Reference(build(model, test_contract.SHAPES[model], 10), data)
    executor = make_executor(model, data, "cuda", threads=2)
    normalised = any(isinstance(layer, nn.BatchNorm2d) for layer in reference.net)
    test_contract.check(
        executor,
        reference,
        test_contract.WORK[work],
        shifted=work == "momentum",
        tolerance=2e-4 if normalised else 5e-5,
    )


@pytest.mark.parametrize("model", test_contract.SHAPES)
def test_gradients_and_evaluation(model: str):
    data = test_contract.dataset(test_contract.SHAPES[model])
    reference = Reference(build(model, test_contract.SHAPES[model], 10), data)
    test_contract.check_measures(make_executor(model, data, "cuda", threads=2), reference)


@pytest.mark.parametrize("model", ["fedcor_mlp", "cs_cnn", "hics_fmnist_cnn"])
def test_moon(model: str):
    data = test_contract.dataset(test_contract.SHAPES[model])
    reference = Reference(build(model, test_contract.SHAPES[model], 10), data)
    local = test_contract.Local(lr=0.05, batch=8, epochs=2, mu=1.0)
    test_contract.check(make_executor(model, data, "cuda", threads=2), reference, local, moon=True)


@pytest.mark.parametrize(("kind", "work"), [*itertools.product(test_modules.KINDS, test_modules.WORK)])
def test_own_modules_train_as_on_a_cpu(kind: str, work: str):
    make, shape, loss = test_modules.KINDS[kind]
    data, local = test_modules.data_of(shape, real=loss is not None), test_modules.WORK[work]
    here, there = (ModuleExecutor(make, data, torch.device(at), 2, loss) for at in ("cpu", "cuda"))
    start = here.initial(stream(3, "init"))
    assert torch.equal(there.initial(stream(3, "init")).cpu(), start)
    a, b = (e.train(test_modules.jobs_of(), start[None].to(e.device), local, local.lr) for e in (here, there))
    assert relative_error(b.updates, a.updates.double()) < (1e-3 if local.optimizer == "adam" else 2e-4)
    assert b.losses == pytest.approx(a.losses, rel=1e-4)
    rows = [np.array([4, 1, 1, 7])]
    for mine, true in zip(
        there.evaluate(start[None].cuda(), "train", rows),
        here.evaluate(start[None], "train", rows),
        strict=True,
    ):
        assert mine[0] == pytest.approx(true[0], rel=1e-4, nan_ok=True)  # no metric, no score


def test_own_modules_that_stack_are_stacked():
    make, shape, _ = test_modules.KINDS["group norm"]
    assert ModuleExecutor(make, test_modules.data_of(shape), torch.device("cuda"), 1).stacked


@pytest.mark.parametrize("sampler", names())
def test_every_sampler_chooses_as_on_a_cpu(sampler: str):
    assert choices(sampler, "cuda") == pinned()["choices"][sampler]


def test_convolutions_keep_full_precision():
    """TF32 would keep 10 bits of the mantissa."""
    make_executor("mlp", test_contract.dataset((1, 8, 8)), "cuda")
    x, w = torch.rand(4, 64, 16, 16), torch.rand(64, 64, 3, 3)
    there, here = F.conv2d(x.cuda(), w.cuda()), F.conv2d(x.double(), w.double())
    assert relative_error(there, here) < 1e-5
