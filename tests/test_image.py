"""The image: it holds what git holds, so that all that runs in a fresh clone runs in it, as a user of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

import forked
import pytest
from copies import environment_of

from fedlib.settings.schema import ROOT

MADE = [  # by commands that may not have run here
    *("reports/paper/index.html", "data/runs/00/00/run.json", "data/making/demo/arena/figure.svg", ".venv/bin/python"),
    *(".venv-flower/bin/python", "fedlib/kernels/__pycache__/jit.pyc", "notebooks/.ipynb_checkpoints/explore.ipynb"),
    *("benchmarks/results/peers.json", "dvc_plots/index.html", ".dvc/cache/files", ".dvc/tmp/lock"),
]  # fmt: skip


def git(*words: str) -> list[str]:
    command = ["git", "ls-files", "-z", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [path.rstrip("/") for path in done.stdout.split("\0") if path] or pytest.skip("no git repository")


@cache
def patterns() -> list[tuple[bool, re.Pattern[str]]]:
    """What each line of `.containerignore` matches, and whether it leaves that out."""
    kinds = {"**/": "(?:.*/)?", "*": "[^/]*"}
    lines = [line for line in (ROOT / ".containerignore").read_text().splitlines() if line[0] != "#"]
    pieces = [re.split(r"(\*\*/|\*)", line.removeprefix("!")) for line in lines]
    found = [re.compile("".join(kinds.get(piece, re.escape(piece)) for piece in line)) for line in pieces]
    return [(line[0] != "!", pattern) for line, pattern in zip(lines, found, strict=True)]


def left_out(path: str) -> bool:
    """Whether a file is not in the context: the last line decides that matches it or a folder that it is in."""
    names = [path, *map(str, PurePosixPath(path).parents)]
    return next((out for out, pattern in reversed(patterns()) if any(map(pattern.fullmatch, names))), False)


def test_the_context_is_what_git_has() -> None:
    assert [path for path in git() if left_out(path)] == []
    ignored = git("--others", "--ignored", "--exclude-standard", "--directory")
    assert [path for path in [*ignored, *MADE, ".git/HEAD"] if not left_out(path)] == []


@pytest.mark.slow
def test_what_reads_the_contexts_data_runs_in_it(tmp_path: Path) -> None:
    for path in git():
        if not left_out(path) and not path.startswith(("tests/", "docs/")):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tmp_path / path)
    environment = environment_of(tmp_path)
    for words in ("verify", "notebook normalise", "notebook run scoreboard --scale demo"):
        done = forked.run(["fedlib", *words.split()], tmp_path, environment)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_a_user_of_its_own_who_owns_what_is_copied() -> None:
    steps = [line for line in (ROOT / "Containerfile").read_text().splitlines() if line[:1].isupper()]
    user = next(k for k, step in enumerate(steps) if step.startswith("USER "))
    assert steps[user] == "USER fedlib"
    assert all(step.startswith("COPY --chown=fedlib:fedlib ") for step in steps if step.startswith("COPY"))
    assert all(k > user for k, step in enumerate(steps) if step.startswith(("COPY", "RUN make")))
