"""What set-up installs is known by its digest: every lock has hashes, and nothing is installed without one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedlib.settings.schema import ROOT

LOCKS = sorted(
    path
    for path in ROOT.rglob("requirements*.lock")
    if not {".venv", ".venv-flower", ".envs"} & {*path.parts}
)
SCRIPTS = ("Makefile", ".ci/run", ".binder/postBuild", "Containerfile")
HASHED = re.compile(r"--require-hashes -r (\S+\.lock)$")
BUILT = (
    "--no-deps --no-build-isolation -e .",
    "--no-deps --no-build-isolation -e . -e workspace",
)  # this project


def pins(lock: Path) -> dict[str, str]:
    """Name -> what the lock says of it."""
    blocks = re.split(r"^(?=[\w.-]+==)", lock.read_text(), flags=re.MULTILINE)[1:]
    return {block.partition("==")[0]: block for block in blocks}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.relative_to(ROOT).as_posix() + path.stem)
def test_a_lock_has_hashes_and_names_no_index(lock: Path) -> None:
    assert pins(lock)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", text) for text in pins(lock).values())
    assert "://" not in lock.read_text()
    assert "index" not in re.sub(r"\S+==.*", "", lock.read_text())


def test_there_are_locks() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in LOCKS}
    assert {"requirements.lock", "requirements-setup.lock", "tests/flower/requirements.lock"} <= found


def installs(script: str) -> list[str]:
    """What a script has pip or uv install or build, a line each."""
    lines = (ROOT / script).read_text().replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.search(r"\b(pip install|uv build|pip wheel)\b", line)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_is_installed_without_a_hash(script: str) -> None:
    for line in installs(script):
        if match := HASHED.search(line):
            assert (ROOT / match[1]).exists(), line
        elif "uv build" in line:
            assert "--no-build-isolation" in line
        elif line.endswith("/*.whl"):  # the project's own, its dependencies by the hashes of the lock
            assert "--constraint requirements.lock" in line
        else:
            assert line.endswith(BUILT), line


def test_make_installs_by_its_locks() -> None:
    lines = installs("Makefile")
    assert [HASHED.search(line)[1] for line in lines if HASHED.search(line)] == [
        "requirements-setup.lock",
        "requirements.lock",
        "requirements-setup.lock",
        "tests/flower/requirements.lock",
    ]
    assert sum(line.endswith(BUILT) for line in lines) == 2


def test_the_lock_of_set_up_has_what_builds_the_project_and_agrees_with_the_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setup, other = pins(ROOT / "requirements-setup.lock"), pins(ROOT / "requirements.lock")
    wanted = {re.match(r"[\w-]+", one)[0] for one in project["dependency-groups"]["setup"]}
    assert {*project["build-system"]["requires"]} <= wanted <= setup.keys()
    first = {name: text.split()[0] for name, text in setup.items()}
    assert all(other[name].split()[0] == first[name] for name in first.keys() & other.keys())
