"""Several things at once, each after those that it needs: stages of the pipeline, logs and pages of a report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_turn(
    waiting: list[T],
    needs: Mapping[T, Collection[T]],
    work: Callable[[T], R],
    stop: Callable[[], None],
    at_once: int,
    room: Callable[[T, Iterable[T]], bool] = lambda item, running: True,
) -> Generator[tuple[T, Future[R]]]:
    """Call `work(item)` in threads; yields each item with what came of it.

    waiting: the items in order; whoever takes one out leaves it out. room: whether an item may begin beside others. If
    this is interrupted or closed, `stop` makes all work end.
    """
    running: dict[Future[R], T] = {}
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while waiting or running:
                unfinished = {*waiting, *running.values()}
                for item in [item for item in waiting if unfinished.isdisjoint(needs[item])]:
                    if len(running) >= at_once or not room(item, running.values()):
                        break
                    waiting.remove(item)
                    running[pool.submit(work, item)] = item
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future
        except BaseException:
            stop()
            raise
