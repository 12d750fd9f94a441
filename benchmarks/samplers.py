"""What each sampler's own arithmetic costs the server: seconds a round, and their share of the round.

`python -m benchmarks.samplers` prints one line of JSON; `--large` measures at N = 1000 instead, with one local SGD
step a round, since the server's work does not depend on the clients'.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.engine import lockstep
from benchmarks.protocol import WORKLOADS, Workload
from fedlib.samplers import SAMPLERS

LARGE = ("clustered_similarity", "hcsfed", "divfl")
ROUNDS = 36  # FedCor warms up for 15, then trains its process every 10
LARGE_ROUNDS = 5


def server_work(work: Workload, samplers: Sequence[str], rounds: int, threads: int) -> list[dict[str, Any]]:
    """For each sampler alone: mean and largest server seconds, and mean seconds, of a round, without the first."""
    out = []
    for sampler in samplers:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    work = WORKLOADS["W2"]
    if given.large:
        work, names, rounds = replace(work, N=1000, steps=1), LARGE, LARGE_ROUNDS
    else:
        names, rounds = sorted(SAMPLERS), ROUNDS
    print(json.dumps(server_work(work, given.only or names, rounds, os.cpu_count() or 1)))
