"""Tiny mirrors of datasets, made for tests, whose checksums the library is told to expect."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlib.data import sources
from fedlib.data.sources.cifar import ORIGINAL
from fedlib.data.sources.cifar import RECODED as RECODED_FILE

CLASSES = ("airplane", "truck")


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def expect(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str], **changes: object) -> None:
    """Make `name` a tiny dataset with these checksums."""
    monkeypatch.setitem(sources.KINDS, name, dataclasses.replace(sources.KINDS[name], files=files, **changes))


def make_mnist(
    mirror: Path, monkeypatch: pytest.MonkeyPatch, name: str = "mnist", seed: int = 0, **arrays: np.ndarray
) -> dict[str, np.ndarray]:
    """A mirror's MNIST with 12 + 4 images of 3 x 3; `arrays` replaces some of its four files."""
    contents = {
        "train-images-idx3-ubyte": arrays.get("x_train", images(12, 3, 3, seed=seed)),
        "train-labels-idx1-ubyte": arrays.get("y_train", np.arange(12, dtype=np.uint8) % 10),
        "t10k-images-idx3-ubyte": arrays.get("x_test", images(4, 3, 3, seed=seed + 1)),
        "t10k-labels-idx1-ubyte": arrays.get("y_test", np.arange(4, dtype=np.uint8)),
    }
    (mirror / name).mkdir(parents=True, exist_ok=True)
    for file, array in contents.items():
        (mirror / name / f"{file}.gz").write_bytes(gzip.compress(idx(array)))
    files = {file: hashlib.sha256(idx(array)).hexdigest() for file, array in contents.items()}
    expect(monkeypatch, name, files, n_train=12, n_test=4, shape=(1, 3, 3))
    return contents


def make_tar(path: Path, members: list[tuple[str, bytes | tarfile.TarInfo]]) -> str:
    """A tar.gz of (name, content) in this order; returns its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def jpeg(value: int, side: int = 4) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (value, value, value)).save(buffer, "JPEG")
    return buffer.getvalue()


def make_cifar10(
    mirror: Path, monkeypatch: pytest.MonkeyPatch, file: str, members: list[tuple[str, bytes]], n_train: int
) -> None:
    """A mirror's CIFAR-10 in one file, with 2 test images of 4 x 4."""
    files = {file: make_tar(mirror / "cifar10" / file, members)}
    expect(monkeypatch, "cifar10", files, n_train=n_train, n_test=2, shape=(3, 4, 4), classes=CLASSES)


def make_recoded(mirror: Path, monkeypatch: pytest.MonkeyPatch, members: list[tuple[str, bytes]]) -> None:
    make_cifar10(mirror, monkeypatch, RECODED_FILE, members, n_train=3)


RECODED = [
    ("test/truck/0000.jpg", jpeg(10)),
    ("train/truck/0000.jpg", jpeg(20)),
    ("train/airplane/0010.jpg", jpeg(30)),
    ("test/airplane/0000.jpg", jpeg(40)),
    ("train/airplane/0002.jpg", jpeg(50)),
]


def make_cifar(mirror: Path, monkeypatch: pytest.MonkeyPatch, **replaced: bytes) -> list[np.ndarray]:
    """A mirror's CIFAR-10 of five batches of 2 images, in disorder inside the archive; `replaced` by member name."""
    x = [images(2, 3 * 4 * 4, seed=k) for k in range(6)]
    names = ["data_batch_3", "data_batch_1", "test_batch", "data_batch_2", "data_batch_5", "data_batch_4"]
    order = {"data_batch_1": 0, "data_batch_2": 1, "data_batch_3": 2, "data_batch_4": 3, "data_batch_5": 4}
    members = []
    for name in names:
        batch = {b"data": x[order.get(name, 5)], b"labels": [0, 1]}
        members.append((f"cifar-10-batches-py/{name}", replaced.get(name, pickle.dumps(batch, protocol=4))))
    meta = pickle.dumps({b"label_names": [b"airplane", b"truck"]})
    members.append(("cifar-10-batches-py/batches.meta", meta))
    make_cifar10(mirror, monkeypatch, ORIGINAL, members, n_train=10)
    return x


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir()) if root.exists() else []
