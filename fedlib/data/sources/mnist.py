"""MNIST and Fashion-MNIST: four gzipped IDX files each."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from functools import partial
from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Found, Kind, register
from fedlib.data.sources.digits import DIGITS
from fedlib.data.sources.reading import check_digest
from fedlib.errors import DataError

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


def download(published: str, scratch: Path) -> Path:
    """Fetch the files of a dataset of torchvision, `published`."""
    from torchvision import datasets  # slow to import, and only needed here

    getattr(datasets, published)(scratch, download=True)
    return scratch / published / "raw"


def kind(title: str, published: str, classes: tuple[str, ...], files: dict[str, str]) -> Kind:
    """28 x 28 grey images, 60,000 + 10,000."""
    fetch = partial(download, published)
    return Kind(60_000, 10_000, (1, 28, 28), classes, "unit", files, title, fetch)


@register("fmnist", kind("Fashion-MNIST", "FashionMNIST", FASHION, FASHION_FILES))
@register("mnist", kind("MNIST", "MNIST", DIGITS, MNIST_FILES))
def read_idx(name: str, kind: Kind, folder: Path) -> Found:
    """MNIST or Fashion-MNIST from four gzipped IDX files."""

    def content(file: str, *shape: int) -> np.ndarray:
        where, ndim = f"{name}/{file}.gz", len(shape)
        header = np.array([0x800 + ndim, *shape], ">u4").tobytes()
        expected = len(header) + math.prod(shape)
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
        check_digest(where, hashlib.sha256(raw).hexdigest(), kind.files[file])
        if not raw.startswith(header) or len(raw) != expected:
            raise DataError(f"{where} is not an IDX file of {ndim}-dimensional bytes; fetch it again.")
        return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape)

    assert isinstance(kind.classes, tuple)  # the files hold no names
    arrays = {}
    for part, prefix, n in (("train", "train", kind.n_train), ("test", "t10k", kind.n_test)):
        arrays[f"x_{part}"] = content(f"{prefix}-images-idx3-ubyte", n, *kind.shape[1:])[:, None]
        arrays[f"y_{part}"] = content(f"{prefix}-labels-idx1-ubyte", n).astype(np.int64)
    return Found(arrays, kind.classes, f"{kind.title}: the published files, verified by SHA-256")
