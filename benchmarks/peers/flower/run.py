"""Flower's simulation runtime (Ray): a ServerApp with FedAvg, and ClientApps in as many one-thread actors as cores."""

from __future__ import annotations

import contextlib
import logging

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    from benchmarks.peers.flower.actor import data_and_net  # of the actor's own process

    x, y, net = data_and_net(options)
    client = int(context.node_config["partition-id"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = torch_model.train_client(net, x[client], y[client], work)
    metrics = MetricRecord({"loss": loss, "num-examples": work.n})
    reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=reply, reply_to=message)


class Over(Exception):
    """All rounds are measured."""


class MeasuredFedAvg(FedAvg):
    """FedAvg that remembers the model which a round starts from, and ends when all rounds are measured."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, *rest) -> list[Message]:
        self.arrays = arrays
        if next(self.rounds, "over") == "over":
            raise Over
        return super().configure_train(server_round, arrays, *rest)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(options.seed)
    net = torch_model.build(work)
    _, _, *test = torch_model.tensors(options.arrays)
    strategy = MeasuredFedAvg(
        fraction_train=work.m / work.N, fraction_evaluate=0.0, min_available_nodes=work.N
    )

    def evaluate() -> tuple[float, float]:
        net.load_state_dict(strategy.arrays.to_torch_state_dict())
        return torch_model.evaluate(net, *test)

    strategy.rounds = measured_rounds(options, evaluate, ("flwr", "ray", "torch"))
    with contextlib.suppress(Over):
        strategy.start(grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=10**6)


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=work.N,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
