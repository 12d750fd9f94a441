"""Datasets: where they come from, how they are verified, and how they are loaded.

A dataset is prepared once, as two files: `<name>.npz` (arrays only) and then `<name>.json` (provenance, digest). Its
sources are tried in this order: what is already prepared; a mirror folder (argument, or environment variable
FEDLIB_MIRROR); a download through torchvision. Damaged data is reported, never replaced silently. `data/README.md`
describes the layout of a mirror and of prepared files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlib.data import sources
from fedlib.data.sources import KINDS, SCALINGS, Arrays, Kind
from fedlib.errors import DataError, meant
from fedlib.files import ROOT, sealed, unsealed

if TYPE_CHECKING:
    import torch

DATASETS = ROOT / "data" / "datasets"


@dataclass(frozen=True)
class Dataset:
    """A loaded dataset.

    x_train, x_test: uint8 (n, C, H, W), 0 to 255 (the 17 grey levels of digits are stretched over that range); float32
        (n, ...) where the data are no images.
    y_train, y_test: int64 (n,), labels 0 to n_classes - 1. classes: their names.
    owner_train, owner_test: int64 (n,), the client whose sample it is; None where the data name no clients.
    provenance: a sentence that must appear on every page with results on this data.
    digest: SHA-256 of the arrays.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    provenance: str
    digest: str
    owner_train: np.ndarray | None = None
    owner_test: np.ndarray | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)


