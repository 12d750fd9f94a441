"""Messages between two processes: each is one line of JSON, followed by the raw arrays that the line announces.

An array stands in the line as {"array": "<f4", "shape": [2, 3]}: NumPy's name of its type, and its shape. The bytes of
all arrays follow the line in their order there, row by row. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

import numpy as np

TEXT = 2**24  # bytes of a line, at most
RAW = 2**28  # bytes of a message's arrays, at most


class Broken(Exception):
    """The other process has ended, does not answer in time, or says what is no message. The text says which."""


def packed(message: dict[str, Any]) -> bytes:
    """A message as bytes.

    Raises:
        TypeError, ValueError: it holds what JSON has no form for, such as NaN outside of an array.
    """
    arrays: list[bytes] = []

    def announced(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            raise TypeError(
                f"a {type(value).__name__} is neither a number, a text, an array, a list nor a mapping"
            )
        arrays.append(np.ascontiguousarray(value).tobytes())
        return {"array": value.dtype.str, "shape": value.shape}

    line = json.dumps(message, default=announced, allow_nan=False)
    return b"".join([line.encode(), b"\n", *arrays])


def unpacked(line: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The message that a line holds, and its arrays, which are still empty.

    Raises:
        ValueError: the line is no message.
    """
    arrays: list[np.ndarray] = []

    def read(found: dict[str, Any]) -> Any:
        if set(found) != {"array", "shape"}:
            return found
        kind = np.dtype(str(found["array"]))
        size = kind.itemsize * int(np.prod([int(n) for n in found["shape"]], dtype=object))
        if kind.kind not in "biuf" or not 0 <= size <= RAW - sum(array.nbytes for array in arrays):
            raise ValueError("an array of a kind or size that no message has")
        arrays.append(np.empty(found["shape"], kind))
        return arrays[-1]

    try:
        message = json.loads(line, object_hook=read)
    except (RecursionError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, dict):
        raise ValueError("not a mapping")
    return message, arrays


def opened(content: bytes) -> dict[str, Any]:
    """The message that `packed` made.

    Raises:
        ValueError: it is cut off, or no message.
    """
    line, _, raw = content.partition(b"\n")
    message, arrays = unpacked(line)
    for array in arrays:
        view = bytes_of(array)
        view[:], raw = raw[: len(view)], raw[len(view) :]
    return message


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array, to be written."""
    return array.data.cast("B") if array.size else memoryview(bytearray())


class Channel:
    """Two pipes: what is read from one process, and what is written to it."""

    def __init__(self, inward: int, outward: int) -> None:
        self.inward, self.outward = inward, outward
        self.waiting = b""

    def send(self, message: dict[str, Any], seconds: float | None = None) -> None:
        """Write a message. seconds: within which it must be taken; None: for ever.

        Raises:
            Broken: it is not taken.
        """
        content, deadline = memoryview(packed(message)), _deadline(seconds)
        while content:
            self._wait(self.outward, select.POLLOUT, deadline)
            try:
                content = content[os.write(self.outward, content) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Broken("its process has ended") from None

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Read a message. seconds: within which it must be complete; None: for ever.

        Raises:
            Broken: none comes.
        """
        deadline, start = _deadline(seconds), 0
        while (end := self.waiting.find(b"\n", start)) < 0:
            start = len(self.waiting)
            if start > TEXT:
                raise Broken("it says more than a message holds")
            self.waiting += self._more(deadline)
        line, self.waiting = self.waiting[:end], self.waiting[end + 1 :]
        try:
            message, arrays = unpacked(line)
        except ValueError as error:
            raise Broken(f"it says what is no message ({error})") from None
        for array in arrays:
            view, filled = bytes_of(array), 0
            while filled < len(view):
                part = self.waiting or self._more(deadline)
                taken = min(len(part), len(view) - filled)
                view[filled : filled + taken] = part[:taken]
                filled, self.waiting = filled + taken, part[taken:]
        return message

    def _more(self, deadline: float | None) -> bytes:
        self._wait(self.inward, select.POLLIN, deadline)
        try:
            part = os.read(self.inward, 2**20)
        except BlockingIOError:
            return b""
        if not part:
            raise Broken("its process has ended")
        return part

    def _wait(self, fd: int, event: int, deadline: float | None) -> None:
        if deadline is None:
            return
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise Broken("it does not answer in time")


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
