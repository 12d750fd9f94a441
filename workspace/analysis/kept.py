"""Tables in git that the project computed itself, with their digests in the file SHA256SUMS beside them.

`sha256sum -c SHA256SUMS` checks the same.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import StoreError
from fedlib.files import write_whole

SUMS = "SHA256SUMS"


def read(path: Path, mend: str) -> bytes:
    """The content that was written. mend: what makes it again, as a clause.

    Raises:
        StoreError: the file or its digest is missing, or it is not as written.
    """
    try:
        content, known = path.read_bytes(), sums(path.parent).get(path.name)
    except FileNotFoundError as error:
        raise StoreError(f"{error.filename} is missing; {mend}.") from None
    if known is None:
        raise StoreError(f"{path.parent / SUMS} does not name {path.name}; {mend}.")
    if (digest := hashlib.sha256(content).hexdigest()) != known:
        raise StoreError(f"{path}: its SHA-256 is {digest[:12]}..., not {known[:12]}... as written; {mend}.")
    return content


def table(path: Path, mend: str, **options: Any) -> pd.DataFrame:
    """A table as it was written. options: of `pandas.read_csv`. Raises the same errors as `read`."""
    return pd.read_csv(io.BytesIO(read(path, mend)), **options)


def write(path: Path, content: bytes) -> None:
    """Write a file and its digest."""
    write_whole(path, content)
    known = sums(path.parent) if (path.parent / SUMS).exists() else {}
    known[path.name] = hashlib.sha256(content).hexdigest()
    lines = [f"{digest}  {name}\n" for name, digest in sorted(known.items())]
    write_whole(path.parent / SUMS, "".join(lines).encode())


def sums(folder: Path) -> dict[str, str]:
    """File name -> SHA-256, of a folder's SHA256SUMS."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines if line)}