@dataclass(frozen=True)
class Tensors:
    """A scaled dataset: x float32 (n, ...), y int64 (n,).

    pixels: None if x_train does not come from pixels. Otherwise these pixels, uint8 (n, C, H, W), and the (scale,
        shift) of each channel, (C,) float32 each.
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    pixels: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def tensors(dataset: Dataset, scaling: str | None = None) -> Tensors:
    """The dataset as tensors, with pixels scaled by a scheme of `sources.SCALINGS` (None: the dataset's own).

    Raises:
        DataError: the scheme's number of channels differs from the images', or the data are no pixels.
    """
    import torch  # here, so that listing prepared datasets does not import torch

    kind = KINDS[dataset.name]
    if kind.values == "numbers":
        if scaling:
            raise DataError(f"scaling: {dataset.name} has no pixels to scale; leave scaling out.")
        x_train, y_train, x_test, y_test = (
            torch.from_numpy(array)
            for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
        )
        return Tensors(x_train, y_train, x_test, y_test)
    scaling = scaling or kind.scaling
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in SCALINGS[scaling])
    channels = dataset.x_train.shape[1]
    if len(mean) not in (1, channels):
        raise DataError(
            f"scaling: {scaling!r} is for images of {len(mean)} channels, but {dataset.name} has {channels}; "
            "use unit, half or mnist."
        )

    def scaled(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).float().div_(255).sub_(mean).div_(std)

    y_train, y_test = torch.from_numpy(dataset.y_train), torch.from_numpy(dataset.y_test)
    scale, shift = (np.broadcast_to(v.numpy().ravel(), channels) for v in (1 / (255 * std), -mean / std))
    pixels = dataset.x_train, scale, shift
    return Tensors(scaled(dataset.x_train), y_train, scaled(dataset.x_test), y_test, pixels)


def prepare(name: str, mirror: Path | None = None, root: Path = DATASETS) -> Path:
    """Make a dataset ready for `load`; returns the path of its `.npz`. A dataset that is prepared is left unchanged.

    mirror: folder with one folder per dataset; None takes the environment variable FEDLIB_MIRROR.

    Raises:
        DataError: unknown name, no source, a wrong or truncated source, or a folder that cannot be written.
    """
    _kind(name)
    path = root / f"{name}.npz"
    if path.with_suffix(".json").exists():
        _record(name, root)
        return path
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as scratch:
            content, source = sources.find(name, mirror, Path(scratch))
            _check(name, content.arrays)
            file = Path(scratch) / path.name
            np.savez(file, **content.arrays)  # ty: ignore[invalid-argument-type]  # none is named allow_pickle
            record = {
                "name": name,
                "provenance": content.provenance,
                "source": source,
                "digest": digest_of_arrays((key, content.arrays[key]) for key in KINDS[name].arrays),
                "classes": list(content.classes),
                "shapes": {key: list(content.arrays[key].shape) for key in KINDS[name].arrays},
                "members": _members(file),
            }
            file.with_suffix(".json").write_text(
                json.dumps(sealed(record), indent=1) + "\n", encoding="utf-8"
            )
            for suffix in (".npz", ".json"):
                _move(file.with_suffix(suffix), path.with_suffix(suffix))
    except OSError as error:
        where = Path(error.filename or root).name
        reason = error.strerror or error
        raise DataError(
            f"{name} cannot be prepared: {reason} ({where}); check that folder and free space."
        ) from None
    return path


def load(name: str, root: Path = DATASETS) -> Dataset:
    """Load a prepared dataset. One that is embedded is prepared on first use.

    Contents are checked against the CRCs recorded at preparation. Reading the file computes these anyway.

    Raises:
        DataError: the dataset is not prepared, or is damaged.
    """
    record = _record(name, root)
    return Dataset(
        name,
        **_read(name, root),
        provenance=record["provenance"],
        digest=record["digest"],
        classes=tuple(record["classes"]),
    )


def counts(name: str, root: Path = DATASETS) -> tuple[int, int]:
    """Numbers of training and test samples; of a dataset whose kind does not say them it must be prepared."""
    kind = _kind(name)
    if kind.n_train and kind.n_test:
        return kind.n_train, kind.n_test
    shapes = _record(name, root)["shapes"]
    return shapes["y_train"][0], shapes["y_test"][0]


def digest(name: str, root: Path = DATASETS) -> str:
    """The recorded SHA-256 of a prepared dataset's arrays. Raises DataError like `load`."""
    return _record(name, root)["digest"]


def verify(name: str, root: Path = DATASETS) -> str:
    """Compute the digest of a prepared dataset's arrays again and compare it with the record; returns the digest.

    Raises:
        DataError: the dataset is not prepared, is damaged, or differs from what was prepared.
    """
    recorded = _record(name, root)["digest"]
    if (digest := digest_of_arrays(_read(name, root).items())) != recorded:
        raise DataError(f"{name}.npz: expected digest {recorded}, found {digest}; {_how_to_mend(name)}.")
    return digest


def status(name: str, root: Path = DATASETS) -> dict[str, str]:
    """What is known without reading arrays: name, state (prepared, missing, damaged), provenance and digest."""
    if _kind(name) and not (root / f"{name}.json").exists():
        return {"name": name, "state": "missing", "provenance": "", "digest": ""}
    try:
        record = _record(name, root)
    except DataError as error:
        return {"name": name, "state": "damaged", "provenance": str(error), "digest": ""}
    return {"name": name, "state": "prepared", "provenance": record["provenance"], "digest": record["digest"]}


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise DataError(f"unknown dataset {name!r}; {meant(name, KINDS)}")
    return KINDS[name]


def _how_to_mend(name: str) -> str:
    return f"delete {name}.npz and {name}.json, then run: fedlib data prepare {name}"


def _record(name: str, root: Path) -> dict[str, Any]:
    """The content of `<name>.json`, checked against the directory of `<name>.npz`."""
    path = root / f"{name}.npz"
    if _kind(name).embedded and not path.with_suffix(".json").exists():
        prepare(name, root=root)
    try:
        record = unsealed(json.loads(path.with_suffix(".json").read_bytes()))
        missing = {"name", "provenance", "digest", "classes", "members"} - set(record)
    except FileNotFoundError:
        raise DataError(f"{name} is not prepared; run: fedlib data prepare {name}") from None
    except (ValueError, TypeError):
        raise DataError(
            f"{name}.json is not a record of a prepared dataset, or was changed; {_how_to_mend(name)}."
        ) from None
    if missing:
        raise DataError(f"{name}.json lacks {min(missing)!r}; {_how_to_mend(name)}.")
    if record["name"] != name:
        raise DataError(f"{name}.json is the record of {record['name']}; {_how_to_mend(name)}.")
    if _members(path) != record["members"]:
        raise DataError(f"{name}.npz differs from what {name}.json records; {_how_to_mend(name)}.")
    return record


def _members(path: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of each array in an .npz, from its directory alone."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename: [info.file_size, info.CRC] for info in archive.infolist()}
    except FileNotFoundError:
        raise DataError(f"{path.name} is missing beside its record; {_how_to_mend(path.stem)}.") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise DataError(
            f"{path.name} is truncated or not an archive of arrays; {_how_to_mend(path.stem)}."
        ) from None


def _read(name: str, root: Path) -> Arrays:
    try:
        with np.load(root / f"{name}.npz", allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in _kind(name).arrays}
    except Exception as error:  # a damaged archive raises almost anything
        raise DataError(
            f"{name}.npz cannot be read ({str(error).rstrip('.')}); {_how_to_mend(name)}."
        ) from None
    _check(name, arrays)
    return arrays


def _check(name: str, arrays: Arrays) -> None:
    """Raise DataError for arrays that do not have the dataset's shapes, types, labels or owners."""
    kind = _kind(name)
    name_of_x, dtype = ("images", "uint8") if kind.values == "pixels" else ("values", "float32")
    for part, size in (("train", kind.n_train), ("test", kind.n_test)):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        n = size or len(y)
        expected = [(name_of_x, x, dtype, (n, *kind.shape)), ("labels", y, "int64", (n,))]
        whole = [("label", y, kind.n_classes)]
        if kind.owners:
            owner = arrays[f"owner_{part}"]
            expected.append(("owners", owner, "int64", (n,)))
            whole.append(("owner", owner, kind.owners))
        for part_name, array, element, shape in expected:
            if array.dtype != element or array.shape != shape:
                raise DataError(
                    f"{name}: the {part} {part_name} are {array.dtype} {array.shape}, expected {element} {shape}; "
                    "get the data again."
                )
        for part_name, array, limit in whole:
            if array.min() < 0 or array.max() >= limit:
                bad = array.min() if array.min() < 0 else array.max()
                raise DataError(
                    f"{name}: a {part} {part_name} is {bad}, expected 0 to {limit - 1}; get the data again."
                )
        if x.dtype == np.float32 and not np.isfinite(x).all():
            raise DataError(f"{name}: a {part} value is not finite; get the data again.")


def digest_of_arrays(arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """SHA-256 of arrays, with their names (which may be empty), types and shapes."""
    total = hashlib.sha256()
    for name, array in arrays:
        total.update(f"{name} {array.dtype.str} {array.shape}\n".lstrip().encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _move(whole: Path, path: Path) -> None:
    """Give a file its final name, once it is on the disk as a whole."""
    with whole.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(whole, path)
