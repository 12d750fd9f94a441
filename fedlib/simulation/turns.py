"""Two groups of runs use a GPU in turns: while it computes for one, the other selects, aggregates and measures.

Python code of the two groups still runs one at a time: otherwise, nobody could say whose sampler drew from a global
generator. So there are two locks. A group holds that of the host, except in a call of the executor, when it holds that
of the GPU instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fedlib.simulation.guard import for_main, is_main
from fedlib.training.contract import Executor, Trained

if TYPE_CHECKING:
    from fedlib.simulation.live import Live

PlayRound = Callable[[list["Live"]], None]


class SharedExecutor:
    """An executor for threads that take part in turns, and for any other thread; to them it is an `Executor`.

    On a GPU it computes in the default stream, and what a group does by itself has a stream of its own, which does not
    wait for the other group's training.
    """

    def __init__(self, executor: Executor) -> None:
        assert executor.turns is not None
        self.executor, self.host, self.gpu = executor, executor.turns.host, threading.Lock()
        self.helper = ThreadPoolExecutor(1, "fedlib-turn")
        self.thread = threading.local()  # `stream`: set while the thread takes part
        on_gpu = executor.device.type != "cpu"
        self.default = torch.cuda.default_stream(executor.device) if on_gpu else None
        self.streams = [torch.cuda.Stream(executor.device, -1) if on_gpu else None for _ in range(2)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def train(self, *arguments: Any, **options: Any) -> Trained:
        with self.turn():
            trained = self.executor.train(*arguments, **options)
            self.hand_over(trained.updates)
        return trained

    def gradients(self, *arguments: Any, **options: Any) -> Tensor:
        with self.turn():
            gradients = self.executor.gradients(*arguments, **options)
            self.hand_over(gradients)
        return gradients

    def evaluate(self, *arguments: Any, **options: Any) -> tuple[list, list]:
        with self.turn():
            return self.executor.evaluate(*arguments, **options)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Leave the host to the other group and wait for the GPU."""
        if not hasattr(self.thread, "stream"):
            yield
            return
        self.host.release()
        try:
            with self.gpu, after(self.thread.stream, self.default):
                yield
        finally:
            self.host.acquire()

    def hand_over(self, result: Tensor) -> None:
        """Let the stream of the thread's own group use a result on the GPU."""
        if (stream := getattr(self.thread, "stream", None)) is not None:
            result.record_stream(stream)

    def take_part(self, play_round: PlayRound, group: list[Live], stream: torch.cuda.Stream | None) -> None:
        """Play a group's round in this thread."""
        with self.host:
            self.thread.stream = stream
            try:
                with after(self.default, stream):
                    play_round(group)
            finally:
                del self.thread.stream


@contextmanager
def after(present: torch.cuda.Stream | None, other: torch.cuda.Stream | None) -> Generator[None]:
    """A context in another stream, between what the present one was given before and what it is given afterwards.

    Without a GPU there are no streams.
    """
    if present is None or other is None:
        yield
        return
    other.wait_stream(present)
    with torch.cuda.stream(other):
        yield
    present.wait_stream(other)


def shared(executor: Executor) -> Executor:
    """The executor, so that two groups may use it in turns if that is of use."""
    return executor if executor.turns is None else cast("Executor", SharedExecutor(executor))


def in_turns(executor: Executor, play_round: PlayRound, active: list[Live]) -> None:
    """Play a round of all runs: in two groups, if each has enough jobs for the GPU."""
    if not isinstance(executor, SharedExecutor) or (split := middle(active, executor.turns.jobs)) is None:
        play_round(active)
        return
    main, streams = is_main(), executor.streams

    def second() -> None:
        for_main.set(main)
        executor.take_part(play_round, active[split:], streams[1])

    waiting = executor.helper.submit(second)
    try:
        executor.take_part(play_round, active[:split], streams[0])
    finally:
        waiting.exception()  # an interrupted round does not leave the other group behind, still at work
    waiting.result()


def middle(active: list[Live], jobs: int) -> int | None:
    """Where to cut the runs in two groups, each of which selects at least `jobs` clients; None if it has fewer.

    Neighbours are often on the same clients, whose batches they share: they stay together.
    """
    split = len(active) // 2
    groups = active[:split], active[split:]
    return split if all(sum(live.fed.m for live in group) >= jobs for group in groups) else None
