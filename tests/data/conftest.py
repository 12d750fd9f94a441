"""An empty folder of datasets and a mirror, for tests that prepare some."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDLIB_MIRROR", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"
