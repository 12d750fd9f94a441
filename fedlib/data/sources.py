"""Sources of datasets: what each must look like, and how it is read from a mirror folder or a download.

Contents are checked by SHA-256 before they are unpacked or unpickled. `data/README.md` describes a mirror's layout.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import pickle
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedlib.errors import DataError

Arrays = dict[str, np.ndarray]  # x_train, x_test: uint8 (n, C, H, W); y_train, y_test: int64 (n,)

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Kind:
    """What a dataset must look like.

    n_train, n_test: numbers of samples. shape: (C, H, W).
    classes: names in label order, or only their number where the data contains the names.
    scaling: the scheme for runs that name none. files: SHA-256 by file name.
    """

    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...] | int
    scaling: str
    files: dict[str, str]

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


# The checksums of IDX files are those of the uncompressed contents, because gzip wrappers differ between mirrors.
MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
ORIGINAL, RECODED = "cifar-10-python.tar.gz", "cifar10-jpeg.tar.gz"
CIFAR10_FILES = {
    ORIGINAL: "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    RECODED: "0adeec936d3e44b8fec1f1aa3ffc539c4e9b6202462c63a8fb441b59b9d7bb07",
}
CIFAR100_FILES = {
    "cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
}

KINDS = {
    "digits": Kind(1437, 360, (1, 8, 8), DIGITS, "unit", {}),
    "mnist": Kind(60_000, 10_000, (1, 28, 28), DIGITS, "unit", MNIST_FILES),
    "fmnist": Kind(60_000, 10_000, (1, 28, 28), FASHION, "unit", FASHION_FILES),
    "cifar10": Kind(50_000, 10_000, (3, 32, 32), CIFAR10, "half", CIFAR10_FILES),
    "cifar100": Kind(50_000, 10_000, (3, 32, 32), 100, "half", CIFAR100_FILES),
    "mini_imagenet": Kind(50_000, 10_000, (3, 84, 84), 100, "imagenet", {}),
}


@dataclass(frozen=True)
class Found:
    """Arrays, class names in label order, and a sentence that states the provenance."""

    arrays: Arrays
    classes: tuple[str, ...]
    provenance: str


def find(name: str, mirror: Path | None, scratch: Path) -> tuple[Found, str]:
    """A dataset from the first source that has it, and the name of that source.

    mirror: folder with one folder per dataset; None takes the environment variable FEDLIB_MIRROR.
    scratch: an empty folder for downloads.

    Raises:
        DataError: no source has it, or the source's data is wrong.
    """
    if name == "digits":
        return read_digits(), "scikit-learn"
    kind, read = KINDS[name], READERS[name]
    named = mirror or os.environ.get("FEDLIB_MIRROR")
    if named and not Path(named).is_dir():
        raise DataError(
            f"the mirror {str(named)!r} is not a folder; correct FEDLIB_MIRROR, or unset it to download."
        )
    if named and (folder := Path(named) / name).is_dir():
        return read(name, kind, folder), "mirror"
    return read(name, kind, download(name, scratch)), "torchvision"


def download(name: str, scratch: Path) -> Path:
    """Download the published files through torchvision; returns a folder with the layout of a mirror's."""
    if name not in ("mnist", "fmnist", "cifar10", "cifar100"):
        raise DataError(
            f"{name} is never downloaded; lay its files out as data/README.md says, name the mirror in FEDLIB_MIRROR, "
            f"and run: fedlib data prepare {name}."
        )
    from torchvision import datasets  # slow to import, and only needed here
    from torchvision.datasets.utils import download_url

    try:
        if name in ("mnist", "fmnist"):
            published = {"mnist": datasets.MNIST, "fmnist": datasets.FashionMNIST}[name]
            published(scratch, download=True)
            return scratch / published.__name__ / "raw"
        published = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
        download_url(published.url, scratch, published.filename, published.tgz_md5)
        return scratch
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name} could not be downloaded ({reason}); try again, or name a mirror in FEDLIB_MIRROR (layout: "
            f"data/README.md), and run: fedlib data prepare {name}."
        ) from None


