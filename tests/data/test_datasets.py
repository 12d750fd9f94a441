"""Prepared datasets: whole or not at all, checked when loaded, scaled as the papers do."""

from __future__ import annotations

import ast
import errno
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from mirrors import left, make_mnist

from fedlib.data import datasets, sources
from fedlib.digests import import_statements
from fedlib.errors import DataError
from fedlib.files import sealed


def test_idx_files_of_a_mirror(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = make_mnist(mirror, monkeypatch)
    assert datasets.prepare("mnist", mirror, root) == root / "mnist.npz"
    assert left(root) == ["mnist.json", "mnist.npz"]
    loaded = datasets.load("mnist", root)
    assert loaded.x_train.tolist() == contents["train-images-idx3-ubyte"][:, None].tolist()
    assert loaded.y_test.tolist() == [0, 1, 2, 3]
    assert (loaded.x_test.shape, loaded.x_test.dtype, loaded.y_train.dtype) == (
        (4, 1, 3, 3),
        np.uint8,
        np.int64,
    )
    assert loaded.n_classes == 10
    record = json.loads((root / "mnist.json").read_text())
    assert (record["source"], record["shapes"]["x_train"]) == ("mirror", [12, 1, 3, 3])
    assert (
        record["digest"] == loaded.digest == datasets.digest("mnist", root) == datasets.verify("mnist", root)
    )
    assert datasets.status("mnist", root) == {
        "name": "mnist",
        "state": "prepared",
        "provenance": "MNIST: the published files, verified by SHA-256",
        "digest": loaded.digest,
    }


def test_the_environment_names_the_mirror(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    monkeypatch.setenv("FEDLIB_MIRROR", str(mirror))
    datasets.prepare("mnist", root=root)
    assert len(datasets.load("mnist", root).y_train) == 12


def test_same_contents_give_the_same_bytes(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch)
    one, two = (datasets.prepare("mnist", mirror, tmp_path / name).read_bytes() for name in ("one", "two"))
    assert one == two


def test_digits_need_no_preparing_and_never_change(root: Path) -> None:
    loaded = datasets.load("digits", root)
    assert loaded.digest == datasets.digest("digits", root) == datasets.verify("digits", root)
    assert loaded.digest == "c93a38bb3a03fd1c88c6b63558bce72fb068762f385e05083e0a3612b6e56469"
    assert (loaded.x_train.min(), loaded.x_train.max()) == (0, 255)
    assert np.abs(np.bincount(loaded.y_train) / 4 - np.bincount(loaded.y_test)).max() < 1


@pytest.mark.parametrize("failing", ["savez", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_interrupted_preparation(
    failing: str, error: BaseException, mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(np if failing == "savez" else os, failing, fail)
        with pytest.raises(DataError if isinstance(error, OSError) else KeyboardInterrupt) as raised:
            datasets.prepare("mnist", mirror, root)
    if isinstance(error, OSError):
        assert str(raised.value).startswith("mnist cannot be prepared: No space left on device")
    assert left(root) == []
    datasets.prepare("mnist", mirror, root)
    assert datasets.verify("mnist", root)


def test_arrays_without_their_record_are_not_prepared(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mnist(mirror, monkeypatch)
    datasets.prepare("mnist", mirror, root)
    (root / "mnist.json").unlink()
    (root / "mnist.npz").write_bytes(b"half")
    with pytest.raises(DataError, match="mnist is not prepared; run: fedlib data prepare mnist"):
        datasets.load("mnist", root)
    datasets.prepare("mnist", mirror, root)
    assert len(datasets.load("mnist", root).y_train) == 12


def test_folder_that_cannot_be_written(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="mnist cannot be prepared: .* check that folder and free space"):
        datasets.prepare("mnist", mirror, tmp_path / "file" / "datasets")


def damage(root: Path, how: str) -> None:
    npz, record = root / "mnist.npz", root / "mnist.json"
    content = npz.read_bytes()
    match how:
        case "truncated":
            npz.write_bytes(content[: len(content) // 2])
        case "deleted":
            npz.unlink()
        case "swapped":  # Fashion-MNIST's file has the same sizes
            npz.write_bytes((root / "fmnist.npz").read_bytes())
        case "no record":
            record.write_text("{")
        case "old record":
            record.write_text(json.dumps(sealed({"name": "mnist"})))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("truncated", "mnist.npz is truncated"),
        ("deleted", "mnist.npz is missing beside its record"),
        ("swapped", "mnist.npz differs from what mnist.json records"),
        ("no record", "mnist.json is not a record"),
        ("old record", "mnist.json lacks 'classes'"),
    ],
)
def test_damaged_files_are_named_and_never_replaced(
    how: str, match: str, mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate(("mnist", "fmnist")):
        make_mnist(mirror, monkeypatch, name, seed=10 * seed)
        datasets.prepare(name, mirror, root)
    damage(root, how)
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    for act in (datasets.load, datasets.verify, datasets.digest):
        with pytest.raises(
            DataError, match=f"{match}.*; delete mnist.npz and mnist.json, then run: fedlib data"
        ):
            act("mnist", root)
    with pytest.raises(DataError, match=match):
        datasets.prepare("mnist", mirror, root)
    assert datasets.status("mnist", root)["state"] == "damaged"
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before


@pytest.mark.bad_input
def test_a_changed_byte_is_noticed_on_loading(
    mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = make_mnist(mirror, monkeypatch)
    content = datasets.prepare("mnist", mirror, root).read_bytes()
    place = content.index(contents["train-images-idx3-ubyte"].tobytes())
    (root / "mnist.npz").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(DataError, match="mnist.npz cannot be read"):
        datasets.load("mnist", root)


def test_verify_hashes_what_is_there(mirror: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mnist(mirror, monkeypatch)
    datasets.prepare("mnist", mirror, root)
    record = json.loads((root / "mnist.json").read_text())
    (root / "mnist.json").write_text(json.dumps({**record, "digest": "0" * 64}))
    with pytest.raises(DataError, match=r"mnist\.json is not a record of a prepared dataset, or was changed"):
        datasets.load("mnist", root)
    (root / "mnist.json").write_text(json.dumps(sealed({**record, "digest": "0" * 64})))
    with pytest.raises(DataError, match=f"expected digest {'0' * 64}, found {record['digest']}"):
        datasets.verify("mnist", root)


def dataset(name: str, pixels: np.ndarray) -> datasets.Dataset:
    y = np.zeros(len(pixels), np.int64)
    return datasets.Dataset(name, pixels, y, pixels, y, ("a",), "", "")


@pytest.mark.parametrize(
    ("name", "scaling", "expected"),
    [
        ("mnist", None, [0.0, 1.0]),
        ("fmnist", "half", [-1.0, 1.0]),
        ("fmnist", "mnist", [-0.1307 / 0.3081, (1 - 0.1307) / 0.3081]),
        ("cifar10", None, [-1.0, 1.0]),
    ],
)
def test_scalings(name: str, scaling: str | None, expected: list[float]) -> None:
    pixels = np.zeros((2, 3 if name == "cifar10" else 1, 1, 1), np.uint8)
    pixels[1] = 255
    made = datasets.tensors(dataset(name, pixels), scaling)
    assert made.x_train[:, 0, 0, 0].tolist() == pytest.approx(expected)
    assert (str(made.x_test.dtype), str(made.y_test.dtype)) == ("torch.float32", "torch.int64")


def test_scaling_by_channel() -> None:
    white = np.full((1, 3, 2, 2), 255, np.uint8)
    made = datasets.tensors(dataset("cifar10", white), "cifar").x_train
    expected = [(1 - 0.4914) / 0.247, (1 - 0.4822) / 0.243, (1 - 0.4465) / 0.261]
    assert made[0, :, 1, 1].tolist() == pytest.approx(expected)
    with pytest.raises(DataError, match="scaling: 'cifar' is for images of 3 channels, but mnist has 1"):
        datasets.tensors(dataset("mnist", white[:, :1]), "cifar")


@pytest.mark.parametrize("module", [datasets, sources])
def test_slow_libraries_are_imported_only_where_needed(module: ModuleType) -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {name for _, names in import_statements(tree.body) for name in names}
    assert not {name.split(".")[0] for name in imported} & {"torchvision", "sklearn"}
