"""The contract of datasets: what each must look like, where its files are, and how they are read.

A dataset is one function in a file of this folder, with what it must look like::

    @register("stripes", Kind(400, 100, (1, 12, 12), ("flat", "rising", "upright", "falling"), "unit"))
    def read(name: str, kind: Kind, folder: Path) -> Found: ...
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from fedlib.errors import DataError
from fedlib.registry import Registry

Arrays = dict[
    str, np.ndarray
]  # x_train, x_test: (n, ...); y_train, y_test (and owner_train, owner_test): int64 (n,)
SILENCE = 60.0  # seconds without an answer, after which a download has failed
REGISTRY = Registry("dataset", "fedlib.data.sources", group="fedlib.datasets")

# Mean and standard deviation per channel of pixels / 255.
SCALINGS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "unit": ((0.0,), (1.0,)),
    "half": ((0.5,), (0.5,)),  # Clustered Sampling, FedCor: CIFAR-10; HiCS-FL: Fashion-MNIST
    "mnist": ((0.1307,), (0.3081,)),  # FedCor: Fashion-MNIST, with MNIST's constants
    "cifar": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),  # HiCS-FL: CIFAR-10
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # HiCS-FL: Mini-ImageNet
}


@dataclass(frozen=True)
class Kind:
    """What a dataset must look like, and where it comes from.

    n_train, n_test: numbers of samples; 0: as many as the reader finds. shape: of a sample; images are (C, H, W).
    classes: names in label order, or only their number where the data contains the names.
    scaling: the scheme of `SCALINGS` for runs that name none; of pixels only. files: SHA-256 by file name.
    title: its name in texts.
    download: fetches the published files into an empty folder and returns the folder that has a mirror's layout.
    embedded: what contains the data: an installed package, or the reader, which computes them. They are then prepared
        on first use, without a mirror or a download.
    values: what x holds: pixels (uint8, 0 to 255), or numbers (float32), which are taken as they are.
    owners: number of clients whose samples these are. The reader then gives `owner_train` and `owner_test`, int64 (n,),
        and the partition {scheme: owners} takes them.
    """

    n_train: int
    n_test: int
    shape: tuple[int, ...]
    classes: tuple[str, ...] | int
    scaling: str = "unit"
    files: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    download: Callable[[Path], Path] | None = None
    embedded: str = ""
    values: Literal["pixels", "numbers"] = "pixels"
    owners: int = 0

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the reader gives."""
        return ("x_train", "y_train", "x_test", "y_test") + (
            ("owner_train", "owner_test") if self.owners else ()
        )


@dataclass(frozen=True)
class Found:
    """Arrays, class names in label order, and a sentence that states the provenance."""

    arrays: Arrays
    classes: tuple[str, ...]
    provenance: str


Reader = Callable[[str, Kind, Path], Found]
KINDS: dict[str, Kind] = {}  # of the datasets that are loaded; `load_all` loads all


def register(name: str, kind: Kind) -> Callable[[Reader], Reader]:
    """Decorator of a reader: make a dataset known to `params.yaml` and the command line under `name`.

    Raises:
        NameTaken: another dataset has that name.
    """

    def add(read: Reader) -> Reader:
        # Its data is identified by a digest, not its reader.
        REGISTRY.register(name, revision=0)(read)  # ty: ignore[invalid-argument-type]  # a reader is a function
        KINDS[name] = kind
        return read

    return add


def load_all() -> dict[str, Kind]:
    """Name -> kind of every dataset."""
    REGISTRY.load_all()
    return KINDS


def find(name: str, mirror: Path | None, scratch: Path) -> tuple[Found, str]:
    """A dataset from the first source that has it, and the name of that source.

    mirror: folder with one folder per dataset; None takes the environment variable FEDLIB_MIRROR.
    scratch: an empty folder for downloads.

    Raises:
        DataError: no source has it, or the source's data is wrong.
    """
    kind, read = load_all()[name], REGISTRY.find(name)
    if kind.embedded:
        return read(name, kind, scratch), kind.embedded
    named = mirror or os.environ.get("FEDLIB_MIRROR")
    if named and not Path(named).is_dir():
        raise DataError(
            f"the mirror {str(named)!r} is not a folder; correct FEDLIB_MIRROR, or unset it to download."
        )
    if named and (folder := Path(named) / name).is_dir():
        return read(name, kind, folder), "mirror"
    return read(name, kind, download(name, kind, scratch)), "torchvision"


def download(name: str, kind: Kind, scratch: Path) -> Path:
    """Download the published files; returns a folder with the layout of a mirror's.

    Raises:
        DataError: the dataset is never downloaded, or the download failed.
    """
    if kind.download is None:
        raise DataError(
            f"{name} is never downloaded; lay its files out as data/README.md says, name the mirror in FEDLIB_MIRROR, "
            f"and run: fedlib data prepare {name}."
        )
    usual = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        return kind.download(scratch)
    except ImportError:
        raise DataError(
            f"{name} is downloaded by torchvision, which is not installed: pip install torchvision, or name a mirror "
            "in FEDLIB_MIRROR."
        ) from None
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name} could not be downloaded ({reason}); try again, or name a mirror in FEDLIB_MIRROR (layout: "
            f"data/README.md), and run: fedlib data prepare {name}."
        ) from None
    finally:
        socket.setdefaulttimeout(usual)
