"""Sources of datasets: read from tiny mirrors, and refused when they are not right."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
import tarfile
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mirrors import (
    CLASSES,
    RECODED,
    RECODED_FILE,
    expect,
    images,
    jpeg,
    left,
    make_cifar,
    make_mnist,
    make_recoded,
    make_tar,
)
from PIL import Image

from fedlib.data import datasets, sources
from fedlib.data.sources import base, reading
from fedlib.errors import DataError

MIRROR = os.environ.get("FEDLIB_MIRROR")


def test_recoded_cifar_is_ordered_and_says_what_it_is(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recoded(mirror, monkeypatch, RECODED)
    datasets.prepare("cifar10", mirror, root)
    loaded = datasets.load("cifar10", root)
    assert loaded.y_train.tolist() == [0, 0, 1]
    assert np.round(loaded.x_train.mean(axis=(1, 2, 3))).tolist() == [50, 30, 20]
    assert np.round(loaded.x_test.mean(axis=(1, 2, 3))).tolist() == [40, 10]
    assert loaded.x_train.shape == (3, 3, 4, 4)
    assert (
        "JPEG re-encoding (quality about 75" in json.loads((root / "cifar10.json").read_text())["provenance"]
    )


def test_published_cifar_in_the_order_of_its_batches(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = make_cifar(mirror, monkeypatch)
    datasets.prepare("cifar10", mirror, root)
    loaded = datasets.load("cifar10", root)
    assert loaded.x_train.reshape(10, -1).tolist() == np.concatenate(x[:5]).tolist()
    assert loaded.x_test.reshape(2, -1).tolist() == x[5].tolist()
    assert loaded.classes == CLASSES
    assert loaded.provenance.startswith("CIFAR-10: the published archive")


def test_cifar100_has_fine_labels_and_their_names(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "cifar-100-python.tar.gz"

    def part(n: int) -> bytes:
        fine = {b"data": images(n, 12), b"fine_labels": list(range(n)), b"coarse_labels": [0] * n}
        return pickle.dumps(fine, protocol=4)

    meta = pickle.dumps(
        {b"fine_label_names": [b"apple", b"bear", b"clock"], b"coarse_label_names": [b"thing"]}
    )
    members = [
        (f"cifar-100-python/{name}", content) for name, content in (("train", part(3)), ("test", part(2)))
    ]
    checksum = make_tar(mirror / "cifar100" / file, [*members, ("cifar-100-python/meta", meta)])
    expect(monkeypatch, "cifar100", {file: checksum}, n_train=3, n_test=2, shape=(3, 2, 2), classes=3)
    datasets.prepare("cifar100", mirror, root)
    loaded = datasets.load("cifar100", root)
    assert (loaded.y_train.tolist(), loaded.classes) == ([0, 1, 2], ("apple", "bear", "clock"))


def test_mini_imagenet_is_cropped_and_split(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect(monkeypatch, "mini_imagenet", {}, n_train=6, n_test=4, shape=(3, 8, 8), classes=2)
    for label, name in enumerate(("n01", "n02")):
        (mirror / "mini_imagenet" / name).mkdir(parents=True)
        for i in range(5):
            wide = Image.new("RGB", (40, 20), (100 * label + 10 * i, 0, 0))
            wide.save(mirror / "mini_imagenet" / name / f"{i}.png")
    datasets.prepare("mini_imagenet", mirror, root)
    loaded = datasets.load("mini_imagenet", root)
    assert loaded.x_train.shape == (6, 3, 8, 8)
    assert loaded.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    values = np.concatenate([loaded.x_train[:, 0, 0, 0], loaded.x_test[:, 0, 0, 0]])
    assert sorted(values.tolist()) == [0, 10, 20, 30, 40, 100, 110, 120, 130, 140]
    (mirror / "mini_imagenet" / "n02" / "4.png").unlink()
    with pytest.raises(DataError, match="n02 holds 4 images, expected 5"):
        datasets.prepare("mini_imagenet", mirror, root / "again")


def refused(name: str, mirror: Path, root: Path, match: str) -> None:
    """Preparing fails in one sentence, and leaves nothing."""
    with pytest.raises(DataError, match=match) as error:
        datasets.prepare(name, mirror, root)
    assert "\n" not in str(error.value)
    assert left(root) == []
    assert datasets.status(name, root)["state"] == "missing"


@pytest.mark.bad_input
def test_truncated_file(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    path = mirror / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-12])
    refused("mnist", mirror, root, "mnist/t10k-images-idx3-ubyte.gz is truncated")


@pytest.mark.bad_input
def test_file_that_is_no_gzip(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    (mirror / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"<html>not found</html>")
    refused("mnist", mirror, root, "mnist/train-labels-idx1-ubyte.gz is truncated or not a gzip")


@pytest.mark.bad_input
def test_file_that_unpacks_to_far_more_than_the_dataset(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch)
    (mirror / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(64_000_000)))
    tracemalloc.start()
    refused("mnist", mirror, root, "mnist/train-images-idx3-ubyte.gz holds more than the 124 bytes of mnist")
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


@pytest.mark.bad_input
def test_swapped_files(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    one, two = (mirror / "mnist" / f"{part}-images-idx3-ubyte.gz" for part in ("train", "t10k"))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    files = sources.KINDS["mnist"].files
    expected, found = files["train-images-idx3-ubyte"], files["t10k-images-idx3-ubyte"]
    refused(
        "mnist", mirror, root, f"mnist/train-images-idx3-ubyte.gz: expected SHA-256 {expected}, found {found}"
    )


@pytest.mark.bad_input
def test_missing_file(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    (mirror / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    refused("mnist", mirror, root, "mnist/t10k-labels-idx1-ubyte.gz is missing")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x_train": images(12, 3, 4)}, "train-images-idx3-ubyte.gz holds more than the 124 bytes of mnist"),
        (
            {"x_train": images(12, 3, 2)},
            "train-images-idx3-ubyte.gz is not an IDX file of 3-dimensional bytes",
        ),
        ({"y_test": np.arange(5, dtype=np.uint8)}, "t10k-labels-idx1-ubyte.gz holds more than the 12 bytes"),
        ({"y_test": np.array([0, 1, 2, 10], np.uint8)}, "a test label is 10, expected 0 to 9"),
        ({"x_test": images(4, 9)}, "t10k-images-idx3-ubyte.gz is not an IDX file of 3-dimensional bytes"),
    ],
)
def test_wrong_shapes_and_labels(
    arrays: dict[str, np.ndarray], match: str, mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch, **arrays)
    refused("mnist", mirror, root, match)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["../outside.jpg", "/outside.jpg", "train/../../outside.jpg"])
def test_archive_that_reaches_outside(
    name: str, mirror: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recoded(mirror, monkeypatch, [*RECODED, (name, jpeg(1))])
    refused("cifar10", mirror, root, "points outside the archive")
    assert not list(tmp_path.rglob("outside.jpg"))


@pytest.mark.bad_input
def test_archive_with_a_link(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tarfile.TarInfo("train/truck/0001.jpg")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    make_recoded(mirror, monkeypatch, [*RECODED, ("", link)])
    refused("cifar10", mirror, root, "points outside the archive")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("member", "match"),
    [
        (("train/dragon/0000.jpg", jpeg(1)), "unexpected member 'train/dragon/0000.jpg'"),
        (("train/truck/notes.txt", b""), "unexpected member 'train/truck/notes.txt'"),
        (("train/truck/0001.jpg", jpeg(1)[:200]), "train/truck/0001.jpg is not a readable image"),
        (
            ("train/truck/0001.jpg", jpeg(1, side=5)),
            r"train/truck/0001.jpg is \(5, 5, 3\), expected \(4, 4\) RGB",
        ),
        (
            ("train/truck/0001.jpg", jpeg(1)),
            r"train images are uint8 \(4, 3, 4, 4\), expected uint8 \(3, 3, 4, 4\)",
        ),
    ],
)
def test_wrong_members_of_the_recoded_archive(
    member: tuple[str, bytes], match: str, mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recoded(mirror, monkeypatch, [*RECODED, member])
    refused("cifar10", mirror, root, match)


@pytest.mark.bad_input
def test_archive_with_another_checksum_is_not_opened(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recoded(mirror, monkeypatch, RECODED)
    path = mirror / "cifar10" / RECODED_FILE
    path.write_bytes(path.read_bytes() + b"\0")
    monkeypatch.setattr(tarfile, "open", lambda *_, **__: pytest.fail("opened before its checksum matched"))
    refused("cifar10", mirror, root, "cifar10/cifar10-jpeg.tar.gz: expected SHA-256")


@pytest.mark.bad_input
def test_file_that_is_no_archive(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_recoded(mirror, monkeypatch, RECODED)
    (mirror / "cifar10" / RECODED_FILE).write_bytes(b"not an archive")
    monkeypatch.setattr(
        reading, "check_digest", lambda *_: None
    )  # the checksum says so before anything else does
    refused("cifar10", mirror, root, "cifar10-jpeg.tar.gz is truncated or not a tar.gz archive")


class Bomb:
    """Unpickled naively, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.bad_input
