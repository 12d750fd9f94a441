"""A copy of the project, without data, for tests that change it or write into it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from fedlib.settings.schema import ROOT


def copy_project(root: Path) -> dict[str, str]:
    """Copy code, notebooks and settings to `root`; returns the environment in which `fedlib` is that copy's."""
    for name in ("fedlib", "notebooks", "site"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb*"))
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, root / name)
    own = {key: value for key, value in os.environ.items() if not key.startswith("FEDLIB_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return {**own, "PYTHONPATH": str(root), "PATH": path, "FEDLIB_WORKERS": "1"}
