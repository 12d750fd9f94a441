"""Run functions in forks of this process, one a core: they share what it has imported and read."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def each(
    items: Sequence[T], work: Callable[[T], object], began: Callable[[T], None], at_once: int
) -> list[T]:
    """Call `work(item)` for every item, each in a fork; returns the items whose call failed, in order.

    began: called here when an item's turn comes. What a fork prints to standard output is dropped; an error is printed.
    """
    waiting, running, failed = list(enumerate(items)), {}, set()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                k, item = waiting.pop(0)
                began(item)
                running[_forked(work, item)] = k
            child, status = os.wait()
            k = running.pop(child, None)
            if k is not None and status:
                failed.add(k)
    finally:
        for child in running:  # interrupted
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    return [items[k] for k in sorted(failed)]


def _forked(work: Callable[[T], object], item: T) -> int:
    from fedlib.runs.train import end_with_parent

    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    if child := os.fork():
        return child
    status = 1
    try:
        end_with_parent(parent)
        gc.freeze()  # collecting would walk through, and so copy, everything inherited
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        work(item)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
