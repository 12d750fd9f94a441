"""The threads of the executors, and how they share cores and memory."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import torch
from threadpoolctl import threadpool_limits


def workers(threads: int) -> ThreadPoolExecutor:
    """Threads that each let torch use one core. How the work is split does not depend on their number.

    The products of numpy and scipy use one core as well. Those of the samplers are small, and BLAS threads that wait
    for more work keep cores busy (rounds of Algorithm 2 took twice as long).
    """
    _keep_freed_memory()
    threadpool_limits(1, user_api="blas")
    return ThreadPoolExecutor(threads, "fedlib", initializer=torch.set_num_threads, initargs=(1,))


def _keep_freed_memory() -> None:
    """Let glibc keep memory that one step frees, because the next step needs it again.

    Otherwise glibc returns it to the system, which hands it out again page by page: thousands of page faults per step
    of a CNN.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, 2**30)
