"""Files and folders are replaced whole, and what must not run twice says who runs it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fedlib.errors import StoreError
from fedlib.files import alone, replace_folder, sealed, state_of, unsealed, write_whole
from fedlib.runs.results import read_table, write_results

READS = 500
HOLD = "import sys, time; from pathlib import Path; from fedlib.files import alone\nwith alone(Path(sys.argv[1])):\n"


def beside(write: Callable[[int], None], read: Callable[[], None]) -> None:
    """Read `READS` times while another process writes without pause."""

    def writing(stop: multiprocessing.Event) -> None:
        n = 0
        while not stop.is_set():
            write(n := n + 1)

    write(0)
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    writer = context.Process(target=writing, args=(stop,))
    writer.start()
    try:
        for _ in range(READS):
            read()
    finally:
        stop.set()
        writer.join()
    assert writer.exitcode == 0


def test_a_table_is_read_whole_while_it_is_written(tmp_path: Path, record_property) -> None:
    """Its rows and what made them are always of one writing."""
    record_property("reads beside writes", READS)
    path = tmp_path / "demo" / "e.parquet"

    def write(n: int) -> None:
        table = pd.DataFrame({"setting": "", "method": "MD", "seed": 0, "round": range(50), "n": float(n)})
        record = {"setting": "", "method": "MD", "seed": 0, "n": n}
        write_results(path, table, {"scale": "demo", "planned": 1, "runs": [record], "missing": []})

    def read() -> None:
        table, info = read_table(path)
        assert set(table["n"]) == {float(info["runs"][0]["n"])}
        assert len(table) == 50

    beside(write, read)


def test_a_site_is_read_whole_while_it_is_replaced(tmp_path: Path, record_property) -> None:
    record_property("reads beside writes", READS)
    site, new = tmp_path / "reports", tmp_path / ".reports.new"

    def write(n: int) -> None:
        write_whole(new / "index.html", f"{n}".encode() * 1000)
        replace_folder(site, new)

    def read() -> None:
        content = (site / "index.html").read_bytes()
        assert content == content[: len(content) // 1000] * 1000

    beside(write, read)


@pytest.mark.parametrize("exchange", [True, False])
def test_nothing_of_a_replaced_folder_is_left(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the system can exchange two folders in one step."""
    if not exchange:
        monkeypatch.setattr("fedlib.files._swapped", lambda first, second: False)
    old, new = tmp_path / "site", tmp_path / "new"
    for folder, name in ((old, "gone.html"), (new, "index.html")):
        folder.mkdir()
        (folder / name).touch()
    replace_folder(old, new)
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "site",
        "site/index.html",
    ]


def test_who_waits_for_a_folder_has_it_once_it_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD + "    print(flush=True); sys.stdin.read()", str(tmp_path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    threading.Timer(0.2, child.stdin.close).start()
    with alone(tmp_path, wait=True):
        assert child.stdin.closed
    assert child.wait() == 0


def test_who_holds_a_folder_is_named_and_a_killed_process_holds_nothing(
    tmp_path: Path, record_property
) -> None:
    record_property("kills survived", 1)
    command = [sys.executable, "-c", HOLD + "    print(flush=True); time.sleep(600)", str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    child.stdout.readline()
    with (
        pytest.raises(StoreError, match=rf"in use by process {child.pid} \(fedlib .*\); wait for it"),
        alone(tmp_path),
    ):
        raise AssertionError
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(StoreError, match=f"process {child.pid}"), alone(tmp_path):
        raise AssertionError
    child.kill()
    child.wait()
    with alone(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()}"), alone(tmp_path):
        raise AssertionError


def test_a_record_comes_back_as_it_was_sealed() -> None:
    record = {"a": {2: [1, (2.5, None)], 10: float("nan")}, "b": "ä"}
    whole = sealed(record)
    assert unsealed(whole) == record
    assert sealed(whole) == whole
    for wrong in ([], None, "text", {"a": 1}, whole | {"b": "a"}, whole | {"c": 1}):
        with pytest.raises(ValueError, match="record"):
            unsealed(wrong)


def test_the_state_of_files_changes_with_any_of_them(tmp_path: Path) -> None:
    one, two, gone = (tmp_path / name for name in ("one", "two", "gone"))
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    before = state_of([two, gone, one])
    assert before == state_of([one, two]), "in any order; a file that is gone is none"
    os.utime(one, ns=(0, 0))
    two.write_bytes(b"22")
    after = state_of([one, two])
    assert all(a != b for a, b in zip(before, after, strict=True))
