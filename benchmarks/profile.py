"""`python -m benchmarks.profile`: where the time of a W2 and of a W3 round goes, written to `PROFILE.md`.

It uses one worker, so that the parts add up to the whole. It measures the time outside the executor (sampler, streams,
aggregation, records). For W2 it times each compiled function separately on realistic shapes and data, for W3 the passes
of the network's stages.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numba
import numpy as np
import torch
from numba import njit

from benchmarks import machine
from benchmarks.candidates import HERE
from benchmarks.engine import lockstep
from benchmarks.protocol import WORKLOADS, Workload
from benchmarks.report import number, table
from fedlib.files import write_whole
from fedlib.simulation.engine import Lockstep
from fedlib.training import contract, looped, loops
from fedlib.training.contract import batches_of

ROUNDS = {"W2": 10, "W3": 1}


class Stopwatch:
    """Seconds spent in a function, which is replaced at the places where it is looked up."""

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
    drawing = Stopwatch(contract, name="draw_batches")
    with Stopwatch(runs.executor, name="train") as training, drawing:
        watched = seconds_of(runs, rounds)
    outside = watched - training.seconds / rounds
    return (
        f"## {name}\nA round takes {number(1e3 * plain)} ms with one worker: {work.gigaflops / plain:.0f} needed "
        f"GFLOP/s, {work.gigaflops / plain / matrix_rate:.0%} of one core's matrix rate ({matrix_rate:.0f} GFLOP/s). "
        f"Of it {outside / watched:.1%} passes outside the executor (sampler, streams, aggregation, records) and "
        f"{drawing.seconds / rounds / watched:.1%} in drawing batches. "
        + (parts(work, runs, plain) if work.layers else stages(work, runs))
    )


def parts(work: Workload, runs: Lockstep, round_seconds: float) -> str:
    """The compiled functions that a client's step calls, for a dense network with one hidden layer."""
    rng, B, f32 = np.random.default_rng(0), work.batch, np.float32
    D, H, K = work.layers
    full = -(-B // loops.QUAD) * loops.QUAD
    own = rng.integers(work.N * work.n, size=work.n)  # one client's samples, of which every batch is drawn
    rows = [rng.choice(own, B, replace=False) for _ in range(200)]
    batch, hidden, g, low = (torch.rand(full, size).numpy() for size in (D, H, K, H))
    W, V, b, c = (torch.rand(shape).numpy() for shape in ((H, D), (K, H), H, K))
    x, scale, shift = runs.executor._samples
    y, tiny = rng.integers(K, size=B), f32(1e-9)
    calls = {  # what it is -> million operations, the function, its arguments
        "`take`: a batch, from pixels": (0, loops.take, [(x, r, B, scale, shift, batch) for r in rows]),
        "`affine`: hidden layer": (2 * B * D * H, loops.affine, [(batch, W, b, B, low)] * 200),
        "`affine`: output layer": (2 * B * H * K, loops.affine, [(hidden, V, c, B, g)] * 200),
        "`cross_entropy`": (0, loops.cross_entropy, [(g.copy(), y, B, g)] * 200),
        "`back`: to the hidden layer": (2 * B * H * K, loops.back, [(g, V, B, hidden, f32(1), low)] * 200),
        "`accumulate`: output layer": (
            2 * B * H * K,
            loops.accumulate,
            [(g, hidden, B, tiny, V, c)] * 200,
        ),
        "`accumulate`: hidden layer": (
            2 * B * D * H,
            loops.accumulate,
            [(low, batch, B, tiny, W, b)] * 200,
        ),
    }
    step = round_seconds / (work.m * work.steps)
    lines, rest = [], step
    for what, (operations, function, arguments) in calls.items():
        seconds = statistics.median(called(function, arguments) for _ in range(7))
        rest -= seconds
        rate = f"{operations / seconds / 1e9:.0f}" if operations else ""
        lines.append((what, number(1e6 * seconds), rate, f"{seconds / step:.1%}"))
    lines.append(("all else", number(1e6 * rest), "", f"{rest / step:.1%}"))
    head = f"A client's step takes {number(1e6 * step)} us:\n\n"
    return head + table(("part", "us", "GFLOP/s", "of a step"), lines)


def called(function: Any, arguments: list[tuple]) -> float:
    """Seconds of one of these calls, without the overhead of calling from Python."""
    function(*arguments[0])
    started = time.perf_counter()
    for given in arguments:
        function(*given)
    middle = time.perf_counter()
    for given in arguments:
        nothing(*given)
    return (2 * middle - started - time.perf_counter()) / len(arguments)


@njit
def nothing(*given):
    pass


def stages(work: Workload, runs: Lockstep) -> str:
    """The passes of a CNN's stages, in a client's training."""
    bench, live = runs.executor.bench, runs.live[0]

    def train(client: int) -> None:
        job = live.job(0, client)
        bench.train(job, batches_of([job], live.run.local), live.models[0], live.run.local, work.lr)

    train(0)
    passes = [
        [Stopwatch(stage, name=way) for way in ("forward", "backward")] for stage in bench.passes.stages
    ]
    gather, draw = Stopwatch(bench, name="_images"), Stopwatch(looped, name="dropout_bits")
    with ExitStack() as watched, Stopwatch(bench, name="train") as whole:
        for watch in (gather, draw, *chain(*passes)):
            watched.enter_context(watch)
        for client in range(1, 4):
            train(client)
    steps = 3 * work.steps
    lines = [
        (what, number(1e3 * watch.seconds / steps), "", "", f"{watch.seconds / whole.seconds:.1%}")
        for what, watch in (("a batch of images", gather), ("bits for dropout", draw))
    ]
    x = bench._images("train", torch.arange(work.batch))
    with torch.no_grad():
        for i, (stage, ways) in enumerate(zip(bench.passes.stages, passes, strict=True)):
            x = stage.forward(x, iter(()), training=False)
            there, back = (watch.seconds / steps for watch in ways)
            what, rate = f"`{type(stage).__name__}`", ""
            if hasattr(stage, "layer"):  # below the first stage there is no gradient to find
                operations = 2 * stage.layer.weight[0].numel() * x.numel() / 1e9
                what += " " + " x ".join(map(str, stage.layer.weight.shape))
                rate = f"{operations / there:.0f}, {operations * (1 + (i > 0)) / back:.0f}"
            share = (there + back) * steps / whole.seconds
            lines.append((what, number(1e3 * there), number(1e3 * back), rate, f"{share:.1%}"))
    rest = whole.seconds - sum(watch.seconds for watch in (gather, draw, *chain(*passes)))
    lines.append(("all else", number(1e3 * rest / steps), "", "", f"{rest / whole.seconds:.1%}"))
    head = f"A client's step takes {number(1e3 * whole.seconds / steps)} ms:\n\n"
    return head + table(("part", "forward ms", "backward ms", "GFLOP/s of each", "of a step"), lines)


def main() -> None:
    about, rate = machine.describe(), machine.matrix_rate(threads=1)
    parts = [
        "# Where the time of a round goes\n",
        f"Written by `python -m benchmarks.profile`, torch {torch.__version__}, numba {numba.__version__} on "
        f"{about['cpu']}.\n",
        *(describe(name, rate) for name in ROUNDS),
    ]
    write_whole(HERE / "PROFILE.md", "\n".join(parts).encode())


if __name__ == "__main__":
    main()
