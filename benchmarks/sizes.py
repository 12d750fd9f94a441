"""How the server's work of each sampler grows with the number of clients: ms and MiB a round.

`python -m benchmarks.sizes [SAMPLER ...]` prints the rows of the table in `docs/samplers.md`. Clients are simulated by
random answers of D numbers, so only the sampler works. A cell is the mean of up to `ROUNDS` rounds after the warm-up,
after one where all take more than `ENOUGH` seconds, and the memory that the process needs beyond what it needed before
`setup`, answers included. Times are of the processor, with one thread, as in the engine. Each cell is a process of its
own that may use `SECONDS` and `MEMORY`; a sampler that needs more memory than that is not tried, as `fedlib.simulate`
would refuse it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedlib.samplers import SAMPLERS, Federation, Report, ServerLosses, Updates, answered, find
from fedlib.streams import stream

SIZES, M, D, K = (1_000, 10_000, 100_000), 10, 1_000, 10
ROUNDS, ENOUGH, SECONDS, MEMORY = 3, 20, 900, 8 * 2**30
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # so that few rounds show the work after the warm-up
    "fedcor": ("fedcor", {"warmup": 1, "dt": 1000, "gpr_begin": 0}),
    "oort": ("oort", {"warmup": 1}),
    "divfl, stochastic": ("divfl", {"greedy": "stochastic", "candidates": 100}),
}


def answer(question: Any, rng: np.random.Generator) -> np.ndarray:
    """A random answer of the right shape."""
    if isinstance(question, ServerLosses):
        return rng.random(len(question.teams))
    clients = np.asarray(question.clients)
    if question.reveals == "losses":
        return rng.random(len(clients))
    if not isinstance(question, Updates) or question.encode is Updates.encode:
        return rng.standard_normal((len(clients), D), dtype=np.float32)
    blocks = [len(part) for part in np.split(clients, range(1000, len(clients), 1000))]
    return np.concatenate(
        [question.encode(rng.standard_normal((rows, D), dtype=np.float32)) for rows in blocks]
    )


def called(method: Callable[..., Any], *arguments: object, rng: np.random.Generator) -> tuple[Any, float]:
    """What a sampler's method returns, and its own seconds."""
    started, waited = time.process_time(), 0.0

    def reply(question: Any) -> np.ndarray:
        nonlocal waited
        asked_at = time.process_time()
        rows = answer(question, rng)
        waited += time.process_time() - asked_at
        return rows

    result = answered(method(*arguments), reply)
    return result, time.process_time() - started - waited


def measured(name: str, N: int) -> str:
    """ms and MiB a round of one sampler."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(50, np.full(K, 1 / K), size=N)
    m = K if name == "target" else M
    fed = Federation(counts.sum(1), counts, m, 10 * N, D, slice(0, K * 20), slice(K * 20, K * 20 + K))
    kind, parameters = VARIANTS.get(name, (name, {}))
    sampler = find(kind)(**parameters)
    if (needed := 8 * sampler.needed(fed)) > MEMORY:
        return f"needs {needed / 2**30:,.0f} GiB"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampler.setup(fed, stream(0, "setup"))
    first = N // m + 2 if kind == "hics_fl" else 1
    times: list[float] = []
    for t in range(first, first + 3 + ROUNDS):
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
        if len(times) > (3 if name in VARIANTS else 1) and sum(times) > ENOUGH:
            break
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"{1e3 * np.mean(times[min(3, len(times) - 1) :]):,.1f} ms, {memory:,.0f} MiB"


def cell(name: str, N: int) -> str:
    """`measured` in a process of its own, or what it ran into."""
    command = [sys.executable, "-m", "benchmarks.sizes", "--cell", name, str(N)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"> {SECONDS} s"
    if "MemoryError" in done.stderr or done.returncode < 0:
        return f"> {MEMORY // 2**30} GiB"
    return done.stdout.strip() if not done.returncode else done.stderr.strip().splitlines()[-1][:60]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        threadpool_limits(1)
        resource.setrlimit(resource.RLIMIT_AS, (2 * MEMORY, 2 * MEMORY))
        print(measured(sys.argv[2], int(sys.argv[3])))
    else:
        for name in sys.argv[1:] or sorted({*SAMPLERS, *VARIANTS}):
            cells = [cell(name, N) for N in SIZES]
            print(f"| `{name}` | {' | '.join(cells)} | load {os.getloadavg()[0]:.0f}", flush=True)
