"""What a round costs: the one place where it is counted, for the engine and for a Flower federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


def earlier_draws(clients: Iterable[int]) -> list[int]:
    """For each draw, how many of the draws before it are of the same client."""
    counts: Counter[int] = Counter()
    numbers = []
    for k in clients:
        numbers.append(counts[k])
        counts[k] += 1
    return numbers


@dataclass
class Costs:
    """The cost of one run's round, summed over the clients."""

    parameters_down: int = 0
    parameters_up: int = 0
    scalars_up: int = 0
    client_steps: int = 0
    samples_evaluated: int = 0
    server_seconds: float = 0.0


@dataclass
class Ledger:
    """The costs of one run's round, and what each client has been sent and has sent, so that nothing counts twice.

    size: numbers of one complete model or update, as it is sent.
    holds: models of this round that each client was sent. uploaded: clients whose complete update has arrived.
    """

    size: int
    costs: Costs = field(default_factory=Costs)
    holds: Counter[int] = field(default_factory=Counter)
    uploaded: set[int] = field(default_factory=set)

    def new_model(self) -> None:
        """The global model has changed: no client has it."""
        self.holds = Counter()

    def send_model(self, clients: Iterable[int], copies: int = 1) -> None:
        """Count what clients still lack of `copies` vectors: the model, and what the algorithm sends with it."""
        for k in set(map(int, clients)):
            self.costs.parameters_down += max(0, copies - self.holds[k]) * self.size
            self.holds[k] = max(copies, self.holds[k])

    def upload(self, clients: Sequence[int], parameters: int | None = None, scalars: int = 0) -> None:
        """Count what clients send of their updates before they are selected; parameters None: all of them."""
        self.costs.parameters_up += len(clients) * (self.size if parameters is None else parameters)
        self.costs.scalars_up += len(clients) * scalars
        if parameters is None:
            self.uploaded |= set(clients)

    def upload_draws(self, clients: Sequence[int], payload: int = 1) -> None:
        """Count what selected clients, one for each draw, send: `payload` vectors, less the update that has arrived."""
        for k, draw in zip(clients, earlier_draws(clients), strict=True):
            arrived = k in self.uploaded and not draw
            self.costs.parameters_up += self.size * (payload - arrived)

    def train(self, steps: int) -> None:
        """Count a client's local training."""
        self.costs.client_steps += steps

    def gradients(self, clients: int) -> None:
        """Count the gradients that so many clients compute and send."""
        self.costs.parameters_up += clients * self.size
        self.costs.client_steps += clients

    def losses(self, clients: int, samples: int) -> None:
        """Count the losses that so many clients send, and the samples on which they compute them."""
        self.costs.scalars_up += clients
        self.costs.samples_evaluated += samples

    def trial(self, trained: int, steps: int, clients: int) -> None:
        """Count a trial model: the updates of `trained` clients, and the model that other clients then receive."""
        self.costs.parameters_up += trained * self.size
        self.costs.client_steps += steps
        self.costs.parameters_down += clients * self.size
