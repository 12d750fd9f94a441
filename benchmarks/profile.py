"""`python -m benchmarks.profile`: where the time of a W2 and of a W3 round goes, written to `PROFILE.md`.

One worker, so that the parts add up to the whole: torch's operators by their own time (`torch.profiler`), and of the
rest how much lies outside the executor (sampler, streams, aggregation, records).
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import machine
from benchmarks.candidates import HERE
from benchmarks.engine import lockstep
from benchmarks.protocol import WORKLOADS
from benchmarks.report import number, table
from fedlib import local, looped, stacked
from fedlib.engine import Lockstep
from fedlib.files import write_whole

ROUNDS = {"W2": 10, "W3": 1}
SHOWN = 12
ALL_THREADS = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)


class Stopwatch:
    """Seconds spent in a function, while it is replaced where others look it up."""

    def __init__(self, *places: Any, name: str) -> None:
        self.places, self.name, self.seconds = places, name, 0.0

    def __enter__(self) -> Stopwatch:
        self.inner = getattr(self.places[0], self.name)
        for place in self.places:
            setattr(place, self.name, self.timed)
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.places:
            setattr(place, self.name, self.inner)

    def timed(self, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return self.inner(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - started


def seconds_of(runs: Lockstep, rounds: int) -> float:
    started = time.perf_counter()
    for _ in range(rounds):
        runs.advance()
    return (time.perf_counter() - started) / rounds


def describe(name: str, matrix_rate: float) -> str:
    work, rounds = WORKLOADS[name], ROUNDS[name]
    runs = lockstep(work, ["uniform"], threads=1)
    seconds_of(runs, 1)
    plain = statistics.median(seconds_of(runs, rounds) for _ in range(3))
    drawing = Stopwatch(local, looped, stacked, name="draw_batches")
    with Stopwatch(runs.executor, name="train") as training, drawing:
        watched = seconds_of(runs, rounds)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=ALL_THREADS) as recorded:
        profiled = seconds_of(runs, rounds)
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events) / rounds / 1e6
    rows = [
        (
            f"`{event.key}`",
            f"{event.count / rounds:,.0f}",
            number(event.self_cpu_time_total / rounds / 1e3),
            f"{event.self_cpu_time_total / rounds / 1e6 / total:.1%}",
        )
        for event in events[:SHOWN]
    ]
    outside = watched - training.seconds / rounds
    lines = [
        f"## {name}",
        f"A round takes {number(1e3 * plain)} ms with one worker: {work.gigaflops / plain:.0f} needed GFLOP/s, "
        f"{work.gigaflops / plain / matrix_rate:.0%} of one core's matrix rate ({matrix_rate:.0f} GFLOP/s). Of it "
        f"{outside / watched:.1%} passes outside the executor (sampler, streams, aggregation, records) and "
        f"{drawing.seconds / rounds / watched:.1%} in drawing batches. torch's operators take {number(1e3 * total)} ms "
        f"of the {number(1e3 * profiled)} ms that a round takes while it is profiled.\n",
        table(("operator", "calls a round", "own ms", "of all operators"), rows),
    ]
    return "\n".join(lines)


def main() -> None:
    about, rate = machine.describe(), machine.matrix_rate(threads=1)
    parts = [
        "# Where the time of a round goes\n",
        f"Written by `python -m benchmarks.profile`, torch {torch.__version__} on {about['cpu']}.\n",
        *(describe(name, rate) for name in ROUNDS),
    ]
    write_whole(HERE / "PROFILE.md", "\n".join(parts).encode())


if __name__ == "__main__":
    main()
