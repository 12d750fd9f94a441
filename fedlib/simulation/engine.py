"""The round loop: many runs of one shape advance together.

Every figure compares several samplers over several seeds on one setting. Those runs share a data set, a model and a
kind of local work, so each round's (run, client, draw) jobs of all of them are trained in one call of an executor,
and so are the answers to their samplers' questions. Each run still draws from its own streams: it gives the same
numbers alone or in company.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.data.partition import Partition
from fedlib.samplers import Gradients, Losses, Report, Selection, TrialLosses, Updates
from fedlib.settings.schema import Run
from fedlib.simulation.algorithms import aggregation_weights
from fedlib.simulation.evaluation import evaluate, segment_means
from fedlib.simulation.live import Answer, Live, SamplerError, check, check_clients, plain
from fedlib.streams import Purpose
from fedlib.training.contract import Executor, Trained

NUMERICS = 2  # part of every run's address: raise it when a change alters a number by more than rounding


def shape_of(run: Run) -> str:
    """What runs must share to advance in one batch of work."""
    shared = {"dataset", "scaling", "model", "local"}
    algorithm = run.method.algorithm, run.method.algorithm_params
    return json.dumps([run.model_dump(mode="json", include=shared), algorithm], sort_keys=True)


class Lockstep:
    """Runs of one shape (`shape_of`) and the executor that trains them all."""

    def __init__(self, runs: Sequence[Run], partitions: Sequence[Partition], executor: Executor) -> None:
        self.executor = executor
        self.live = [Live(run, part, executor) for run, part in zip(runs, partitions, strict=True)]
        # what the imports made stays: looking through it for garbage stops all threads for a tenth of a second
        if not gc.get_freeze_count():
            gc.freeze()
            atexit.register(gc.unfreeze)

    @property
    def active(self) -> list[Live]:
        return [live for live in self.live if not live.done]

    def advance(self) -> None:
        """One round of every run that is not done."""
        started = time.perf_counter()
        active = self.active
        self.record([live for live in active if not live.rows])
        for live in active:
            live.t += 1
            live.begin_round()
        chosen = self.converse([(live, live.sampler.select, (live.round("select"),)) for live in active])
        selections = [check(live, selection) for live, selection in zip(active, chosen, strict=True)]
        reports = self.train_selected(active, selections)
        for live in active:
            live.holds, live.asked = (
                Counter(),
                {},
            )  # a new global model: whoever is asked about it needs it first
        self.converse(
            [
                (live, live.sampler.observe, (live.round("observe"), report))
                for live, report in zip(active, reports, strict=True)
                if not live.diverged
            ]
        )
        self.record(active, selections, reports)
        share = (time.perf_counter() - started) / len(active)
        for live in active:
            live.rows[-1]["seconds"] = share

    # -- questions ---------------------------------------------------------------------------------------------

    def converse(self, calls: list[tuple[Live, Callable, tuple]]) -> list[Any]:
        """Call a method of every run's sampler; where it yields questions, answer all runs' questions in batches."""
        results: list[Any] = [None] * len(calls)
        talks: dict[int, Generator] = {}
        pending: dict[int, Any] = {}

        def step(i: int, act: Callable[..., Any], *arguments: Any) -> None:
            started = time.perf_counter()
            try:
                pending[i] = act(*arguments)
            except StopIteration as stop:
                results[i] = stop.value
                pending.pop(i, None)
            calls[i][0].costs.server_seconds += time.perf_counter() - started

        for i, (live, method, arguments) in enumerate(calls):
            if inspect.isgeneratorfunction(method):
                talks[i] = method(*arguments)
                step(i, next, talks[i])
            else:
                started = time.perf_counter()
                results[i] = method(*arguments)
                live.costs.server_seconds += time.perf_counter() - started
        while pending:
            kind = type(next(iter(pending.values())))
            batch = [i for i, question in pending.items() if type(question) is kind]
            for i, answer in zip(
                batch, self.answer(kind, [(calls[i][0], pending[i]) for i in batch]), strict=True
            ):
                step(i, talks[i].send, answer)
        return results

    def answer(self, kind: type, asked: list[tuple[Live, Any]]) -> list[np.ndarray]:
        """The answers to one kind of question, asked by several runs, each about its own global model."""
        known = {
            Updates: self.updates,
            Gradients: self.gradients,
            Losses: self.losses,
            TrialLosses: self.trial_losses,
        }
        if kind not in known:
            raise SamplerError(f"{asked[0][0].name} yielded a {kind.__name__}, which is no question.")
        for live, question in asked:
            for named in ("clients", "train"):
                if hasattr(question, named):
                    check_clients(live, f"{named} of its {kind.__name__}", getattr(question, named))
        return known[kind](asked)

    def updates(self, asked: list[tuple[Live, Updates]]) -> list[np.ndarray]:
        self.train_once(
            {(id(live), int(k)): (live, int(k)) for live, question in asked for k in question.clients}
        )
        for live, question in asked:
            clients = [int(k) for k in question.clients]
            live.send_model(clients, live.algorithm.payload * live.algorithm.models)
            each = self.executor.layout.d if question.parameters is None else question.parameters
            live.costs.parameters_up += len(clients) * each
            live.costs.scalars_up += len(clients) * question.scalars
            if question.parameters is None:
                live.uploaded |= set(clients)
        return [
            self.encode(
                question, torch.stack([live.asked[int(k)].update[: live.fed.d] for k in question.clients])
            )
            for live, question in asked
        ]

    def encode(self, question: Updates, updates: Tensor) -> np.ndarray:
        """What the clients make of their updates (n, d), as many at a time as there are threads."""
        parts = np.array_split(updates.cpu().numpy(), min(len(updates), self.executor.threads))
        return np.concatenate(list(self.executor.pool.map(question.encode, parts)))

    def gradients(self, asked: list[tuple[Live, Gradients]]) -> list[np.ndarray]:
        jobs = [
            live.job(r, k, purpose="question")
            for r, (live, question) in enumerate(asked)
            for k in question.clients
        ]
        start = torch.stack([live.models[0] for live, _ in asked])
        out = self.executor.gradients(jobs, start, asked[0][0].run.local.batch)
        for live, question in asked:
            live.send_model(question.clients, 1)
            live.costs.parameters_up += len(question.clients) * self.executor.layout.d
            live.costs.client_steps += len(question.clients)
        out = out[:, : asked[0][0].fed.d].cpu().numpy()
        return np.split(out, np.cumsum([len(question.clients) for _, question in asked])[:-1])

    def losses(self, asked: list[tuple[Live, Losses]]) -> list[np.ndarray]:
        for live, question in asked:
            live.send_model(question.clients, 1)
        start = torch.stack([live.models[0] for live, _ in asked])
        return self.client_losses(start, [(live, question.clients) for live, question in asked])

    def trial_losses(self, asked: list[tuple[Live, TrialLosses]]) -> list[np.ndarray]:
        trained = self.train([(live, int(k), 0) for live, question in asked for k in question.train], "probe")
        trial, done = [], 0
        for live, question in asked:
            n = len(question.train)
            trial.append(live.models[0] + trained.updates[done : done + n].mean(0))
            live.send_model(question.train, 1)
            live.costs.parameters_up += n * self.executor.layout.d
            live.costs.client_steps += int(trained.steps[done : done + n].sum())
            live.costs.parameters_down += len(question.clients) * self.executor.layout.d
            done += n
        return self.client_losses(torch.stack(trial), [(live, question.clients) for live, question in asked])

    def client_losses(self, models: Tensor, asked: list[tuple[Live, np.ndarray]]) -> list[np.ndarray]:
        """Mean loss of model r on the asked clients' data of run r; models: (R, d) -> R arrays (n,)."""
        parts = [[live.partition.asked[int(k)] for k in clients] for live, clients in asked]
        losses, _ = self.executor.evaluate(models, "train", [np.concatenate(part) for part in parts])
        for (live, clients), part in zip(asked, parts, strict=True):
            live.costs.scalars_up += len(clients)
            live.costs.samples_evaluated += sum(map(len, part))
        return [segment_means(loss, [len(p) for p in part]) for loss, part in zip(losses, parts, strict=True)]

    # -- training ----------------------------------------------------------------------------------------------

    def train_once(self, wanted: dict[Any, tuple[Live, int]]) -> None:
        """Train each (run, client) that has not trained yet this round, and remember what came back."""
        missing = [(live, k, 0) for live, k in wanted.values() if k not in live.asked]
        trained = self.train(missing) if missing else None
        for i, (live, k, _) in enumerate(missing):
            live.asked[k] = Answer(trained.updates[i], float(trained.losses[i]), int(trained.steps[i]))
            live.costs.client_steps += int(trained.steps[i])

    def train_selected(self, active: list[Live], selections: list[Selection]) -> list[Report]:
        """Local training of every selected client, the next global models, and what each server gets to see."""
        again = []  # second and later draws of a client train anew
        for live, selection in zip(active, selections, strict=True):
            seen: Counter[int] = Counter()
            for k in map(int, selection.clients):
                if seen[k]:
                    again.append((live, k, seen[k]))
                seen[k] += 1
        first = {
            (id(v), int(k)): (v, int(k)) for v, s in zip(active, selections, strict=True) for k in s.clients
        }
        self.train_once(first)
        extra: dict[tuple[int, int, int], Answer] = {}
        if again:
            trained = self.train(again)
            for i, (live, k, draw) in enumerate(again):
                extra[id(live), k, draw] = Answer(
                    trained.updates[i], float(trained.losses[i]), int(trained.steps[i])
                )
                live.costs.client_steps += int(trained.steps[i])
        return [
            self.aggregate(live, selection, extra) for live, selection in zip(active, selections, strict=True)
        ]

    def aggregate(
        self, live: Live, selection: Selection, extra: dict[tuple[int, int, int], Answer]
    ) -> Report:
        """The next global model of one run. Updates are summed in sorted client order, whatever order they came in."""
        d, algorithm = live.fed.d, live.algorithm
        clients = np.asarray(selection.clients, dtype=int)
        if len(clients) == 0:
            return Report(clients, np.zeros((0, d), np.float32), np.zeros(0))
        seen: Counter[int] = Counter()
        answers = []
        for k in clients.tolist():
            answers.append(extra[id(live), k, seen[k]] if seen[k] else live.asked[k])
            arrived = k in live.uploaded and not seen[k]
            live.costs.parameters_up += self.executor.layout.d * (algorithm.payload - arrived)
            seen[k] += 1
        live.send_model(clients, algorithm.payload * algorithm.models)
        order = np.argsort(clients, kind="stable")
        updates = torch.stack([answers[i].update for i in order])
        live.models = algorithm.aggregate(
            live.models,
            clients[order],
            np.array([live.assigned.get(k, 0) for k in clients[order].tolist()]),
            aggregation_weights(live.rule, selection, live.fed.sizes)[order],
            updates,
            np.array([answers[i].steps for i in order]),
            live.run.local.lr_at(live.t),
        )
        live.diverged = not bool(torch.isfinite(live.models).all())
        back = np.argsort(order)
        return Report(clients, updates[:, :d].cpu().numpy()[back], np.array([a.loss for a in answers]))

    def train(self, wanted: list[tuple[Live, int, int]], purpose: Purpose = "local") -> Trained:
        """Local training of (run, client, draw) jobs from the runs' current global models, in the order wanted."""
        lives = list({id(live): live for live, _, _ in wanted}.values())
        first = dict(
            zip(map(id, lives), np.cumsum([0] + [len(v.models) for v in lives]).tolist(), strict=False)
        )
        start = torch.cat([live.models for live in lives])
        for live in lives:
            if live.algorithm.models > 1:
                self.assign(live, [k for other, k, _ in wanted if other is live])
        jobs = [
            live.job(first[id(live)] + live.assigned.get(k, 0), k, draw, purpose) for live, k, draw in wanted
        ]
        linear = gather(wanted, lambda live, clients: live.algorithm.linear(clients))
        previous = gather(wanted, lambda live, clients: live.algorithm.previous(clients, live.models[0]))
        rates = np.array([live.run.local.lr_at(live.t) for live, _, _ in wanted])
        parts = [np.flatnonzero(rates == rate) for rate in np.unique(rates)]
        trained = [
            self.executor.train(
                [jobs[i] for i in part],
                start,
                wanted[0][0].run.local,
                float(rates[part[0]]),
                linear=None if linear is None else linear[part],
                previous=None if previous is None else previous[part],
            )
            for part in parts
        ]
        if len(parts) == 1:
            return trained[0]
        back = np.argsort(np.concatenate(parts))
        return Trained(
            torch.cat([part.updates for part in trained])[torch.as_tensor(back)],
            np.concatenate([part.losses for part in trained])[back],
            np.concatenate([part.steps for part in trained])[back],
        )

    def assign(self, live: Live, clients: list[int]) -> None:
        """Which of its models each client starts from, by their losses on its training data (IFCA)."""
        part = [live.partition.train[k] for k in clients]
        rows = [np.concatenate(part)] * len(live.models)
        losses, _ = self.executor.evaluate(live.models, "train", rows)
        by_client = np.stack([segment_means(loss, [len(p) for p in part]) for loss in losses])
        live.costs.samples_evaluated += len(live.models) * len(rows[0])
        live.assigned |= dict(zip(clients, live.algorithm.assign(by_client).tolist(), strict=True))

    # -- measuring ---------------------------------------------------------------------------------------------

    def record(
        self,
        lives: list[Live],
        selections: Sequence[Selection] | None = None,
        reports: Sequence[Report] | None = None,
    ) -> None:
        """Add a row of results to each run, measuring the models of those that are due."""
        due = [live for live in lives if live.due and not live.diverged]
        measured = dict(zip(map(id, due), evaluate(self.executor, due), strict=True))
        for i, live in enumerate(lives):
            row: dict[str, Any] = {"round": live.t, "clients": [], "notes": None, "diverged": live.diverged}
            if selections and reports:
                losses = reports[i].losses
                row["clients"] = [int(k) for k in selections[i].clients]
                row["local_loss"] = float(losses.mean()) if len(losses) else np.nan
                row["local_loss_std"] = float(losses.std()) if len(losses) else np.nan
                row["notes"] = json.dumps(selections[i].notes, default=plain) if selections[i].notes else None
            live.rows.append(row | measured.get(id(live), {}) | vars(live.costs) | {"seconds": 0.0})


def gather(
    wanted: list[tuple[Live, int, int]], vectors: Callable[[Live, list[int]], Tensor | None]
) -> Tensor | None:
    """Stack what each run's algorithm gives its clients into (n, d), in the order wanted; None if it gives nothing."""
    clients: dict[int, tuple[Live, list[int], list[int]]] = {}
    for i, (live, k, _) in enumerate(wanted):
        _, ks, places = clients.setdefault(id(live), (live, [], []))
        ks.append(k)
        places.append(i)
    parts = [(vectors(live, ks), places) for live, ks, places in clients.values()]
    if parts[0][0] is None:
        return None
    stacked = torch.cat([part for part, _ in parts])
    return stacked[torch.as_tensor(np.argsort(np.concatenate([places for _, places in parts])))]
