"""A run whose server is asynchronous: it takes a step when `size` updates have arrived, whichever model they are from.

A round is such a step. The model moves only at its end, so all clients that begin in a round begin with one model, and
they are trained together as in any other round; an update that arrives later is kept until then. Moments are whole
microseconds, and of those who answer in the same one, lower ids come first: the order of events depends on nothing but
the run's own settings and seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from fedlib.algorithms import aggregation_weights
from fedlib.errors import SamplerError
from fedlib.samplers import Federation, Round, Selection, read_only
from fedlib.samplers.checks import memory
from fedlib.settings.world import Buffer, Hinge, Polynomial
from fedlib.simulation.ledger import earlier_draws
from fedlib.simulation.presence import Answer, Flying, InRound, Presence, detached, joined
from fedlib.world.availability import TICKS
from fedlib.world.clock import ROUND, ticks

MOST_CHOICES = 10_000  # choices of a sampler in one round
PENDING = Answer(torch.zeros(0), np.nan, 0, 0.0, 0)  # of a client that is trained at the end of the round


@dataclass(eq=False)
class Flight(Flying):
    """An update on its way, from the second at which its client was selected.

    t, place: the round in which it was selected, and its place among the draws of that round. seconds: that it takes.
    parameters: that the client sends. lost: at second `at` its client leaves and has not answered.
    """

    t: int = 0
    place: int = 0
    seconds: float = 0.0
    parameters: int = 0
    lost: bool = False


class Buffered(Presence):
    """A `Presence` whose rounds end when the buffer is full.

    landed, dropped: updates that arrived in this round, and those that were lost or too old. dispatched: its draws.
    """

    flight: ClassVar[type[Flying]] = Flight
    flying: list[Flight]

    @property
    def buffer(self) -> Buffer:
        ends = self.world.settings.ends
        assert isinstance(ends, Buffer)
        return ends

    @property
    def free(self) -> int:
        """How many more clients may train now."""
        return self.m - len(self.flying)

    def check_memory(self, d: int, copies: int) -> None:
        """Raises ValueError where the machine has not the memory for the updates on their way, before the first round.

        d: parameters of an update. copies: vectors that are kept of each.
        """
        updates = self.m + self.buffer.size
        needed, there = 4 * d * copies * updates, memory()
        if needed > there:
            raise ValueError(
                f"its asynchronous server keeps up to m + size = {updates:,} updates of {d:,} parameters, "
                f"{needed / 2**30:,.0f} GiB, but this machine has {there / 2**30:,.0f} GiB; lower m or the size of the "
                "buffer, or take a smaller model"
            )

    def begin(self, t: int) -> None:
        super().begin(t)
        self.landed: list[Flight] = []
        self.dropped: list[Flight] = []
        self.dispatched: list[Flight] = []
        self._asked_at = -np.inf

    def round(self, fed: Federation, t: int, rng: np.random.Generator) -> Round:
        m = min(self.free, len(self.present))
        return Round(t, rng, read_only(self.present), m, self.world.time + self.spent)

    # -- events ------------------------------------------------------------------------------------------------

    def asks(self, choices: int) -> bool:
        """Go on to the next second at which a slot can be filled; False if the buffer is full before."""
        if choices >= MOST_CHOICES:
            raise SamplerError(
                f"it was asked {choices:,} times in one round, and {len(self.landed)} of {self.buffer.size} updates "
                "have arrived; let it choose more clients, let them stay longer, or make the buffer smaller"
            )
        world = self.world
        while True:
            self.take_arrived()
            busy = [flight.client for flight in self.flying]
            self.present = np.setdiff1d(world.present(self.t), busy)
            if len(self.landed) == self.buffer.size:
                return False
            if self.free and len(self.present) and world.time > self._asked_at:
                self._asked_at = world.time
                return True
            landing = min((flight.at for flight in self.flying), default=np.inf)
            coming = world.next_change() if self.free else np.inf
            moment = min(landing, coming)
            world.time = world.time + ROUND if moment == np.inf else max(moment, world.time)

    def take_arrived(self) -> None:
        """Take what has arrived by now, until the buffer is full."""
        due = sorted(
            (flight for flight in self.flying if flight.at <= self.world.time),
            key=lambda flight: (flight.at, flight.client, flight.t, flight.place),
        )
        arrivals = set()
        for flight in due:
            if len(self.landed) == self.buffer.size:
                break
            arrivals.add(id(flight))
            (self.dropped if flight.lost or self.too_old(flight) else self.landed).append(flight)
        self.flying = [flight for flight in self.flying if id(flight) not in arrivals]

    def too_old(self, flight: Flight) -> bool:
        return self.buffer.oldest is not None and self.t - flight.t > self.buffer.oldest

    def met(self, live: InRound, selection: Selection) -> Selection:
        """The selection, whose clients begin now."""
        clients = np.asarray(selection.clients, dtype=int)
        share = min(self.free, len(self.present)) / self.buffer.size  # of a step
        began_before = {flight.client for flight in self.dispatched}
        self.ready = set(live.answers) - began_before
        self.uploaded = live.ledger.uploaded - began_before
        self.held = live.ledger.holds.copy()
        seconds, stays = self.seconds(live, clients), self.world.stays(self.t, live.choices)
        begin, self.spent = ticks(self.world.time + self.spent), 0.0
        repeated = np.array(earlier_draws(clients.tolist()), dtype=int) > 0
        sent = live.algorithm.payload - (~repeated & np.isin(clients, list(self.uploaded)))
        weights = aggregation_weights(live.rule, selection, live.fed.sizes) if len(clients) else ()
        for i, k in enumerate(clients.tolist()):
            stay = np.inf if stays is None else float(stays[k])
            length = min(float(seconds[i]), stay)
            moment = (begin + max(1, ticks(length))) / TICKS
            if not moment > begin / TICKS:
                raise SamplerError(
                    f"the clock of its world stands still at {moment:g} s; let clients be slower"
                )
            flight = Flight(
                at=moment,
                client=k,
                answer=PENDING,
                weight=float(weights[i]) * share,
                stated=selection.weights is not None,
                expected=None if selection.expected is None else float(selection.expected[i]) / share,
                t=self.t,
                place=len(self.dispatched),
                seconds=length,
                parameters=live.ledger.size * int(sent[i]),
                lost=float(seconds[i]) > stay,
            )
            self.flying.append(flight)
            self.dispatched.append(flight)
        live.ledger.send_model(clients.tolist(), live.algorithm.payload * live.algorithm.models)
        return selection

    # -- the end of a round ------------------------------------------------------------------------------------

    def end(
        self, live: InRound, selection: Selection, answers: Sequence[Answer]
    ) -> tuple[Selection, list[Answer]]:
        """The updates in the buffer, in the order in which their clients were selected, and their answers."""
        staying = {id(flight) for flight in self.flying}
        for flight, answer in zip(self.dispatched, answers, strict=True):
            flight.answer = answer
            if id(flight) in staying:
                flight.answer = (
                    replace(answer, update=torch.zeros(0)) if flight.lost else detached(live, answer)
                )
        landed = sorted(self.landed, key=lambda flight: (flight.t, flight.place))
        old = [flight for flight in self.dropped if not flight.lost]
        live.ledger.costs.parameters_up += sum(flight.parameters for flight in landed + old)
        self.wasted = sum(flight.answer.steps for flight in self.dropped)
        self.arrived = len(landed)
        clients = np.array([flight.client for flight in landed], dtype=int)
        np.add.at(self.counts, clients, 1)
        self.additions = {
            "missing": [flight.client for flight in self.dropped],
            "seconds": read_only(np.array([flight.seconds for flight in landed])),
            "late": [flight.client for flight in landed if flight.t < self.t],
        }
        whole = joined(Selection(np.zeros(0, int), notes=selection.notes), landed, live.rule, live.fed.sizes)
        factor = self.factor(np.array([self.t - flight.t for flight in landed]))
        if factor is not None:
            weights = aggregation_weights(live.rule, whole, live.fed.sizes) * factor
            whole = replace(whole, weights=weights)
        return whole, [flight.answer for flight in landed]

    def factor(self, tau: np.ndarray) -> np.ndarray | None:
        """(n,) factors of the weights of updates that are tau (n,) rounds old; None: 1."""
        match self.buffer.staleness:
            case Polynomial(a=a):
                s = (1.0 + tau) ** -a
            case Hinge(a=a, b=b):
                s = 1 / (a * np.maximum(0, tau - b) + 1)
            case _:
                return None
        return s * len(s) / s.sum() if self.buffer.divide == "weights" else s

    def row(self) -> dict[str, Any]:
        row = super().row()
        self.world.time = ticks(self.world.time) / TICKS
        return row | {"clock": self.world.time}
