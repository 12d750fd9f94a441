"""Shared fixtures: one torch thread (tests run side by side), and the folder of golden files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import forked
import hypothesis
import pytest
import torch

from fedlib.files import find_home, write_whole

HERE = Path(__file__).resolve().parent
find_home()  # as `fedlib` does
torch.set_num_threads(1)
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=HERE / "golden",
        help="folder of golden files (schema: tests/golden/README.md)",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="write how many programs of each kind `outside` were tried into docs/what-does-not-work.md",
    )


def golden_cases(config: pytest.Config, pattern: str) -> list:
    """One pytest parameter a case of every golden file that matches `pattern`."""
    files = sorted(config.getoption("--golden-dir").glob(pattern))
    return [
        pytest.param(case, id=f"{file.stem}-{case['name']}")
        for file in files
        for case in json.loads(file.read_text())["cases"]
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.golden("cs_alg1*.json")` runs a test once for every case, given to it as `case`."""
    marker = metafunc.definition.get_closest_marker("golden")
    if marker:
        metafunc.parametrize("case", golden_cases(metafunc.config, marker.args[0]))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "golden(pattern): run once for every case of the golden files that match"
    )
    config.addinivalue_line(
        "markers", "dataset(*names): reads datasets that the repository does not hold, from FEDLIB_MIRROR"
    )
    config.addinivalue_line("markers", "bad_input: hands over something bad, which must be refused in words")
    config.addinivalue_line(
        "markers", "outside(kind): a program of one's own, of a kind that once went wrong"
    )


def pytest_unconfigure() -> None:
    forked.stop()


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """A figure that a test leaves open counts among those of the next one."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


COUNTED = (
    "kills survived",
    "bad inputs refused",
    "results identical",
    "mutations of settings refused or understood",
    "flips found",
    "reads beside writes",
)  # names that tests give to `record_property`
TRIED = HERE.parent / "docs" / "what-does-not-work.md"
OUTSIDE = "outside use: "  # and a kind, of tests with that mark


LONG = (  # longest first
    *("readme", "kills", "fairness", "pipeline", "docs", "faults"),
    *("by_hand", "lab", "contract", "cluster", "places", "claims"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long begin first, so that no worker ends long after the others; see `make test`."""
    first = {f"test_{name}": k for k, name in enumerate(LONG)}
    items.sort(key=lambda item: first.get(item.path.stem, len(LONG)))
    for item in items:
        if reason := without_data(item):
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("bad_input"):
            item.user_properties.append((COUNTED[1], 1))
        if outside := item.get_closest_marker("outside"):
            item.user_properties.append((OUTSIDE + outside.args[0], 1))


def without_data(item: pytest.Item) -> str:
    """Why a test of downloaded datasets is skipped; "" if it is none, or FEDLIB_MIRROR has them."""
    mirror = os.environ.get("FEDLIB_MIRROR")
    names = [name for marker in item.iter_markers("dataset") for name in marker.args]
    missing = [name for name in names if not (mirror and Path(mirror, name).is_dir())]
    return f"reads {' and '.join(missing)}: name a folder that holds it in FEDLIB_MIRROR" if missing else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Of the kills, bad inputs and comparisons of all tests, how many were in tests that passed."""
    found = [
        (name, number, report.passed)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, number in report.user_properties
    ]
    for counted in COUNTED:
        tried = [(number, passed) for name, number, passed in found if name == counted]
        if tried:
            good = sum(number for number, passed in tried if passed)
            terminalreporter.write_line(f"{counted}: {good} of {sum(number for number, _ in tried)}")
    kinds = sorted({name for name, _, _ in found if name.startswith(OUTSIDE)})
    width = max(map(len, kinds), default=0)
    counts = {kind: [passed for name, _, passed in found if name == kind] for kind in kinds}
    for kind, right in counts.items():
        terminalreporter.write_line(f"{kind:<{width}}  tried {len(right):3d}  right {sum(right):3d}")
    if terminalreporter.config.getoption("--record"):
        write_whole(TRIED, with_rows(TRIED.read_text(), counts).encode())


def with_rows(page: str, counts: dict[str, list[bool]]) -> str:
    """The page with a row for each kind of program that was tried; rows of other kinds stay."""
    head, mark, table = page.partition("| --- | ---: | ---: |\n")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}
    for kind, right in counts.items():
        name = kind.removeprefix(OUTSIDE)
        rows[name] = f"| {name} | {len(right)} | {sum(right)} |"
    return head + mark + "".join(f"{rows[name]}\n" for name in sorted(rows))
