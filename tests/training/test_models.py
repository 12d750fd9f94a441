"""Models: sizes as in the specifications, initialisation, the flat layout."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from fedlib.errors import ConfigError
from fedlib.streams import stream
from fedlib.training.chain import Chain, initialise, masked_batch_norm, torch_default
from fedlib.training.layout import Layout
from fedlib.training.models import build
from fedlib.training.models.resnet18_head import features

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


@pytest.mark.parametrize(
    ("model", "shape", "classes", "n_trainable"),
    [
        ("logistic", MNIST, 10, 7_850),
        ("mlp", MNIST, 10, 39_760),
        ("fedcor_mlp", MNIST, 10, 52_500),
        ("cs_cnn", CIFAR, 10, 122_570),
        ("cs_cnn", MNIST, 10, 93_322),
        ("cs_cnn", CIFAR, 100, 128_420),
        ("fedcor_cnn", CIFAR, 10, 122_570),
        # 1 x 32 x 25 + 32, PReLU 1, BN 64; 32 x 32 x 25 + 32, PReLU 1, BN 64; 512 x 10 + 10
        ("hics_fmnist_cnn", MNIST, 10, 832 + 65 + 25_632 + 65 + 5_130),
        ("hics_cifar10_cnn", CIFAR, 10, 122_570),
        # the convolutions' 56 320, then 1024 x 256 + 256 and 256 x 10 + 10
        ("hics_cifar_cnn", CIFAR, 10, 56_320 + 262_400 + 2_570),
        ("resnet18_head", (512,), 64, 513 * 64),
    ],
)
def test_sizes(model, shape, classes, n_trainable):
    net = build(model, shape, classes)
    layout = Layout.of(net)
    assert layout.n_trainable == n_trainable
    assert layout.d - n_trainable == (128 if model == "hics_fmnist_cnn" else 0)  # running means and variances
    assert layout.output_bias == slice(n_trainable - classes, n_trainable)
    features = (n_trainable if len(net) == 2 else 0) or net[-1].in_features * classes
    assert layout.output_weight.stop == layout.output_bias.start
    assert layout.output_weight.stop - layout.output_weight.start == min(
        features, net[-1].in_features * classes
    )


def test_dropout_knows_what_it_masks():
    assert build("cs_cnn", CIFAR, 10).dropouts == [(0.2, (32, 15, 15)), (0.2, (64, 6, 6)), (0.2, (64, 4, 4))]
    assert build("fedcor_mlp", MNIST, 10).dropouts == [(0.5, (64,)), (0.5, (30,))]
    assert build("fedcor_cnn", CIFAR, 10).dropouts == []


@pytest.mark.parametrize("model", ["cs_cnn", "fedcor_cnn", "hics_cifar_cnn", "hics_fmnist_cnn"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (64,)])
def test_images_too_small_for_convolutions(model, shape):
    with pytest.raises(ConfigError, match=f"model '{model}' cannot take inputs of shape .*use mlp"):
        build(model, shape, 10)


def test_initialisation_is_torchs_own():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        theirs = nn.Conv2d(3, 5, 3)
    mine = nn.Conv2d(3, 5, 3)
    torch_default(mine, torch.Generator().manual_seed(3))
    assert torch.allclose(mine.weight, theirs.weight)
    assert torch.allclose(mine.bias, theirs.bias)


@pytest.mark.parametrize("model", ["mlp", "cs_cnn", "hics_fmnist_cnn", "hics_cifar_cnn", "resnet18_head"])
def test_initialisation_is_seeded_and_leaves_the_global_generator_alone(model):
    before = torch.random.get_rng_state()
    net = build(model, CIFAR, 10)
    first, again, other = (initialise(net, stream(seed, "init")) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_initial_values_of_the_special_cases():
    assert not initialise(build("logistic", MNIST, 10), stream(0, "init")).any()
    head = build("resnet18_head", (512,), 10)
    w = Layout.of(head).views(initialise(head, stream(0, "init")))
    assert float(w["1.weight"].std()) == pytest.approx(0.01, rel=0.05)
    assert not w["1.bias"].any()
    hics = build("hics_fmnist_cnn", MNIST, 10)
    w = Layout.of(hics).views(initialise(hics, stream(0, "init")))
    bound = math.sqrt(2) * math.sqrt(6 / (25 + 32 * 25))  # Xavier with ReLU's gain
    assert 0.95 * bound < float(w["0.weight"].abs().max()) <= bound
    assert (w["1.weight"] == 0.25).all()  # PReLU
    assert (w["2.weight"] == 1).all()
    assert (w["2.running_var"] == 1).all()
    assert not w["2.running_mean"].any()


def test_views_of_a_stack_are_views():
    layout = Layout.of(build("mlp", MNIST, 10))
    flat = torch.arange(2.0 * layout.d).view(2, -1)
    views = layout.views(flat)
    assert [tuple(v.shape) for v in views.values()] == [(2, 50, 784), (2, 50), (2, 10, 50), (2, 10)]
    assert torch.equal(torch.cat([v.flatten(1) for v in views.values()], 1), flat)
    views["3.bias"].zero_()
    assert not flat[:, layout.output_bias].any()


def test_dropout_masks_come_from_outside():
    net = build("fedcor_mlp", (4,), 3).train()
    for p in net.parameters():
        nn.init.constant_(p, 0.1)
    x = torch.ones(2, 4)
    assert torch.equal(net(x)[0], net.eval()(x)[0])  # none given, none drawn
    masks = [torch.zeros(2, 64), torch.full((2, 30), 2.0)]
    logits, z = net.train()(x, masks)
    # the first layer gives 0; the second 2 x its bias 0.1; the output 30 x 0.1 x 0.2 + 0.1
    assert torch.allclose(z, torch.full((2, 30), 0.2))
    assert torch.allclose(logits, torch.full((2, 3), 0.7))


def test_batch_normalisation_sees_the_kept_samples_alone():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(6, 3, 4, 4)), dtype=torch.float64)
    keep = torch.tensor([1.0, 1, 0, 1, 0, 1], dtype=torch.float64)
    theirs = nn.BatchNorm2d(3).double().train()
    mine = copy.deepcopy(theirs)
    y = theirs(x[keep > 0])
    assert torch.allclose(masked_batch_norm(mine, x, keep)[keep > 0], y)
    assert torch.allclose(mine.running_mean, theirs.running_mean)
    assert torch.allclose(mine.running_var, theirs.running_var)


def test_resnet_needs_its_weights(tmp_path):
    x = torch.zeros(1, 3, 32, 32)
    with pytest.raises(ConfigError, match="place torchvision's resnet18-f37072fd.pth at"):
        features(x, tmp_path / "resnet18-f37072fd.pth")
    (tmp_path / "resnet18-f37072fd.pth").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="is not torchvision's"):
        features(x, tmp_path / "resnet18-f37072fd.pth")


@pytest.mark.bad_input
def test_an_unknown_model_says_which_there_are():
    for name, message in (
        ("logistics", "did you mean logistic"),
        ("transformer", "there are .*logistic, mlp"),
    ):
        with pytest.raises(ConfigError, match=f"unknown model '{name}'; {message}"):
            build(name, MNIST, 10)


def test_a_block_in_a_row_of_layers_is_drawn_from_the_runs_stream():
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.GroupNorm(2, 4))
    net = Chain(block, nn.Linear(4, 3), fill=torch_default)
    first, again, other = (initialise(net, stream(seed, "init")) for seed in (0, 0, 1))
    inner = Layout.of(net).slices["0.0.weight"]
    assert torch.equal(first, again)
    assert not torch.equal(first[inner], other[inner])
