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


class InProcess(Grid):
    """clients: which of them are there, by their numbers; client k is node 1000 + k unless `move`d."""

    def __init__(
        self, app: ClientApp, clients: Iterable[int], fault: Fault = lambda client, message: ""
    ) -> None:
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

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
            context = self.contexts[message.metadata.dst_node_id]
            client = context.node_config["partition-id"]
            self.sent.append((client, message))
            fault = self.fault(client, message)
            if fault == "silence":
                continue
            try:
                if fault:
                    raise RuntimeError("the battery is empty")
                replies.append(self.app(message, context))
            except Exception as error:
                replies.append(Message(Error(code=0, reason=str(error)), reply_to=message))
        return replies[::-1]  # in no order that one may rely on

    def set_run(self, run) -> None: ...

    def run(self): ...

    def create_message(self, *arguments, **named): ...

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...