def test_a_pickle_that_would_run_code_runs_nothing(
    mirror: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = pickle.dumps({b"data": Bomb(tmp_path / "boom"), b"labels": [0, 1]})
    make_cifar(mirror, monkeypatch, data_batch_2=bomb)
    refused("cifar10", mirror, root, "data_batch_2 is not a pickle of plain arrays .* is not allowed")
    assert not (tmp_path / "boom").exists()


@pytest.mark.bad_input
def test_batches_without_labels(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar(mirror, monkeypatch, test_batch=pickle.dumps({b"data": images(2, 48)}, protocol=4))
    refused("cifar10", mirror, root, "does not hold the batches of CIFAR-10")


def test_no_source(mirror: Path, root: Path) -> None:
    refused("mnist", mirror, root, "is not a folder; correct FEDLIB_MIRROR")
    refused("mini_imagenet", None, root, "never downloaded; .* data/README.md")
    with pytest.raises(DataError, match="unknown dataset 'svhn'; there are cifar10, cifar100"):
        datasets.prepare("svhn", root=root)


@pytest.mark.bad_input
def test_a_download_that_fails_or_is_cut_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(folder: Path, **_: object) -> None:
        (folder / "half.gz").write_bytes(b"half")
        raise OSError("connection reset")

    utils = SimpleNamespace(download_url=None)
    datasets = SimpleNamespace(FashionMNIST=cut, MNIST=None, utils=utils)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(datasets=datasets))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    monkeypatch.setitem(sys.modules, "torchvision.datasets.utils", utils)
    refused(
        "fmnist",
        None,
        root,
        r"fmnist could not be downloaded \(connection reset\); try again, or name a mirror",
    )


def test_what_the_mirror_lacks_is_downloaded(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch)
    (mirror / "mnist").rename(mirror / "elsewhere")
    monkeypatch.setattr(base, "download", lambda *_: mirror / "elsewhere")
    datasets.prepare("mnist", mirror, root)
    assert json.loads((root / "mnist.json").read_text())["source"] == "torchvision"


@pytest.mark.dataset("mnist", "fmnist")
@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("mnist", "856aee0b39b53686da7fb1802de0ac8d3ced819dd5008d01330e5b44eb452741"),
        ("fmnist", "0b613e0af80f16d2a42908f889f10e5bdd727ab22b71ccbf663156658a44d2ab"),
    ],
)
def test_the_published_files(name: str, digest: str, root: Path) -> None:
    datasets.prepare(name, Path(MIRROR), root)
    loaded = datasets.load(name, root)
    assert loaded.digest == digest
    assert (len(np.unique(loaded.y_train)), loaded.x_train.shape) == (10, (60_000, 1, 28, 28))
