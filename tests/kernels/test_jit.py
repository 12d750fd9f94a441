"""Compiled loops: kept with a digest, compiled again where what was kept is damaged, wherever the source stands."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlib.files import private

LOOP = """\
from fedlib.kernels.jit import exact


@exact
def total(values):
    out = 0.0
    for value in values:
        out += value
    return out
"""
SAY = "import numpy, loop; print(loop.total(numpy.arange(4.0)), sum(loop.total.stats.cache_hits.values()))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loop.py").write_text(LOOP)
    return tmp_path


def ran(folder: Path, **environment: str) -> list[str]:
    """The sum that the loop finds in a process of its own, and how often machine code was found for it."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), **environment}
    done = subprocess.run([sys.executable, "-c", SAY], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def ran_here() -> list[str]:
    """The same of the loop imported anew in this process, which has compiled before and is quicker."""
    sys.modules.pop("loop", None)
    loop = importlib.import_module("loop").total
    return [str(loop(np.arange(4.0))), str(sum(loop.stats.cache_hits.values()))]


@pytest.mark.bad_input
def test_machine_code_that_is_damaged_is_compiled_again(folder: Path, monkeypatch, record_property) -> None:
    """Empty, cut, or a bit flipped: the same sum each time, and then it is kept again."""
    monkeypatch.syspath_prepend(folder)
    assert ran(folder) == ["6.0", "0"]
    files = sorted((folder / "__pycache__" / "machine-code").glob("checked-*.nb[ic]"))
    assert len(files) == 2
    assert ran(folder) == ["6.0", "1"]
    rng = np.random.default_rng(0)
    damages = [lambda content: b"", lambda content: content[: len(content) // 2]]
    damages += [lambda content: flipped(content, rng)] * 2
    record_property("flips found", 2 * len(files))
    for file in files:
        for damage in damages:
            file.write_bytes(damage(file.read_bytes()))
            assert ran_here() == ["6.0", "0"]
    assert ran(folder) == ["6.0", "1"]


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
    return bytes(changed)


def test_machine_code_is_kept_elsewhere_where_the_source_cannot_be_written(folder: Path) -> None:
    """`__pycache__` and the user's cache cannot be made; then temporary files neither."""
    (folder / "__pycache__").write_text("")
    nowhere = folder / "nowhere"
    nowhere.write_text("")
    (folder / "temporary").mkdir()
    home = {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere)}
    there = home | {"TMPDIR": str(folder / "temporary")}
    assert ran(folder, **there) == ["6.0", "0"]
    assert ran(folder, **there) == ["6.0", "1"]
    assert ran(folder, **home, TMPDIR=str(nowhere)) == ["6.0", "0"]


def test_machine_code_is_kept_where_nobody_else_can_write(folder: Path) -> None:
    """It is unpickled. A folder that others can write, or a link to one, is passed over."""
    own = folder / "__pycache__" / "machine-code"
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": ""}
    assert ran(folder, **home) == ["6.0", "0"]
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o770)
    assert ran(folder, **home) == ["6.0", "0"]
    (kept,) = (folder / "home" / ".cache" / "fedlib").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (kept, kept.parent)] == [0o700, 0o700]
    assert ran(folder, **home) == ["6.0", "1"]
    shutil.rmtree(own)
    (folder / "elsewhere").mkdir(mode=0o700)
    own.symlink_to(folder / "elsewhere")
    assert ran(folder, **home) == ["6.0", "1"]
    assert not list((folder / "elsewhere").iterdir())


def test_machine_code_of_another_user_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(folder / "mine")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="mine is not this user's alone"):
        private(folder / "mine")
