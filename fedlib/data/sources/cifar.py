"""CIFAR-10 and CIFAR-100: the published archives of pickled batches, or a JPEG re-encoding of CIFAR-10."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Found, Kind, register
from fedlib.data.sources.reading import decode, members_of, unpickle
from fedlib.errors import DataError

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ORIGINAL, RECODED, ORIGINAL_100 = "cifar-10-python.tar.gz", "cifar10-jpeg.tar.gz", "cifar-100-python.tar.gz"
CIFAR10_FILES = {
    ORIGINAL: "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    RECODED: "0adeec936d3e44b8fec1f1aa3ffc539c4e9b6202462c63a8fb441b59b9d7bb07",
}
CIFAR100_FILES = {ORIGINAL_100: "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"}
PUBLISHED = {  # archive; what training batches' names begin with; test batch; file of names; keys of labels and names
    "cifar10": (ORIGINAL, "data_batch_", "test_batch", "batches.meta", b"labels", b"label_names"),
    "cifar100": (ORIGINAL_100, "train", "test", "meta", b"fine_labels", b"fine_label_names"),
}


def download(published: str, scratch: Path) -> Path:
    """Fetch the archive of a dataset of torchvision, `published`."""
    from torchvision import datasets  # slow to import, and only needed here
    from torchvision.datasets.utils import download_url

    source = getattr(datasets, published)
    download_url(source.url, scratch, source.filename, source.tgz_md5)
    return scratch


def kind(title: str, published: str, classes: tuple[str, ...] | int, files: dict[str, str]) -> Kind:
    """32 x 32 colour images, 50,000 + 10,000."""
    return Kind(50_000, 10_000, (3, 32, 32), classes, "half", files, title, partial(download, published))


@register("cifar10", kind("CIFAR-10", "CIFAR10", CIFAR10, CIFAR10_FILES))
def read_cifar10(name: str, kind: Kind, folder: Path) -> Found:
    """CIFAR-10 from the published archive, or from its JPEG re-encoding."""
    if (folder / ORIGINAL).exists() or not (folder / RECODED).exists():
        return read_cifar(name, kind, folder)
    return read_jpeg_archive(name, kind, folder / RECODED)


@register("cifar100", kind("CIFAR-100", "CIFAR100", 100, CIFAR100_FILES))
def read_cifar(name: str, kind: Kind, folder: Path) -> Found:
    """CIFAR-10 or CIFAR-100 (fine labels) from the published Python archive."""
    file, batches, test, meta, labels, names = PUBLISHED[name]
    where, contents = f"{name}/{file}", {}
    for path, content in members_of(where, folder / file, kind.files[file]):
        if path.name.startswith(batches) or path.name in (test, meta):
            contents[path.name] = unpickle(f"{where}: {path.name}", content)
    arrays = {}
    try:
        training = [contents[key] for key in sorted(contents) if key.startswith(batches)]
        for part, chosen in (("train", training), ("test", [contents[test]])):
            x = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in chosen])
            arrays[f"x_{part}"] = x.reshape(-1, *kind.shape)
            arrays[f"y_{part}"] = np.concatenate([np.asarray(batch[labels], np.int64) for batch in chosen])
        classes = tuple(value.decode() for value in contents[meta][names])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{where} does not hold the batches of {kind.title}; fetch it again.") from None
    return Found(arrays, classes, f"{kind.title}: the published archive, verified by SHA-256")


def read_jpeg_archive(name: str, kind: Kind, path: Path) -> Found:
    """`train|test/<class>/<number>.jpg` in a tar.gz, in the order of (class, number)."""
    where, image_shape = f"{name}/{path.name}", (*kind.shape[1:], kind.shape[0])
    assert isinstance(kind.classes, tuple)  # their names, which the folders have
    images: dict[str, dict[tuple[int, int], np.ndarray]] = {"train": {}, "test": {}}
    for member, content in members_of(where, path, kind.files[path.name]):
        named = re.fullmatch(r"(train|test)/([^/]+)/(\d+)\.jpg", str(member))
        if not named or named[2] not in kind.classes:
            raise DataError(f"{where}: unexpected member {str(member)!r}; fetch it again.")
        image = decode(f"{where}: {member}", content)
        if image.shape != image_shape:
            raise DataError(
                f"{where}: {member} is {image.shape}, expected {kind.shape[1:]} RGB; fetch it again."
            )
        images[named[1]][kind.classes.index(named[2]), int(named[3])] = image
    arrays = {}
    for part, by_place in images.items():
        order = sorted(by_place)
        stacked = np.array([by_place.pop(place) for place in order], np.uint8).reshape(-1, *image_shape)
        arrays[f"x_{part}"] = np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))
        arrays[f"y_{part}"] = np.array([label for label, _ in order], np.int64)
    return Found(
        arrays,
        kind.classes,
        "CIFAR-10 as a JPEG re-encoding (quality about 75, 4:2:0), not the original bits; the order across classes "
        "is lost",
    )
