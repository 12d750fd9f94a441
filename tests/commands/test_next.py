"""`fedlib next`: a plan in words, trained in order and archived, stopped where the time ends."""

from __future__ import annotations

import sys
import time

import pandas as pd
import pytest
from small import EXPERIMENT as SMALL

from fedlib.errors import ConfigError
from fedlib.runs.work import Plan, training
from fedlib.settings.params import build
from workspace.analysis import worth
from workspace.analysis.worth import Unit
from workspace.commands import next as next_runs

SHARED = {key: SMALL[key] for key in ("dataset", "partition", "model", "N", "m", "T", "local")}
RUN = build({**SHARED, "method": {"sampler": "md"}}, 0, "tiny")
UNITS = [
    Unit("tiny", "a", 0, (training(RUN, "tiny", "a", "MD, plain"),), 10.0, ("x",), (2.0, 0.0)),
    Unit("tiny", "", 1, (training(RUN, "tiny", "", "MD"),), 500.0, ("x", "y"), (1.0, 0.5), False),
]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("150m", 9000), ("2.5 h", 9000)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert next_runs.seconds_of(text) == seconds


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", "150", "m", "-5m", "0h", "1.2.3h", "two hours"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write a time as"):
        next_runs.seconds_of(text)


def test_the_plan_says_what_why_and_how_long() -> None:
    first, second = next_runs.lines(UNITS)
    about = "1. tiny a seed 0: MD, plain; about 10 s; 2 core claims per hour, 0 others"
    assert first == f"{about}; chance that one seed more shows it: 100% (x)"
    assert "begun and kept at its last checkpoint" in second


def test_a_gpus_seconds_are_not_a_cpus() -> None:
    """Two runs of the same kind: 100 s on a CPU, 10 s on a GPU."""
    table = pd.DataFrame(
        {
            "setting": "a",
            "method": "MD",
            "seed": [0, 1],
            "round": 10,
            "seconds": [100.0, 10.0],
            "client_steps": 1,
        }
    )
    records = [
        {"setting": "a", "method": "MD", "seed": seed, "device": device}
        for seed, device in enumerate(["x86_64", "NVIDIA H200"])
    ]
    assert next_runs.taken_here(table, records, "cpu")["seconds"].tolist() == [100.0]
    assert next_runs.taken_here(table, records, "cuda")["seconds"].tolist() == [10.0]


def test_a_busy_machine_is_told(monkeypatch) -> None:
    monkeypatch.setattr(next_runs, "cores", lambda: 4)
    for load, told in ((1.9, False), (2.1, True)):
        monkeypatch.setattr(next_runs.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert bool(next_runs.busy()) == told


def test_each_is_trained_then_archived_and_nothing_after_the_time(monkeypatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(next_runs, "_run", lambda arguments, seconds: done.append(arguments) or True)
    monkeypatch.setattr(Plan, "of_experiment", lambda name, scale, settings: name)
    monkeypatch.setattr(next_runs, "pack", lambda name, tell: done.append(f"archived {name}"))
    next_runs.train(UNITS, "demo", time.monotonic() + 1000, lambda line: None)
    shared = ["run", "tiny", "--scale", "demo"]
    assert done == [
        [*shared, "--setting", "a", "--methods", "MD, plain", "--seeds", "0"],
        "archived tiny",
        [*shared, "--methods", "MD", "--seeds", "1"],
        "archived tiny",
    ]
    done.clear()
    said: list[str] = []
    next_runs.train(UNITS, "demo", time.monotonic() + worth.MARGIN - 100, said.append)
    assert done == [[*shared, "--setting", "a", "--methods", "MD, plain", "--seeds", "0"], "archived tiny"]
    assert said[-1].startswith("No time is left for tiny  seed 1")


def test_a_command_that_fails_is_named() -> None:
    assert next_runs._run(["list", "--help"], 60.0)
    with pytest.raises(ConfigError, match="failed"):
        next_runs._run(["run", "no_such_experiment"], 60.0)


def test_a_command_is_stopped_when_its_time_is_over(monkeypatch) -> None:
    waits = "import sys, time; time.sleep(600)"
    popen = next_runs.subprocess.Popen
    monkeypatch.setattr(
        next_runs.subprocess, "Popen", lambda _, **how: popen([sys.executable, "-c", waits], **how)
    )
    assert not next_runs._run(["run"], 0.0)
