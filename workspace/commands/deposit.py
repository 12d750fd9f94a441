"""Everything in one file, for a repository of research data: source, archive, site, papers, checksums.

`fedlib-<version>.tar.gz` holds `source/` (all that git has, results of long runs among it), `site/` (the rendered
site), `computed.csv` (what was computed where, and for how long), `LICENCES.md` (of data) and `SHA256SUMS`, which
`sha256sum --check` reads. The same commit and site give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fedlib import __version__
from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.runs import archive
from fedlib.settings.schema import ROOT, SCALES
from workspace.pages import tables

LICENCES = "data/LICENCES.md"  # of datasets, and of what is derived from them


def pack(folder: Path, root: Path = ROOT, site: Path | None = None) -> Path:
    """Write the deposit into a folder; returns its path.

    site: the rendered site; by default that of the papers' own settings, `reports/paper/`.

    Raises:
        ConfigError: there is no site, or git does not have all that stands in the folder.
    """
    site = site or root / "reports" / "paper"
    if not (site / "index.html").exists():
        raise ConfigError(
            f"{site}: there is no site; make one (`make report SCALE=paper`), then repeat the command."
        )
    changed = _git(root, "status", "--porcelain", "--untracked-files=no").decode()
    if changed.replace(" M dvc.lock\n", ""):
        raise ConfigError(
            f"{root}: some files differ from the last commit; commit them, then repeat the command."
        )
    date = int(_git(root, "log", "-1", "--format=%ct"))
    files = dict(_files(root, site))
    files["SHA256SUMS"] = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items())
    ).encode()
    name = f"fedlib-{__version__}"
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=date) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime = len(content), date
            tar.addfile(entry, io.BytesIO(content))
    target = folder / f"{name}.tar.gz"
    write_whole(target, packed.getvalue())
    return target


def _files(root: Path, site: Path) -> Iterator[tuple[str, bytes]]:
    """(path in the deposit, content)."""
    for name in filter(None, _git(root, "ls-files", "-z").decode().split("\0")):
        yield f"source/{name}", (root / name).read_bytes()
    for path in sorted(site.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"site/{path.relative_to(site).as_posix()}", path.read_bytes()
    yield "computed.csv", tables.csv_of(computed(root / "data" / "archive")).encode()
    yield "LICENCES.md", (root / LICENCES).read_bytes()


def computed(folder: Path) -> pd.DataFrame:
    """What was computed where: experiment, scale, device, runs, hours (summed over runs), from, to (dates)."""
    rows = []
    for scale in SCALES:
        for path in sorted((folder / scale).glob("*.parquet")):
            packed = archive.read(path.stem, scale, folder)
            for record in packed.runs:
                seconds = packed.rows(record["address"]).get("seconds", pd.Series(dtype=float)).sum()
                rows.append((path.stem, scale, record.get("device", ""), seconds / 3600, record["date"][:10]))
    table = pd.DataFrame(rows, columns=["experiment", "scale", "device", "hours", "date"])
    grouped = table.groupby(["experiment", "scale", "device"], sort=False)
    return grouped.agg(
        runs=("hours", "size"), hours=("hours", "sum"), first=("date", "min"), last=("date", "max")
    ).reset_index()


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"{root}: git says {done.stderr.decode().strip()!r}; pack a deposit in a clone of the repository."
        )
    return done.stdout
