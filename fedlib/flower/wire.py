"""Messages to clients by number: which node is which client, which clients answer, and which are asked again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedlib.errors import SamplerError
from fedlib.flower.answers import ASK
from fedlib.flower.records import number

log = logging.getLogger("flwr")  # Flower shows the messages of this logger
SECONDS = 1.0  # between two checks for nodes that have joined
PULL_SECONDS = 0.2  # between two checks for replies


class TimedGrid:
    """A grid that notes when each reply arrived, on the clock of this machine.

    arrivals: id of a message -> `time.monotonic()` when its reply was there, to `PULL_SECONDS`.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.arrivals: dict[str, float] = {}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The replies that arrive within the timeout, as Flower's own grids return them."""
        waiting, replies = set(self.grid.push_messages(messages)), []
        end = math.inf if timeout is None else time.monotonic() + timeout
        while waiting:
            arrived = list(self.grid.pull_messages(waiting))
            moment = time.monotonic()
            self.arrivals |= {reply.metadata.reply_to_message_id: moment for reply in arrived}
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            replies += arrived
            if moment >= end:
                break
            if waiting:
                time.sleep(PULL_SECONDS)
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)


@dataclass(frozen=True)
class Request:
    """A request to one client. kind: "train" or "evaluate"; arrays: the model that the request is about."""

    client: int
    kind: str
    arrays: ArrayRecord
    config: dict[str, Any]

    def message(self, node: int, group: str) -> Message:
        content = RecordDict({"arrays": self.arrays, "config": ConfigRecord(self.config)})
        return Message(content, dst_node_id=node, message_type=self.kind, group_id=group)


@dataclass
class Wire:
    """The grid, and what is known about its nodes.

    N: number of clients. timeout: seconds to wait for replies. retries: how often a client that has not answered is
    asked again. problem: what is wrong with a reply, empty if nothing; a wrong reply counts as none.
    sizes: client -> number of training samples. lost: clients that were given up in this round.
    trained: (client, draw) -> when its training of this round arrived, on the clock of `TimedGrid`.
    """

    grid: TimedGrid
    N: int
    timeout: float
    retries: int
    problem: Callable[[Request, RecordDict], str]
    nodes: dict[int, int] = field(default_factory=dict)  # client -> node
    sizes: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    trained: dict[tuple[int, int], float] = field(default_factory=dict)
    why: str = ""  # reason that the last failed client gave

    def begin_round(self) -> None:
        self.lost, self.trained = set(), {}
        self.look()

    def look(self) -> None:
        """Find the nodes that are there; ask each new one for its number and its size.

        A client that returns under another node's name replaces the old node.

        Raises:
            SamplerError: two nodes that joined together claim to be the same client, or one names itself wrongly.
        """
        present = set(self.grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in present}
        new = present - set(self.nodes.values())
        config = ConfigRecord({ASK: "about"})
        messages = [Message(RecordDict({"config": config}), node, "train") for node in sorted(new)]
        joined: set[int] = set()
        for reply in self.receive(messages):
            client, size = (number(reply.content, key) for key in ("client", "size"))
            if not is_count(client) or client >= self.N:
                raise SamplerError(
                    f"a node says that it is client {client:g}; number the {self.N} clients from 0 to {self.N - 1}, by "
                    "Answers(client=...) or partition-id."
                )
            client = int(client)
            if not is_count(size):
                raise SamplerError(
                    f"client {client} says that it has {size:g} training samples; Answers(size=...) must return a "
                    "whole number."
                )
            if client in joined:
                raise SamplerError(
                    f"two nodes say that they are client {client}; give each a number of its own."
                )
            joined.add(client)
            self.nodes[client], self.sizes[client] = reply.metadata.src_node_id, int(size)

    def wait_for(self, N: int) -> None:
        """Wait until the sizes of clients 0 to N - 1 are known.

        Raises:
            SamplerError: they have not joined, or have not answered, within the timeout.
        """
        end = time.monotonic() + self.timeout
        self.look()
        while missing := set(range(N)) - set(self.sizes):
            if time.monotonic() > end:
                raise SamplerError(f"{len(missing)} of {N} clients have not said who they are{self.reason}.")
            time.sleep(SECONDS)
            self.look()
        if not any(self.sizes.values()):
            raise SamplerError("every client says that it has 0 training samples; check Answers(size=...).")

    @property
    def reason(self) -> str:
        """Why the last failed client failed, as an addition to a message."""
        return f" ({self.why})" if self.why else ""

    def receive(self, messages: Sequence[Message]) -> list[Message]:
        """The replies that arrived in time and are not errors."""
        replies = list(self.grid.send_and_receive(messages, timeout=self.timeout)) if messages else []
        for reply in replies:
            if reply.has_error():
                self.why = (reply.error.reason or f"error {reply.error.code}").strip().splitlines()[-1]
                log.warning("node %s failed: %s", reply.metadata.src_node_id, self.why)
        return [reply for reply in replies if not reply.has_error()]

    def messages(self, requests: Sequence[Request], indices: Iterable[int]) -> list[Message]:
        """The messages for the requests `which` (indices) whose client is there and was not given up."""
        return [
            requests[i].message(self.nodes[requests[i].client], str(i))
            for i in indices
            if requests[i].client in self.nodes and requests[i].client not in self.lost
        ]

    def ask(
        self, requests: Sequence[Request], replies: Iterable[Message] | None = None
    ) -> list[RecordDict | None]:
        """The reply to each request; None for clients that failed or disappeared, which are lost for this round.

        replies: those of the first attempt, if the messages have been sent already.
        """
        contents: dict[int, RecordDict] = {}
        for attempt in range(self.retries + 1):
            missing = [i for i in range(len(requests)) if i not in contents]
            if not missing:
                break
            if attempt:
                self.look()
            if attempt or replies is None:
                replies = self.receive(self.messages(requests, missing))
            for reply in replies:
                i = int(reply.metadata.group_id)
                if reply.has_error():
                    continue
                try:
                    why = self.problem(requests[i], reply.content)
                except ValueError as error:  # what it must hold is missing
                    why = str(error)
                if why:
                    self.why = why
                    log.warning("client %s sent what cannot be used: %s", requests[i].client, why)
                    continue
                contents[i] = reply.content
                if requests[i].kind == "train":
                    place = requests[i].client, requests[i].config["draw"]
                    self.trained[place] = self.grid.arrivals[reply.metadata.reply_to_message_id]
        self.lost |= {request.client for i, request in enumerate(requests) if i not in contents}
        return [contents.get(i) for i in range(len(requests))]


def is_count(value: float) -> bool:
    """Whether a metric is a whole number from 0."""
    return 0 <= value < 2**53 and value == value // 1
