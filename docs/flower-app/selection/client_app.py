"""A client: Flower's train and evaluate functions; `Answers` answers the sampler's questions."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlib.flower import Answers
from selection import task


def data(context: Context):
    return task.client_data(int(context.node_config["partition-id"]), int(context.run_config["clients"]))


app = ClientApp(mods=[Answers(size=lambda context: len(data(context)[1]))])


@app.train()
def train(message: Message, context: Context) -> Message:
    x, y = data(context)
    weight, bias = (array.numpy() for array in message.content["arrays"].values())
    weight, bias, loss = task.train(weight, bias, x, y)
    arrays = ArrayRecord({"weight": Array(weight), "bias": Array(bias)})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y), "steps": task.STEPS})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    x, y = data(context)
    weight, bias = (array.numpy() for array in message.content["arrays"].values())
    loss, _, _ = task.loss_and_gradients(weight, bias, x, y)
    metrics = MetricRecord({"eval_loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
