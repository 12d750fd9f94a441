"""The machine of the measurements: its description, and its speed in matrix products through torch."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch


def describe() -> dict[str, Any]:
    """CPU model, cores, memory in GiB, operating system."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {"cpu": model, "cores": os.cpu_count(), "memory": round(memory), "system": platform.system()}


def matrix_rate(threads: int, n: int = 2048, seconds: float = 0.5) -> float:
    """1e9 floating-point operations per second of float32 (n, n) products through torch; the best of five stretches.

    Candidates' rates are compared with it, so the best counts: an interrupted product says nothing about the machine.
    """
    torch.set_num_threads(threads)
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    torch.mm(a, b, out=out)
    return max(_rate(a, b, out, seconds) for _ in range(5))


def _rate(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, seconds: float) -> float:
    times = []
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        torch.mm(a, b, out=out)
        times.append(time.perf_counter() - before)
    return 2 * len(a) ** 3 / statistics.median(times) / 1e9
