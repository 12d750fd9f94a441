"""A Flower grid in one process, whose nodes can be made to fail: what the runtimes do, without their seconds."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Fault = Callable[[int, Message], str]  # (client, message) -> "", "error" or "silence"
Delay = Callable[[int, Message], float]  # (client, message) -> seconds until its reply is there


class Clock:
    """Stands in for the module `time`: sleeping takes no time, but the clock moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class InProcess(Grid):
    """clients: which of them are there, by their numbers; client k is node 1000 + k unless `move`d.

    clock: on which replies are `delay`ed; None: they are there at once.
    """

    def __init__(
        self,
        app: ClientApp,
        clients: Iterable[int],
        fault: Fault = lambda client, message: "",
        clock: Clock | None = None,
        delay: Delay = lambda client, message: 0.0,
    ) -> None:
        self.clock, self.delay = clock or Clock(), delay
        self.replies: list[tuple[float, Message]] = []
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = (
            1,
            1,
            1,
        )  # as Flower's simulation does
        self.app, self.fault = app, fault
        self.contexts: dict[int, Context] = {}
        self.sent: list[tuple[int, Message]] = []
        for k in clients:
            self.join(k, 1000 + k)

    def join(self, client: int, node: int) -> None:
        self.contexts[node] = Context(
            1, node, UserConfig({"partition-id": client}), RecordDict(), UserConfig()
        )

    def leave(self, node: int) -> None:
        del self.contexts[node]

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(uuid.uuid4().hex)
            message.metadata.__dict__["_message_id"] = ids[-1]
            context = self.contexts[message.metadata.dst_node_id]
            client = context.node_config["partition-id"]
            self.sent.append((client, message))
            fault = self.fault(client, message)
            if fault == "silence":
                continue
            try:
                if fault:
                    raise RuntimeError("the battery is empty")
                reply = self.app(message, context)
            except Exception as error:
                reply = Message(Error(code=0, reason=str(error)), reply_to=message)
            self.replies.append((self.clock.now + self.delay(client, message), reply))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ids, ready, later = set(message_ids), [], []
        for due, reply in self.replies:
            here = due <= self.clock.now and reply.metadata.reply_to_message_id in ids
            (ready if here else later).append((due, reply))
        self.replies = later
        return [reply for _, reply in ready][::-1]  # in no order that one may rely on

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise AssertionError("the strategy waits for replies itself")

    def set_run(self, run) -> None: ...

    def run(self): ...

    def create_message(self, *arguments, **named): ...
