"""The cost of each sampler's own arithmetic on the server: seconds per round, and their share of the round.

`python -m benchmarks.samplers` prints one line of JSON. `--large` measures at N = 1000 instead, with one local SGD step
per round, because the server's work does not depend on the clients'.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.engine import lockstep
from benchmarks.protocol import WORKLOADS, Workload
from fedlib.samplers import SAMPLERS, ServerLosses, fedcor

LARGE = ("clustered_similarity", "hcsfed", "divfl")
ROUNDS = {"fedcor": 500}  # its T: most of its work is done in the warm-up, the rest every 10 rounds
OTHERS, LARGE_ROUNDS = 16, 5  # HiCS-FL warms up for 10


def server_work(work: Workload, samplers: dict[str, int], threads: int) -> list[dict[str, Any]]:
    """Mean and largest server seconds and mean seconds per round, without the first round.

    samplers: name -> number of rounds; each runs alone.
    """
    out = []
    fedcor.train(
        np.eye(2), np.ones((1, 2)), np.ones(1), np.zeros(2), 1.0, 1
    )  # imports GPyTorch, once a process
    for sampler, rounds in samplers.items():
        alone = lockstep(work, [sampler], threads)
        for _ in range(rounds):
            alone.advance()
        rows = alone.live[0].rows[2:]
        server, seconds = (np.array([row[key] for row in rows]) for key in ("server_seconds", "seconds"))
        out.append(
            {
                "sampler": sampler,
                "N": work.N,
                "server": server.mean(),
                "largest": server.max(),
                "round": seconds.mean(),
                "share": server.sum() / seconds.sum(),
            }
        )
    return out


def measured() -> list[str]:
    """The samplers that need no samples of the server's own: here clients have all of them."""
    return sorted(name for name, sampler in SAMPLERS.items() if ServerLosses not in (sampler.asks or ()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    work = WORKLOADS["W2"]
    if given.large:
        work, rounds = replace(work, N=1000, steps=1), dict.fromkeys(LARGE, LARGE_ROUNDS)
    else:
        rounds = {name: ROUNDS.get(name, OTHERS) for name in measured()}
    rounds = {name: n for name, n in rounds.items() if name in (given.only or rounds)}
    print(json.dumps(server_work(work, rounds, os.cpu_count() or 1)))
