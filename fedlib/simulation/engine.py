"""The round loop: many runs of one shape advance together.

Every figure compares several samplers over several seeds on one setting. These runs share a dataset, a model and a
kind of local work. Therefore one call of an executor trains all (run, client, draw) jobs of a round, and one call
answers the questions of all samplers. Each run still draws from its own streams, so it gives the same numbers alone or
together with others.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedlib.algorithms import aggregation_weights
from fedlib.data.partition import Partition
from fedlib.errors import SamplerError
from fedlib.files import say
from fedlib.samplers import (
    Gradients,
    Losses,
    Question,
    Report,
    Selection,
    ServerLosses,
    TrialLosses,
    Updates,
    read_only,
)
from fedlib.settings.schema import MOST_QUESTIONS, Run
from fedlib.simulation.evaluation import evaluate, segment_means, weights_of
from fedlib.simulation.guard import Watch
from fedlib.simulation.live import Answer, Live, check, check_clients, plain
from fedlib.simulation.turns import in_turns, shared
from fedlib.streams import Purpose
from fedlib.training.contract import Executor, Trained

AT_ONCE = 2**30  # bytes of updates that are kept at once for a question to which clients send something else


def shape_of(run: Run) -> str:
    """What runs must have in common to advance together, as a string."""
    shared = {"dataset": True, "scaling": True, "model": True, "local": True}
    method = {"algorithm": True, "algorithm_params": True}
    return json.dumps(run.model_dump(mode="json", include={**shared, "method": method}), sort_keys=True)


@cache
def freeze() -> None:
    """Once in a process: searching the imported objects for garbage stops all threads for a tenth of a second."""
    gc.freeze()
    atexit.register(gc.unfreeze)


class Lockstep:
    """Runs of one shape (`shape_of`), and the executor that trains them all.

    strict: raise whatever a run's methods raise. Otherwise only that run ends, and its `failed` says why.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        partitions: Sequence[Partition],
        executor: Executor,
        strict: bool = True,
    ) -> None:
        self.executor, self.strict = shared(executor), strict
        self.live = [Live(run, part, executor) for run, part in zip(runs, partitions, strict=True)]
        self.raise_failures()
        freeze()

    @property
    def active(self) -> list[Live]:
        """The runs that are not done."""
        return [live for live in self.live if not live.done]

    def raise_failures(self) -> None:
        for live in self.live:
            if self.strict and live.failed:
                raise live.failed

    def advance(self) -> None:
        """Advance every unfinished run by one round. A run that fails in a round leaves no trace of that round."""
        started = time.perf_counter()
        active = self.active
        in_turns(self.executor, self.play_round, active)
        share = (time.perf_counter() - started) / len(active)
        for live in active:
            if not live.failed:
                live.rows[-1]["seconds"] = share
                if live.diverged:
                    say(
                        f"{live.name} diverged in round {live.t}: its model holds values that are not finite, and the "
                        "run ends here; a lower local.lr may help."
                    )
        self.raise_failures()

    def play_round(self, active: list[Live]) -> None:
        """One round of a group of runs."""
        self.record([(live, {}) for live in active if not live.rows])
        for live in active:
            live.t += 1
            live.begin_round()
        drawn = self.train_selected(self.select(active))
        rows = [
            (live, row)
            for live, selection, report in drawn
            if (row := self.drawn_row(live, selection, report))
        ]
        for live in active:
            live.holds, live.asked = (
                Counter(),
                {},
            )  # the global model is new: clients that are asked about it need it first
        learn: list[tuple[Live, tuple[Report, ...]]] = [
            (live, (report,)) for live, _, report in drawn if live.learns and not live.deserted
        ]
        if learn:
            self.converse("observe", learn)
        self.record([(live, row) for live, row in rows if not live.failed])

    def select(self, active: list[Live]) -> list[tuple[Live, Selection]]:
        """Which clients each run's sampler picks; runs that fail are left out."""
        selections = []
        asked = [live for live in active if not live.deserted]
        for live, chosen in zip(asked, self.converse("select", [(live, ()) for live in asked]), strict=True):
            if not live.failed:
                with live.trying("select"):
                    selection = check(live, chosen, live.round("select") if live.presence else None)
                    selections.append(
                        (live, live.presence.met(live, selection) if live.presence else selection)
                    )
        selections += [(live, Selection(np.zeros(0, int))) for live in active if live.deserted]
        return selections

    # -- questions ---------------------------------------------------------------------------------------------

    def converse(
        self, phase: Literal["select", "observe"], calls: list[tuple[Live, tuple[Report, ...]]]
    ) -> list[Any]:
        """Call a method of every run's sampler. Where it yields questions, answer those of all runs in batches.

        Returns what each method returned; the entry of a failed run means nothing.
        """
        results: list[Any] = [None] * len(calls)
        talks: dict[int, Generator] = {}
        pending: dict[int, Any] = {}
        watch = Watch()

        def step(i: int, act: Callable[..., Any], *arguments: Any) -> None:
            live = calls[i][0]
            with live.trying(phase, watch):
                try:
                    pending[i] = act(*arguments)
                    accept(live, pending[i])
                except StopIteration as stop:
                    results[i] = stop.value
                    pending.pop(i, None)
            if live.failed:
                pending.pop(i, None)

        for i, (live, reports) in enumerate(calls):
            method = getattr(live.sampler, phase)
            with live.trying(phase, None if inspect.isgeneratorfunction(method) else watch):
                results[i] = method(live.round(phase), *reports)
            if isinstance(results[i], Generator) and not live.failed:
                talks[i] = results[i]
                step(i, next, talks[i])
        while pending:
            kind = type(next(iter(pending.values())))
            batch = [i for i, question in pending.items() if type(question) is kind]
            answers = self.answer(kind, [(calls[i][0], pending.pop(i)) for i in batch])
            watch.touched()  # discards changes that answering made
            for i, answer in zip(batch, answers, strict=True):
                if not calls[i][0].failed:  # it may have failed in `encode`
                    step(i, talks[i].send, read_only(answer))
        return results

    def answer(self, kind: type[Question], asked: list[tuple[Live, Any]]) -> list[Any]:
        """Answer questions of one kind; a failed run's entry means nothing.

        In a world, absent clients do not answer, and answering takes time.
        """
        reached = [(live, live.presence.reached(q) if live.presence else q) for live, q in asked]
        some = [(live, question) for live, question in reached if question is not None]
        for live, question in some:
            if live.presence:
                live.presence.wait_for(live, question)
        made = iter(kind.answer(self, some) if some else ())
        answers = [None if question is None else next(made) for _, question in reached]
        return [
            live.presence.complete(live, question, answer) if live.presence else answer
            for (live, question), answer in zip(asked, answers, strict=True)
        ]

    def updates(self, asked: list[tuple[Live, Updates]]) -> list[np.ndarray | None]:
        """Answer `Updates`: train the clients that have not trained, and return their encoded updates."""
        small = [(live, question) for live, question in asked if not self.in_blocks(live, question)]
        self.train_once(
            {(id(live), int(k)): (live, int(k)) for live, question in small for k in question.clients}
        )
        for live, question in asked:
            clients = [int(k) for k in question.clients]
            live.send_model(clients, live.algorithm.payload * live.algorithm.models)
            each = self.executor.layout.sent if question.parameters is None else question.parameters
            live.costs.parameters_up += len(clients) * each
            live.costs.scalars_up += len(clients) * question.scalars
            if question.parameters is None:
                live.uploaded |= set(clients)
        return [
            self.encoded_in_blocks(live, question)
            if self.in_blocks(live, question)
            else self.encode(live, question, self.asked_updates(live, question.clients))
            for live, question in asked
        ]

    def asked_updates(self, live: Live, clients: np.ndarray) -> Tensor:
        """(n, d) the updates of clients that were trained in this round."""
        return torch.stack([live.asked[int(k)].update[: live.fed.d] for k in clients])

    def in_blocks(self, live: Live, question: Updates) -> bool:
        """Whether the updates that are asked for are too large to be kept; where answers may be late, they are kept."""
        size = len(question.clients) * self.executor.layout.d * 4
        alone = live.presence is None and live.algorithm.models == 1
        return size > AT_ONCE and question.encode is not Updates.encode and alone

    def encoded_in_blocks(self, live: Live, question: Updates) -> np.ndarray | None:
        """The encoded updates, where the updates themselves are forgotten: who is selected later trains again."""
        rows = max(1, AT_ONCE // (self.executor.layout.d * 4))
        made: list[np.ndarray] = []
        for clients in np.split(question.clients, range(rows, len(question.clients), rows)):
            self.train_once({int(k): (live, int(k)) for k in clients})
            part = self.encode(live, question, self.asked_updates(live, clients))
            if part is None:
                return None
            made.append(part)
            for k in map(int, clients):
                live.asked[k] = replace(live.asked[k], update=None)
        return np.concatenate(made)

    def encode(self, live: Live, question: Updates, updates: Tensor) -> np.ndarray | None:
        """The clients' encoded updates (n, d), computed in as many parts as there are threads; None if that fails."""
        parts = np.array_split(updates.cpu().numpy(), min(len(updates), self.executor.threads))
        watch = Watch()
        with live.trying("encode"):
            made = list(self.executor.pool.map(question.encode, parts))
            rows = [len(part) for part in made]
            if rows != [len(part) for part in parts]:
                raise SamplerError(
                    f"it must return one row per client; for {len(updates)} clients it returned {sum(rows)} rows"
                )
            if touched := watch.touched():
                raise SamplerError(f"it drew from the global generator of {' and '.join(touched)}")
            return np.concatenate(made)
        return None

    def gradients(self, asked: list[tuple[Live, Gradients]]) -> list[np.ndarray]:
        """Answer `Gradients`: one array (n, d) per question."""
        jobs = [
            live.job(r, k, purpose="question")
            for r, (live, question) in enumerate(asked)
            for k in question.clients
        ]
        start = torch.stack([live.models[0] for live, _ in asked])
        out = self.executor.gradients(jobs, start, asked[0][0].run.local.batch)
        for live, question in asked:
            live.send_model(question.clients, 1)
            live.costs.parameters_up += len(question.clients) * self.executor.layout.sent
            live.costs.client_steps += len(question.clients)
        out = out[:, : asked[0][0].fed.d].cpu().numpy()
        return np.split(out, np.cumsum([len(question.clients) for _, question in asked])[:-1])

    def losses(self, asked: list[tuple[Live, Losses]]) -> list[np.ndarray]:
        """Answer `Losses`: one array (n,) per question."""
        for live, question in asked:
            live.send_model(question.clients, 1)
        start = torch.stack([live.models[0] for live, _ in asked])
        return self.client_losses(start, [(live, question.clients) for live, question in asked])

    def trial_losses(self, asked: list[tuple[Live, TrialLosses]]) -> list[np.ndarray]:
        """Answer `TrialLosses`: one array (n,) per question."""
        trained = self.train([(live, int(k), 0) for live, question in asked for k in question.train], "probe")
        trial, done = [], 0
        for live, question in asked:
            n = len(question.train)
            trial.append(live.models[0] + trained.updates[done : done + n].mean(0))
            live.send_model(question.train, 1)
            live.costs.parameters_up += n * self.executor.layout.sent
            live.costs.client_steps += int(trained.steps[done : done + n].sum())
            live.costs.parameters_down += len(question.clients) * self.executor.layout.sent
            done += n
        return self.client_losses(torch.stack(trial), [(live, question.clients) for live, question in asked])

    def server_losses(self, asked: list[tuple[Live, ServerLosses]]) -> list[np.ndarray]:
        """Answer `ServerLosses`: one array (n,) per question."""
        return [self.losses_of_teams(live, question.teams) for live, question in asked]

    def losses_of_teams(self, live: Live, teams: Sequence[Sequence[int]]) -> np.ndarray:
        """(n,) mean loss on the server's samples of the model that each team's updates lead to."""
        if live.received is None:
            raise SamplerError("it asks for the server's losses before anything arrived; ask in observe")
        start, clients, updates = live.received
        rows = live.server_samples()
        out = []
        for team in teams:
            places = list(map(int, team))
            share = torch.as_tensor(live.fed.shares(clients[places]) if places else [], dtype=updates.dtype)
            model = start + share.to(updates.device) @ updates[places]
            losses, _ = self.executor.evaluate(model[None], "train", [rows])
            out.append(float(losses[0].mean(dtype=float)))
        return np.array(out)

    def client_losses(self, models: Tensor, asked: list[tuple[Live, np.ndarray]]) -> list[np.ndarray]:
        """Mean loss of model r on the data of run r's asked clients; models: (R, d) -> R arrays (n,)."""
        parts = [[live.partition.asked[int(k)] for k in clients] for live, clients in asked]
        losses, _ = self.executor.evaluate(models, "train", [np.concatenate(part) for part in parts])
        for (live, clients), part in zip(asked, parts, strict=True):
            live.costs.scalars_up += len(clients)
            live.costs.samples_evaluated += sum(map(len, part))
        return [
            segment_means(
                loss, [len(p) for p in part], weights_of(self.executor, "train", np.concatenate(part))
            )
            for loss, part in zip(losses, parts, strict=True)
        ]

    # -- training ----------------------------------------------------------------------------------------------

    def train_once(self, wanted: dict[Any, tuple[Live, int]]) -> None:
        """Train each (run, client) that has not trained in this round yet, and remember its results."""
        missing = [
            (live, k, 0) for live, k in wanted.values() if k not in live.asked or live.asked[k].update is None
        ]
        if not missing:
            return
        trained = self.train(missing)
        for i, (live, k, _) in enumerate(missing):
            live.costs.client_steps += 0 if k in live.asked else int(trained.steps[i])
            live.asked[k] = Answer(trained.updates[i], float(trained.losses[i]), int(trained.steps[i]))

    def train_selected(
        self, selections: list[tuple[Live, Selection]]
    ) -> list[tuple[Live, Selection, Report]]:
        """Local training of every selected client, the next global models, and the reports for the samplers."""
        again = []  # the second and later draws of a client train again
        for live, selection in selections:
            seen: Counter[int] = Counter()
            for k in map(int, selection.clients):
                if seen[k]:
                    again.append((live, k, seen[k]))
                seen[k] += 1
        self.train_once({(id(live), int(k)): (live, int(k)) for live, s in selections for k in s.clients})
        extra: dict[tuple[int, int, int], Answer] = {}
        if again:
            trained = self.train(again)
            for i, (live, k, draw) in enumerate(again):
                extra[id(live), k, draw] = Answer(
                    trained.updates[i], float(trained.losses[i]), int(trained.steps[i])
                )
                live.costs.client_steps += int(trained.steps[i])
        reports = []
        for live, selection in selections:
            with live.trying("aggregate"):
                reports.append((live, selection, self.aggregate(live, selection, extra)))
        return reports

    def aggregate(
        self, live: Live, selection: Selection, extra: dict[tuple[int, int, int], Answer]
    ) -> Report:
        """The next global model of one run. Updates are summed in sorted client order, whatever their order was."""
        d, algorithm = live.fed.d, live.algorithm
        clients = np.asarray(selection.clients, dtype=int)
        seen: Counter[int] = Counter()
        answers = []
        for k in clients.tolist():
            answers.append(extra[id(live), k, seen[k]] if seen[k] else live.asked[k])
            arrived = k in live.uploaded and not seen[k]
            live.costs.parameters_up += self.executor.layout.sent * (algorithm.payload - arrived)
            seen[k] += 1
        live.send_model(clients, algorithm.payload * algorithm.models)
        if live.presence:
            selection, answers = live.presence.end(live, selection, answers)
            clients = np.asarray(selection.clients, dtype=int)
        squared = self.squared(live, clients) if "squared" in live.sampler.reads else None
        if len(clients) == 0:
            algorithm.rest()
            report = Report(
                read_only(clients),
                read_only(np.zeros((0, d), np.float32)),
                read_only(np.zeros(0)),
                squared=squared,
            )
            return live.presence.report(report) if live.presence else report
        order = np.argsort(clients, kind="stable")
        updates = torch.stack([answers[i].update for i in order])
        if ServerLosses in (live.sampler.asks or ()):
            live.received = (live.models[0].clone(), clients, updates[torch.as_tensor(np.argsort(order))])
        live.models = algorithm.aggregate(
            live.models,
            clients[order],
            np.array([live.assigned.get(k, 0) for k in clients[order].tolist()]),
            aggregation_weights(live.rule, selection, live.fed.sizes)[order],
            updates,
            np.array([answers[i].steps for i in order]),
            live.run.local.lr_at(live.t),
        )
        finite = torch.isfinite(live.models)
        live.diverged = not bool((finite if live.constant is None else finite | live.constant).all())
        back = np.argsort(order)
        losses = np.array([answer.loss for answer in answers])
        report = Report(
            read_only(clients),
            read_only(updates[:, :d].cpu().numpy()[back]),
            read_only(losses),
            squared=squared,
        )
        return live.presence.report(report) if live.presence else report

    def squared(self, live: Live, clients: np.ndarray) -> np.ndarray:
        """(n,) mean squared loss of each client's training samples at the model that the round began with.

        A client computes it while it trains, so nothing is charged.
        """
        if not len(clients):
            return np.zeros(0)
        parts = [live.partition.train[int(k)] for k in clients]
        losses, _ = self.executor.evaluate(live.models[:1], "train", [np.concatenate(parts)])
        return read_only(segment_means(losses[0].astype(float) ** 2, [len(part) for part in parts]))

    def train(self, wanted: list[tuple[Live, int, int]], purpose: Purpose = "local") -> Trained:
        """Local training of (run, client, draw) jobs from the runs' current global models, in the order of `wanted`."""
        lives = list({id(live): live for live, _, _ in wanted}.values())
        first = dict(
            zip(map(id, lives), np.cumsum([0] + [len(v.models) for v in lives]).tolist(), strict=False)
        )
        start = torch.cat([live.models for live in lives])
        for live in lives:
            if live.algorithm.models > 1:
                self.assign(live, [k for other, k, _ in wanted if other is live])
        rows = [first[id(live)] + live.assigned.get(k, 0) for live, k, _ in wanted]
        starts = gather(wanted, lambda live, clients: live.algorithm.starts(clients, live.models))
        if starts is not None:
            start, rows = starts, list(range(len(wanted)))
        jobs = [live.job(row, k, draw, purpose) for row, (live, k, draw) in zip(rows, wanted, strict=True)]
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
        if lives[0].constant is not None:
            for part in trained:
                part.updates[:, lives[0].constant] = 0  # infinity minus infinity is not a number
        if len(parts) == 1:
            return trained[0]
        back = np.argsort(np.concatenate(parts))
        return Trained(
            torch.cat([part.updates for part in trained])[torch.as_tensor(back)],
            np.concatenate([part.losses for part in trained])[back],
            np.concatenate([part.steps for part in trained])[back],
        )

    def assign(self, live: Live, clients: list[int]) -> None:
        """Choose the model that each client starts from, by the models' losses on its training data (IFCA)."""
        part = [live.partition.train[k] for k in clients]
        rows = [np.concatenate(part)] * len(live.models)
        losses, _ = self.executor.evaluate(live.models, "train", rows)
        weights = weights_of(self.executor, "train", rows[0])
        by_client = np.stack([segment_means(loss, [len(p) for p in part], weights) for loss in losses])
        live.costs.samples_evaluated += len(live.models) * len(rows[0])
        live.assigned |= dict(zip(clients, live.algorithm.assign(by_client).tolist(), strict=True))

    # -- measuring ---------------------------------------------------------------------------------------------

    def drawn_row(self, live: Live, selection: Selection, report: Report) -> dict[str, Any] | None:
        """The drawn clients' part of a results row, taken before the sampler sees the report; None on failure."""
        with live.trying("notes"):
            losses, notes = report.losses, selection.notes
            return {
                "clients": [int(k) for k in selection.clients],
                "local_loss": float(losses.mean()) if len(losses) else np.nan,
                "local_loss_std": float(losses.std()) if len(losses) else np.nan,
                "notes": json.dumps(notes, default=plain) if notes else None,
            }
        return None

    def record(self, rows: list[tuple[Live, dict[str, Any]]]) -> None:
        """Add a row of results to each run, and measure the models of runs where that is due."""
        due = [live for live, _ in rows if live.due and not live.diverged]
        measured = dict(zip(map(id, due), evaluate(self.executor, due), strict=True))
        for live, drawn in rows:
            row: dict[str, Any] = {"round": live.t, "clients": [], "notes": None, "diverged": live.diverged}
            world = live.presence.row() if live.presence else {}
            costs = vars(live.costs) | {"seconds": 0.0}
            live.rows.append(row | drawn | measured.get(id(live), {}) | world | costs)


def accept(live: Live, question: Any) -> None:
    """Check that a run's sampler yielded a question, and not more questions than allowed.

    Raises:
        SamplerError: it is not a question, is one too many, or names clients that do not exist.
    """
    kind = type(question)
    if not isinstance(question, Question):
        raise SamplerError(f"it yielded a {kind.__name__}, which is not a question")
    if live.sampler.asks is not None and kind not in live.sampler.asks:
        raise SamplerError(f"it yielded {kind.__name__}, which its `asks` does not list; add it there")
    most = live.run.questions or MOST_QUESTIONS
    live.questions += 1
    if live.questions > most:
        raise SamplerError(f"it asked more than {most} questions in one round; if it must, set `questions`")
    for sent in ("parameters", "scalars"):
        count = getattr(question, sent, 0)
        if count is not None and (not isinstance(count, int | np.integer) or count < 0):
            raise SamplerError(
                f"{sent} of its {kind.__name__} is {count!r}; it must be how many numbers a client sends, 0 or more"
            )
    for named in ("clients", "train"):
        if hasattr(question, named):
            clients = check_clients(live, f"{named} of its {kind.__name__}", getattr(question, named))
            if live.presence:
                live.presence.check_named(clients, f"{named} of its {kind.__name__}")


def gather(
    wanted: list[tuple[Live, int, int]], vectors: Callable[[Live, list[int]], Tensor | None]
) -> Tensor | None:
    """Stack the vectors of each run's algorithm for its clients into (n, d), in the order of `wanted`; None if none."""
    clients: dict[int, tuple[Live, list[int], list[int]]] = {}
    for i, (live, k, _) in enumerate(wanted):
        _, ks, places = clients.setdefault(id(live), (live, [], []))
        ks.append(k)
        places.append(i)
    parts = [(vectors(live, ks), places) for live, ks, places in clients.values()]
    if parts[0][0] is None:
        return None
    stacked = torch.cat([part for part, _ in parts])  # ty: ignore[invalid-argument-type]  # all runs have one algorithm
    return stacked[torch.as_tensor(np.argsort(np.concatenate([places for _, places in parts])))]
