"""The mod that a client adds to its `ClientApp` to answer a sampler's questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedlib.flower.records import flatten, only_arrays

Call = Callable[[Message, Context], Message]
ASK = "fedlib-ask"  # key of our messages' config: about, train, encoded or gradient
KEPT = "fedlib-kept"  # key of a client's state: the result of training for a question, until it is selected


def partition_id(context: Context) -> int:
    """The client's number, from a simulation or from `flower-supernode --node-config "partition-id=3"`."""
    return int(context.node_config["partition-id"])


@dataclass
class Answers:
    """A Flower mod around a client's own train and evaluate functions: `ClientApp(mods=[Answers(size=...)])`.

    The functions are Flower's: `train` replies with the trained arrays and its mean loss, `evaluate` with the loss of
    the arrays that it received. The mod needs neither torch nor the server's model.

    size: number of training samples of the client. client: its number, 0 to N - 1.
    gradient: for samplers that ask for `Gradients`. Like `train`, but it replies with the mean gradient of one
        mini-batch, under the names of the arrays.
    encode: what the client computes from its update before a selection, if the sampler asks for it: (1, d) -> (1, ...),
        for example `HCSFed(R=0.1).encode` or `importance.norms`. None: the client sends its complete update, which the
        server encodes; the cost is that of the complete update.
    """

    size: Callable[[Context], int]
    client: Callable[[Context], int] = partition_id
    gradient: Call | None = None
    encode: Callable[[np.ndarray], np.ndarray] | None = None

    def __call__(self, message: Message, context: Context, call_next: Call) -> Message:
        config = message.content.config_records.get("config", {})
        handlers = {
            "about": self.identify,
            "train": self.train,
            "encoded": self.encoded,
            "gradient": self.one_step,
        }
        if config.get(ASK) not in handlers:
            return call_next(message, context)
        return handlers[config[ASK]](message, context, call_next)

    def identify(self, message: Message, context: Context, call_next: Call) -> Message:
        metrics = {"client": self.client(context), "size": self.size(context)}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    def train(self, message: Message, context: Context, call_next: Call) -> Message:
        """Train a selected client, or return the result that it kept when it was asked in this round."""
        result = context.state.pop(KEPT, None)
        if result is None or result["of"] != work_of(message):
            return call_next(message, context)
        records = {name: context.state.pop(f"{KEPT}.{name}") for name in result["names"]}
        return Message(RecordDict(records), reply_to=message)

    def encoded(self, message: Message, context: Context, call_next: Call) -> Message:
        """Train, keep the result, and send the encoded update; without `encode`, send the complete result."""
        reply = call_next(message, context)
        if self.encode is None or reply.has_error():
            return reply
        for name, record in reply.content.items():
            context.state[f"{KEPT}.{name}"] = record
        context.state[KEPT] = ConfigRecord({"of": work_of(message), "names": list(reply.content)})
        names = message.content["config"]["names"]
        update = flatten(only_arrays(reply.content), names) - flatten(only_arrays(message.content), names)
        encoded = Array(np.asarray(self.encode(update[None]))[0])
        content = {name: record for name, record in reply.content.items() if isinstance(record, MetricRecord)}
        return Message(
            RecordDict({"encoded": ArrayRecord({"encoded": encoded}), **content}), reply_to=message
        )

    def one_step(self, message: Message, context: Context, call_next: Call) -> Message:
        if self.gradient is None:
            raise ValueError("the sampler asks for gradients; give Answers a `gradient` function.")
        return self.gradient(message, context)


def work_of(message: Message) -> str:
    """Text that identifies the training that a message asks for: equal for equal work."""
    config = message.content["config"]
    return f"{config['run']}, round {config['server-round']}, draw {config['draw']}"
