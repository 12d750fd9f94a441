"""Reading of downloaded files: images, pickles and archives, each checked before it is opened.

Contents are checked by SHA-256 before they are unpacked or unpickled. `data/README.md` describes a mirror's layout.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedlib.errors import DataError


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
            x, y = ((length - side) // 2 for length in image.size)
            image = image.crop((x, y, x + side, y + side))
        return np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise DataError(f"{where} is not a readable image; fetch it again.") from None


ALLOWED = {("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}


class _Plain(pickle.Unpickler):
    """Unpickles containers, strings, numbers and numpy arrays. Anything else is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def unpickle(where: str, content: bytes) -> Any:
    """The plain data in a pickle. Nothing in the pickle is executed."""
    try:
        return _Plain(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise DataError(f"{where} is not a pickle of plain arrays ({error}); fetch it again.") from None


def check_digest(where: str, actual: str, expected: str) -> None:
    """Raise DataError if a checksum is not the expected one."""
    if actual != expected:
        raise DataError(f"{where}: expected SHA-256 {expected}, found {actual}; fetch it again.")


def members_of(where: str, path: Path, expected: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files of a tar.gz, one after another, once its checksum has matched."""
    try:
        with path.open("rb") as handle:
            check_digest(where, hashlib.file_digest(handle, "sha256").hexdigest(), expected)
            handle.seek(0)
            with tarfile.open(fileobj=handle, mode="r|gz") as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    outside = inside.is_absolute() or ".." in inside.parts
                    if outside or not (member.isfile() or member.isdir()):
                        raise DataError(
                            f"{where}: member {member.name!r} points outside the archive; do not use it."
                        )
                    if content := archive.extractfile(member):  # of a file
                        yield inside, content.read()
    except FileNotFoundError:
        raise DataError(
            f"{where} is missing; add it to the mirror, or remove the folder to download."
        ) from None
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{where} is truncated or not a tar.gz archive; fetch it again.") from None
