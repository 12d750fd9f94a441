"""How the server's work of each sampler grows with the number of clients: ms and MiB a round.

`python -m benchmarks.sizes` prints the rows of the table in `docs/samplers.md`. Clients are simulated by random answers
of D numbers, so only the sampler works. A cell is the mean of `ROUNDS` rounds after the warm-up, and the memory that
the process needs beyond what it needed before `setup`, answers included. Each cell is a process of its own that may
use `SECONDS` and `MEMORY`; where a size exceeds them, larger ones are not tried.
"""

from __future__ import annotations

import inspect
import os
import resource
import subprocess
import sys
import time

import numpy as np

from fedlib.samplers import SAMPLERS, Federation, Report, ServerLosses, Updates, find
from fedlib.streams import stream

SIZES, M, D, K = (1_000, 10_000, 100_000), 10, 1_000, 10
ROUNDS, SECONDS, MEMORY = 3, 12, 6 * 2**30
WARM = {
    "fedcor": {"warmup": 1, "dt": 1000},
    "oort": {"warmup": 1},
}  # so that few rounds show the work after it


def answer(question: object, rng: np.random.Generator) -> np.ndarray:
    """A random answer of the right shape."""
    if isinstance(question, ServerLosses):
        return rng.random(len(question.teams))
    clients = np.asarray(question.clients)
    if type(question).__name__ in ("Losses", "TrialLosses"):
        return rng.random(len(clients))
    values = rng.standard_normal((len(clients), D), dtype=np.float32)
    return question.encode(values) if isinstance(question, Updates) else values


def called(method, *arguments: object, rng: np.random.Generator) -> tuple[object, float]:
    """What a sampler's method returns, and its own seconds."""
    started, result = time.perf_counter(), method(*arguments)
    spent = time.perf_counter() - started
    if inspect.isgenerator(result):
        reply = None
        try:
            while True:
                started = time.perf_counter()
                question = result.send(reply)
                spent += time.perf_counter() - started
                reply = answer(question, rng)
        except StopIteration as stop:
            spent += time.perf_counter() - started
            result = stop.value
    return result, spent


def measured(name: str, N: int) -> str:
    """ms and MiB a round of one sampler."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(50, np.full(K, 1 / K), size=N)
    m = K if name == "target" else M
    fed = Federation(counts.sum(1), counts, m, 10 * N, D, slice(0, K * 20), slice(K * 20, K * 20 + K))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampler = find(name)(**WARM.get(name, {}))
    sampler.setup(fed, stream(0, "setup"))
    first = 1 if name in ("fedcor", "oort") else N // m + 2 if name == "hics_fl" else 1
    times = []
    for t in [*range(first, first + 3), *range(first + 3, first + 3 + ROUNDS)]:
        selection, select = called(sampler.select, fed.round(t, stream(0, "select", t)), rng=rng)
        n = len(selection.clients)
        report = Report(
            selection.clients,
            rng.standard_normal((n, D), dtype=np.float32),
            rng.random(n),
            squared=rng.random(n),
        )
        _, observe = called(sampler.observe, fed.round(t, stream(0, "observe", t)), report, rng=rng)
        times.append(select + observe)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"{1e3 * np.mean(times[3:]):.1f} ms, {memory:.0f} MiB"


def cell(name: str, N: int) -> str:
    """`measured` in a process of its own, or what it ran into."""
    command = [sys.executable, "-m", "benchmarks.sizes", name, str(N)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 8, check=False)
    except subprocess.TimeoutExpired:
        return f"> {SECONDS} s"
    if "MemoryError" in done.stderr or done.returncode < 0:
        return f"> {MEMORY // 2**30} GiB"
    return done.stdout.strip() if not done.returncode else done.stderr.strip().splitlines()[-1][:60]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        print(measured(sys.argv[1], int(sys.argv[2])))
    else:
        print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        for name in sorted(SAMPLERS):
            cells = []
            for N in SIZES:
                cells.append(cell(name, N) if all("ms" in c for c in cells) else "not tried")
            print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
