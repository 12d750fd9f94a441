"""The package outside of the repository: simulation works with the base dependencies, the rest says what it lacks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedlib
from fedlib.settings.schema import ROOT

PROJECT, WORKSPACE = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "workspace")
)
MODULES = {"ipykernel": "ipykernel", "myst-nb": "myst_nb", "pydata-sphinx-theme": "pydata_sphinx_theme"}
WITHOUT = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing)
"""


def modules(requirements: list[str]) -> list[str]:
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in requirements]
    return [MODULES.get(name, name.replace("-", "_")) for name in names]


@pytest.fixture
def run(tmp_path: Path):
    """Runs a program in an empty folder, with a copy of the library alone, and the workspace's libraries missing."""
    shutil.copytree(
        ROOT / "fedlib", tmp_path / "lib" / "fedlib", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "here").mkdir()
    without = WITHOUT.format(names=modules(WORKSPACE["dependencies"]))

    def program(text: str) -> subprocess.CompletedProcess:
        begin = f"{without}\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\n"
        command = [sys.executable, "-c", begin + text]
        return subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, check=False)

    return program


@pytest.mark.slow
def test_simulation_needs_the_base_dependencies_alone_and_writes_nothing_into_the_package(
    run, tmp_path: Path
):
    """No `__pycache__` can be made beside the source: machine code is kept in the user's cache."""
    package, cache = tmp_path / "lib", tmp_path / "cache"
    for folder in [path for path in package.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").write_text("")
        folder.chmod(0o555)
    before = sorted(package.rglob("*"))
    begin = f"import os\nos.environ['XDG_CACHE_HOME'] = {str(cache)!r}\n"
    done = run(begin + (ROOT / ".ci" / "simulation.py").read_text())
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if not line.startswith("simulate: ")]  # of slow runs
    assert len(told) == 3
    assert sorted(package.rglob("*")) == before
    assert list(cache.rglob("checked-*.nbi"))


def test_settings_are_missed_in_one_sentence(run, tmp_path: Path):
    done = run("from fedlib.settings import params\nparams.load()")
    assert done.stderr.splitlines()[-1].endswith("params.yaml is missing; run from the project's folder.")
    assert not list((tmp_path / "here").iterdir())


def test_a_dataset_that_would_be_downloaded_says_what_it_needs(run, tmp_path: Path):
    done = run(
        "import os\nos.environ.pop('FEDLIB_MIRROR', None)\n"
        "from fedlib.data import datasets\ndatasets.prepare('mnist')"
    )
    assert (
        "mnist is downloaded by torchvision, which is not installed: pip install"
        in done.stderr.splitlines()[-1]
    )


def test_the_package_is_typed_and_of_one_version():
    assert (ROOT / "fedlib" / "py.typed").exists()
    assert f"\n## {fedlib.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_has_a_name_of_its_own_and_the_version_of_what_is_imported(tmp_path: Path):
    """On PyPI, `fedlib` is another project."""
    uv = Path(sys.executable).with_name("uv")
    command = [
        str(uv),
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--out-dir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run([*command, "--python", sys.executable], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = [name for name in names if name.endswith("dist-info/METADATA")]
        lines = packed.read(metadata).decode().splitlines()
        holds = {name.split("/")[0] for name in names}
    assert holds == {"fedlib", f"fedlib_selection-{fedlib.__version__}.dist-info"}, "the library alone"
    assert metadata.replace("METADATA", "entry_points.txt") not in names, "it declares no command"
    assert {"Name: fedlib-selection", f"Version: {fedlib.__version__}"} <= set(lines)
    assert PROJECT["name"] == "fedlib-selection"
