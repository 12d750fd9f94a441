"""A Flower strategy in which a sampler chooses the clients."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlib.algorithms import FedAvg, aggregation_weights
from fedlib.errors import ConfigError, SamplerError, meant
from fedlib.flower import state
from fedlib.flower.questions import Asker, ClientResult, Metrics, only, problem
from fedlib.flower.records import FlatModel, all_metrics
from fedlib.flower.wire import Request, TimedGrid, Wire, is_count
from fedlib.samplers import SAMPLERS, Aggregation, Federation, Report, Round, Sampler, Selection
from fedlib.samplers.registry import load_all
from fedlib.simulation.checks import check
from fedlib.simulation.ledger import Costs, earlier_draws
from fedlib.streams import Purpose, stream

log = logging.getLogger("flwr")  # whose messages Flower shows
Evaluate = Callable[[int, ArrayRecord], "MetricRecord | None"]


class SamplerStrategy(Strategy):
    """FedAvg with the clients that a sampler of `fedlib` selects; the sampler's questions become messages to clients.

    Clients number themselves 0 to N - 1 (`Answers`). The sampler sees which of them have a node at the start of a round
    (`Round.available`), the seconds since the start (`Round.time`), and how long each update took (`Report.seconds`).

    A client that fails or disappears is asked again `retries` times and then left out of its round: the remaining
    clients are averaged by the same rule, the sampler's report lists it as missing, and in the answer to a question the
    mean of the others replaces its row. A round continues even if no client returns; one in which no node is there is
    skipped.

    sampler: a sampler of `fedlib.samplers`, your own, or a name.
    N: clients of the federation, which must all be there at the beginning. m: clients per round.
    seed: of everything that the sampler draws. aggregation: None for the sampler's own rule.
    output: names of the output layer's weight and bias, for samplers that use it; None: the last two arrays.
    metrics: names that your functions give to their losses and numbers.
    evaluate_every: all clients evaluate after every so many rounds (0: never).
    store: a folder for the state, so that a stopped server continues with the next round.

    `rows` has one row per round: the clients that returned, with their `seconds`, and those that are `missing`; the
    `clock` and how many were `available`; the costs and losses in the columns of the engine's results; the measures of
    the server (`by_server`) and of the clients (`by_clients`).

    Raises:
        ConfigError: an argument is unknown or impossible.
        SamplerError: no client answers, or the sampler needs what a real federation cannot tell.
        StoreError: the store holds the state of another strategy.
    """

    def __init__(
        self,
        sampler: Sampler | str,
        *,
        N: int,
        m: int,
        seed: int = 0,
        aggregation: Aggregation | None = None,
        output: tuple[str, str] | None = None,
        metrics: Metrics | None = None,
        evaluate_every: int = 0,
        retries: int = 1,
        store: Path | str | None = None,
    ) -> None:
        if isinstance(sampler, str) and sampler not in load_all():
            raise ConfigError(f"unknown sampler {sampler!r}; {meant(sampler, SAMPLERS)}")
        if isinstance(sampler, type) and issubclass(sampler, Sampler):
            sampler = sampler()
        if not isinstance(sampler, str | Sampler):
            raise ConfigError(f"sampler is of type {type(sampler).__name__}; give a sampler, or its name.")
        if aggregation is not None and aggregation not in get_args(Aggregation):
            raise ConfigError(
                f"unknown aggregation {aggregation!r}; {meant(aggregation, get_args(Aggregation))}"
            )
        lowest = {"N": 1, "m": 1, "seed": 0, "evaluate_every": 0, "retries": 0}
        for name, value in zip(lowest, (N, m, seed, evaluate_every, retries), strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest[name]:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number from {lowest[name]}.")
        if m > N:
            raise ConfigError(f"m = {m} clients per round must be between 1 and N = {N}.")
        if metrics is not None and not isinstance(metrics, Metrics):
            raise ConfigError(
                f"metrics is of type {type(metrics).__name__}; give fedlib.flower.Metrics(...)."
            )
        if store is not None and (not isinstance(store, str | Path) or not str(store).strip()):
            raise ConfigError(f"store is {store!r}; it must be the path of a folder.")
        self.sampler = SAMPLERS[sampler]() if isinstance(sampler, str) else sampler
        self.N, self.m, self.seed, self.output = N, m, seed, output
        self.rule = aggregation or self.sampler.aggregation
        self.metrics = metrics or Metrics()
        self.evaluate_every, self.retries = evaluate_every, retries
        self.store = Path(store).expanduser() if store else None
        self.name = type(self.sampler).__name__
        self.rows: list[dict[str, Any]] = []

    def summary(self) -> None:
        chosen = f"{self.name} chooses {self.m} of {self.N} clients per round"
        log.info("%s, %s, seed %d", chosen, self.rule, self.seed)

    # -- all rounds --------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """As in Flower. Rounds in the store count among the `num_rounds`."""
        self.run = uuid.uuid4().hex  # of this start: clients' results from another are not used
        self.model = FlatModel.of(initial_arrays, self.output)
        usable = partial(problem, model=self.model, metrics=self.metrics)
        self.wire = Wire(TimedGrid(grid), self.N, timeout, self.retries, usable)
        self.arrays, self.rows, self.rounds_done = initial_arrays, [], 0
        self.config = dict(train_config or {})
        saved = state.load(self.store, self.settings())
        self.wire.sizes = dict(enumerate(saved["sizes"])) if saved else {}
        self.wire.wait_for(self.N)
        self.fed = self.federation(num_rounds)
        self.sampler.setup(self.fed, stream(self.seed, "setup"))
        self.started = time.monotonic()
        if saved:
            self.rounds_done, self.rows = saved["t"], saved["rows"]
            self.started -= self.rows[-1].get("clock", 0.0)
            self.arrays = self.model.record(saved["model"], initial_arrays)
            self.sampler.load_state_dict(saved["sampler"])

        def end_of_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            measured = None
            if server_round or not self.rounds_done:
                self.rows += [] if server_round else [{"round": 0}]
                measured = evaluate_fn(self.rows[-1]["round"], arrays) if evaluate_fn else None
                self.rows[-1]["by_server"] = dict(measured or {})
                self.save()
            return measured

        remaining = max(0, num_rounds - self.rounds_done)
        super().start(
            self.wire.grid, self.arrays, remaining, timeout, train_config, evaluate_config, end_of_round
        )
        return self.result()

    def federation(self, T: int) -> Federation:
        """What the sampler is told. No server knows its clients' labels, so all their counts are 0."""
        known_parts = {"output layer"} if self.model.output else set()
        lacking = sorted(self.sampler.needs - known_parts)
        if lacking:
            named = lacking[0] == "output layer"
            how = "name it by output=(weight, bias)" if named else "it is a reference only"
            raise SamplerError(f"{self.name} needs the {lacking[0]} of the model or clients; {how}.")
        return Federation(
            sizes=np.array([self.wire.sizes[k] for k in range(self.N)]),
            label_counts=np.zeros((self.N, self.model.output_shape[0]), int),
            m=self.m,
            T=T,
            d=self.model.n_trained,
            output_weight=self.model.output_weight,
            output_bias=self.model.output_bias,
        )

    def result(self) -> Result:
        """Flower's result for all rounds, including those before a stop."""
        result, costs = Result(arrays=self.arrays), {*vars(Costs()), "local_loss", "local_loss_std"}
        for row in self.rows:
            for metrics, target in (
                ({key: row[key] for key in costs & set(row)}, result.train_metrics_clientapp),
                (row.get("by_clients"), result.evaluate_metrics_clientapp),
                (row.get("by_server"), result.evaluate_metrics_serverapp),
            ):
                if metrics:
                    target[row["round"]] = MetricRecord(metrics)
        return result

    # -- a round -----------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Ask the sampler, which may ask the clients; then make the messages to the selected clients."""
        self.t, self.arrays, self.began = self.rounds_done + server_round, arrays, time.monotonic()
        self.wire.begin_round()
        self.available = np.array(sorted(self.wire.nodes), dtype=int)
        common = {"server-round": self.t, "run": self.run, "seed": self.seed, **config}
        self.asker = Asker(self.wire, self.model, self.metrics, arrays, common)
        self.selection = self.selected() if len(self.available) else Selection(np.zeros(0, dtype=int))
        clients = self.selection.clients.tolist()
        self.draws = list(zip(clients, earlier_draws(clients), strict=True))  # (client, draw)
        self.requests = self.asker.selected(self.draws)
        return self.wire.messages(self.requests, range(len(self.requests)))

    def selected(self) -> Selection:
        """What the sampler selects. Clients without a node may be among it: they are missing."""
        round = self.round("select")
        selection = self.asker.converse(self.sampler.select, round)
        whole = len(self.available) == self.N
        return check(
            self, selection, None if whole else dataclasses.replace(round, available=self.fed.everyone)
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global model, from all results that arrived; then the sampler observes them."""
        trained = self.collect(replies)
        came = [draw for draw in self.draws if draw in trained]
        missing = [k for k, draw in self.draws if (k, draw) not in trained]
        results = [trained[draw] for draw in came]
        selection = only(self.selection, [draw in trained for draw in self.draws])
        updates = (
            np.stack([t.flat - self.asker.start for t in results]) if results else np.zeros((0, self.model.d))
        )
        if results:
            self.arrays = self.model.record(self.aggregated(selection, updates, results), self.arrays)
        self.asker.ask_about(self.arrays)
        losses = np.array([t.loss for t in results])
        seconds = np.array([self.wire.trained[draw] - self.began for draw in came])
        report = Report(
            selection.clients, updates[:, : self.fed.d].astype(np.float32), losses, missing, seconds
        )
        if len(self.available):
            self.asker.converse(self.sampler.observe, self.round("observe"), report)
        costs = dict(vars(self.asker.ledger.costs))
        if results:
            costs |= {"local_loss": float(losses.mean()), "local_loss_std": float(losses.std())}
        if not np.isfinite(self.model.flat(self.arrays)).all():
            raise SamplerError(
                f"the model of round {self.t} is not finite, although every client's is: their updates are too large; "
                "lower the clients' learning rate."
            )
        labels = {"round": self.t, "clients": [int(k) for k in selection.clients], "missing": missing}
        times = {"clock": self.clock, "available": len(self.available), "seconds": seconds.tolist()}
        self.rows.append(labels | times | {"notes": self.selection.notes} | costs)
        return self.arrays, MetricRecord(costs)

    def collect(self, replies: Iterable[Message]) -> dict[tuple[int, int], ClientResult]:
        """(client, draw) -> result of its training, for all results that arrived, at any time of the round."""
        results = {(k, 0): trained for k, trained in self.asker.trained.items() if (k, 0) in self.draws}
        for request, content in zip(self.requests, self.wire.ask(self.requests, replies), strict=True):
            if content is not None:
                draw = request.config["draw"]
                results[request.client, draw] = self.asker.arrived(request.client, content, draw)
        return results

    def aggregated(self, selection, updates: np.ndarray, results: list[ClientResult]) -> np.ndarray:
        """The next global model (d,). The updates are summed in sorted client order, as in the engine."""
        order = np.argsort(selection.clients, kind="stable")
        new = FedAvg().aggregate(
            torch.from_numpy(self.asker.start)[None],
            selection.clients[order],
            np.zeros(len(order), int),
            aggregation_weights(self.rule, selection, self.fed.sizes)[order],
            torch.from_numpy(updates[order]),
            np.array([t.steps for t in results])[order],
            lr=0.0,  # plain averaging does not use it
        )
        return new[0].numpy()

    @property
    def clock(self) -> float:
        """Seconds since the start of the federation, without those between a stop and the next start."""
        return time.monotonic() - self.started

    def round(self, purpose: Purpose) -> Round:
        round = self.fed.round(self.t, stream(self.seed, purpose, self.t), self.available)
        return dataclasses.replace(round, time=self.clock)

    # -- evaluation by the clients -----------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        if not self.evaluate_every or self.t % self.evaluate_every:
            return []
        config_now = {"server-round": self.t, **config}
        requests = [Request(k, "evaluate", arrays, config_now) for k in sorted(self.wire.nodes)]
        return self.wire.messages(requests, range(len(requests)))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Mean of every metric that all replies have, weighted by the clients' numbers of samples."""
        key = self.metrics.examples
        replied: list[dict[str, float]] = []
        for reply in replies:
            client = next((k for k, n in self.wire.nodes.items() if n == reply.metadata.src_node_id), None)
            if reply.has_error():
                continue  # Flower has logged it
            metrics = {
                name: value
                for name, value in all_metrics(reply.content).items()
                if isinstance(value, int | float)
            }
            if key not in metrics:
                raise SamplerError(
                    f"client {client} evaluates by {', '.join(metrics) or 'nothing'}, without {key!r}, "
                    "by which means are weighted; name it in the strategy, metrics=Metrics(examples=...)."
                )
            if not is_count(metrics[key]) or not np.isfinite(list(metrics.values())).all():
                log.warning("client %s sent what cannot be used: %s", client, metrics)
                continue
            replied.append(metrics)
        weights = [metrics[key] for metrics in replied]
        if not sum(weights):
            log.warning("no client evaluated the model of round %d on any sample", self.t)
            return None
        names = sorted(set.intersection(*map(set, replied)) - {key})
        if some := sorted(set.union(*map(set, replied)) - {key, *names}):
            if not names:
                raise SamplerError(
                    f"clients evaluate by different names ({', '.join(some)}); let all use the same."
                )
            log.warning("not every client sends %s; there is no mean of it", ", ".join(some))
        values = {name: [metrics[name] for metrics in replied] for name in names}
        means = {name: float(np.average(values[name], weights=weights)) for name in names}
        self.rows[-1]["by_clients"] = means
        return MetricRecord(means)

    # -- state -------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What must be equal for a saved state to be continued."""
        fields = {f.name: getattr(self.sampler, f.name) for f in dataclasses.fields(self.sampler)}
        identity = {"sampler": self.name, "fields": fields, "N": self.N, "m": self.m, "seed": self.seed}
        identity |= {"train_config": {key: repr(value) for key, value in self.config.items()}}
        return identity | {"rule": self.rule, "model": self.model.shapes}

    def save(self) -> None:
        if self.store:
            state_now = {
                "t": self.rows[-1]["round"],
                "model": self.model.flat(self.arrays),
                "sizes": self.fed.sizes,
                "sampler": self.sampler.state_dict(),
                "rows": self.rows,
            }
            state.save(self.store, self.settings(), state_now)