def read_digits() -> Found:
    """scikit-learn's digits, 8 x 8, grey levels 0 to 16 stretched to 0 to 255, with a fixed stratified split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = np.round(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    train, test = map(np.sort, train_test_split(np.arange(len(y)), test_size=360, stratify=y, random_state=0))
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return Found(
        arrays,
        DIGITS,
        "scikit-learn's digits: 8x8 images, 1,437 for training and 360 for testing (stratified)",
    )


def read_idx(name: str, kind: Kind, folder: Path) -> Found:
    """MNIST or Fashion-MNIST from four gzipped IDX files."""

    def content(file: str, *shape: int) -> np.ndarray:
        where, ndim = f"{name}/{file}.gz", len(shape)
        header = 4 + 4 * ndim
        expected = header + math.prod(shape)
        try:
            with gzip.open(folder / f"{file}.gz") as handle:
                raw = handle.read(expected + 1)  # the content of a gzip file may have any size
        except FileNotFoundError:
            raise DataError(
                f"{where} is missing; add it to the mirror, or remove the folder to download."
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise DataError(f"{where} is truncated or not a gzip file; fetch it again.") from None
        if len(raw) > expected:
            raise DataError(f"{where} holds more than the {expected:,} bytes of {name}; fetch it again.")
        _same(where, hashlib.sha256(raw).hexdigest(), kind.files[file])
        if raw[:header] != np.array([0x800 + ndim, *shape], ">u4").tobytes() or len(raw) != expected:
            raise DataError(f"{where} is not an IDX file of {ndim}-dimensional bytes; fetch it again.")
        return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)

    arrays = {}
    for part, prefix, n in (("train", "train", kind.n_train), ("test", "t10k", kind.n_test)):
        arrays[f"x_{part}"] = content(f"{prefix}-images-idx3-ubyte", n, *kind.shape[1:])[:, None]
        arrays[f"y_{part}"] = content(f"{prefix}-labels-idx1-ubyte", n).astype(np.int64)
    title = {"mnist": "MNIST", "fmnist": "Fashion-MNIST"}[name]
    return Found(arrays, kind.classes, f"{title}: the published files, verified by SHA-256")


def read_cifar10(name: str, kind: Kind, folder: Path) -> Found:
    """CIFAR-10 from the published archive, or from its JPEG re-encoding."""
    if (folder / ORIGINAL).exists() or not (folder / RECODED).exists():
        return read_cifar(name, kind, folder)
    return read_jpeg_archive(name, kind, folder / RECODED)


def read_cifar(name: str, kind: Kind, folder: Path) -> Found:
    """CIFAR-10 or CIFAR-100 (fine labels) from the published Python archive."""
    title, file, batches, test, meta, labels, names = {
        "cifar10": (
            "CIFAR-10",
            ORIGINAL,
            "data_batch_",
            "test_batch",
            "batches.meta",
            b"labels",
            b"label_names",
        ),
        "cifar100": (
            "CIFAR-100",
            *CIFAR100_FILES,
            "train",
            "test",
            "meta",
            b"fine_labels",
            b"fine_label_names",
        ),
    }[name]
    found: dict[str, Any] = {}
    for path, content in _members(f"{name}/{file}", folder / file, kind.files[file]):
        if path.name.startswith(batches) or path.name in (test, meta):
            found[path.name] = unpickle(f"{name}/{file}: {path.name}", content)
    arrays = {}
    try:
        for part, chosen in (("train", sorted(k for k in found if k.startswith(batches))), ("test", [test])):
            x = np.concatenate([np.asarray(found[k][b"data"], np.uint8) for k in chosen])
            arrays[f"x_{part}"] = x.reshape(-1, *kind.shape)
            arrays[f"y_{part}"] = np.concatenate([np.asarray(found[k][labels], np.int64) for k in chosen])
        classes = tuple(value.decode() for value in found[meta][names])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{name}/{file} does not hold the batches of {title}; fetch it again.") from None
    return Found(arrays, classes, f"{title}: the published archive, verified by SHA-256")


def read_jpeg_archive(name: str, kind: Kind, path: Path) -> Found:
    """`train|test/<class>/<number>.jpg` in a tar.gz, in the order of (class, number)."""
    where = f"{name}/{path.name}"
    images: dict[str, dict[tuple[int, int], np.ndarray]] = {"train": {}, "test": {}}
    for member, content in _members(where, path, kind.files[path.name]):
        named = re.fullmatch(r"(train|test)/([^/]+)/(\d+)\.jpg", str(member))
        if not named or named[2] not in kind.classes:
            raise DataError(f"{where}: unexpected member {str(member)!r}; fetch it again.")
        image = decode(f"{where}: {member}", content)
        if image.shape != (*kind.shape[1:], kind.shape[0]):
            raise DataError(
                f"{where}: {member} is {image.shape}, expected {kind.shape[1:]} RGB; fetch it again."
            )
        images[named[1]][kind.classes.index(named[2]), int(named[3])] = image
    arrays = {}
    for part, by_place in images.items():
        order = sorted(by_place)
        stacked = (
            np.stack([by_place.pop(place) for place in order])
            if order
            else np.empty((0, *kind.shape), np.uint8)
        )
        arrays[f"x_{part}"] = np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))
        arrays[f"y_{part}"] = np.array([label for label, _ in order], np.int64)
    return Found(
        arrays,
        kind.classes,
        "CIFAR-10 as a JPEG re-encoding (quality about 75, 4:2:0), not the original bits; the order across classes "
        "is lost",
    )


def read_mini_imagenet(name: str, kind: Kind, folder: Path) -> Found:
    """One folder of 600 images per class: 500 for training, 100 for testing, drawn with seed 42 (the papers name none).

    Each image is resized to a shorter side of 84 and cropped to its centre, as HiCS-FL's code does.
    """
    names = sorted(child.name for child in folder.iterdir() if child.is_dir())
    if len(names) != kind.n_classes:
        raise DataError(
            f"{name}/ holds {len(names)} class folders, expected {kind.n_classes}; see data/README.md."
        )
    n_train, n_test = kind.n_train // kind.n_classes, kind.n_test // kind.n_classes
    rng = np.random.default_rng(42)
    arrays = {}
    for part, n in (("train", n_train), ("test", n_test)):
        arrays[f"x_{part}"] = np.empty((kind.n_classes, n, *kind.shape), np.uint8)
        arrays[f"y_{part}"] = np.repeat(np.arange(kind.n_classes, dtype=np.int64), n)
    for label, class_name in enumerate(names):
        files = sorted(
            p for p in (folder / class_name).iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png")
        )
        if len(files) != n_train + n_test:
            expected = n_train + n_test
            raise DataError(
                f"{name}/{class_name} holds {len(files)} images, expected {expected}; see data/README.md."
            )
        shuffled = rng.permutation(len(files))
        for part, chosen in (("train", shuffled[:n_train]), ("test", shuffled[n_train:])):
            for i, j in enumerate(np.sort(chosen)):
                image = decode(f"{name}/{class_name}/{files[j].name}", files[j].read_bytes(), kind.shape[1])
                arrays[f"x_{part}"][label, i] = image.transpose(2, 0, 1)
    for part in ("train", "test"):
        arrays[f"x_{part}"] = arrays[f"x_{part}"].reshape(-1, *kind.shape)
    return Found(
        arrays,
        tuple(names),
        "Mini-ImageNet from the mirror's images (84x84, 500 + 100 a class), not verified",
    )


def decode(where: str, content: bytes, side: int | None = None) -> np.ndarray:
    """An image as uint8 (H, W, 3). side: resize the shorter side to this length and crop the centre."""
    from PIL import Image  # here, so that listing prepared datasets does not import it

    try:
        image = Image.open(io.BytesIO(content)).convert("RGB")
        if side:
            scale = side / min(image.size)
            image = image.resize(
                [max(side, round(length * scale)) for length in image.size], Image.Resampling.BILINEAR
            )
            left, top = ((length - side) // 2 for length in image.size)
            image = image.crop((left, top, left + side, top + side))
        return np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise DataError(f"{where} is not a readable image; fetch it again.") from None


class _Plain(pickle.Unpickler):
    """Unpickles containers, strings, numbers and numpy arrays. Anything else is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def unpickle(where: str, content: bytes) -> Any:
    """The plain data in a pickle. Nothing in the pickle is executed."""
    try:
        return _Plain(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise DataError(f"{where} is not a pickle of plain arrays ({error}); fetch it again.") from None


def _same(where: str, found: str, expected: str) -> None:
    if found != expected:
        raise DataError(f"{where}: expected SHA-256 {expected}, found {found}; fetch it again.")


def _members(where: str, path: Path, expected: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files of a tar.gz, one after another, once its checksum has matched."""
    try:
        with path.open("rb") as handle:
            _same(where, hashlib.file_digest(handle, "sha256").hexdigest(), expected)
            handle.seek(0)
            with tarfile.open(fileobj=handle, mode="r|gz") as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    if (
                        inside.is_absolute()
                        or ".." in inside.parts
                        or not (member.isfile() or member.isdir())
                    ):
                        raise DataError(
                            f"{where}: member {member.name!r} points outside the archive; do not use it."
                        )
                    if member.isfile():
                        yield inside, archive.extractfile(member).read()
    except FileNotFoundError:
        raise DataError(
            f"{where} is missing; add it to the mirror, or remove the folder to download."
        ) from None
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{where} is truncated or not a tar.gz archive; fetch it again.") from None


READERS = {
    "mnist": read_idx,
    "fmnist": read_idx,
    "cifar10": read_cifar10,
    "cifar100": read_cifar,
    "mini_imagenet": read_mini_imagenet,
}
