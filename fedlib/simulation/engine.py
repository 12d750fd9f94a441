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
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import torch

from fedlib.algorithms import aggregation_weights
from fedlib.data.partition import Partition
from fedlib.files import say
from fedlib.kernels.threads import one_thread
from fedlib.samplers import Question, Report, Selection, ServerLosses, read_only
from fedlib.settings.schema import Run
from fedlib.simulation.checks import accept, check, plain
from fedlib.simulation.clients import ClientSide
from fedlib.simulation.evaluation import evaluate
from fedlib.simulation.guard import GlobalDraws
from fedlib.simulation.ledger import earlier_draws
from fedlib.simulation.live import Live
from fedlib.simulation.presence import Answer, together
from fedlib.simulation.turns import in_turns, shared
from fedlib.training.contract import Executor


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


class Lockstep(ClientSide):
    """Runs of one shape (`shape_of`), and the executor that trains all their clients.

    strict: raise whatever a run's methods raise. Otherwise only that run ends, and its `failed` says why.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        partitions: Sequence[Partition],
        executor: Executor,
        strict: bool = True,
    ) -> None:
        super().__init__(shared(executor))
        self.strict = strict
        self.live = [Live(run, part, executor) for run, part in zip(runs, partitions, strict=True)]
        self.raise_failures()
        freeze()

    @property
    def active(self) -> list[Live]:
        """The runs that have not ended."""
        return [live for live in self.live if not live.ended]

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

    @one_thread()
    def play_round(self, active: list[Live]) -> None:
        """One round of a group of runs. The executor's workers have the cores, so all else uses one."""
        self.record([(live, {}) for live in active if not live.rows])
        for live in active:
            live.t += 1
            live.begin_round()
        reports = self.train_selected(self.select(active))
        rows = [
            (live, row)
            for live, selection, report in reports
            if (row := self.drawn_row(live, selection, report))
        ]
        for live in active:
            live.ledger.new_model()
            live.answers = {}
        learn: list[tuple[Live, tuple[Report, ...]]] = [
            (live, (report,))
            for live, _, report in reports
            if live.learns and not (live.deserted and not len(report.clients))
        ]
        if learn:
            self.converse("observe", learn)
        self.record([(live, row) for live, row in rows if not live.failed])

    def select(self, active: list[Live]) -> list[tuple[Live, Selection]]:
        """Which clients each run's sampler picks; runs that fail are left out.

        An asynchronous server asks again in a round, whenever a client has answered.
        """
        chosen: dict[int, list[Selection]] = {id(live): [] for live in active}
        while asking := [live for live in active if live.asks()]:
            choices = self.converse("select", [(live, ()) for live in asking])
            for live, choice in zip(asking, choices, strict=True):
                if not live.failed:
                    with live.trying("select"):
                        selection = check(live, choice, live.round("select") if live.presence else None)
                        chosen[id(live)].append(
                            live.presence.met(live, selection) if live.presence else selection
                        )
                live.choices += 1
        return [(live, together(chosen[id(live)])) for live in active if not live.failed]

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
        watch = GlobalDraws()

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

    def answer(self, kind: type[Question], questions: list[tuple[Live, Any]]) -> list[Any]:
        """Answer questions of one kind; a failed run's entry means nothing.

        In a world, absent clients do not answer, and answering takes time.
        """
        reached = [(live, live.presence.reached(q) if live.presence else q) for live, q in questions]
        askable = [(live, question) for live, question in reached if question is not None]
        for live, question in askable:
            if live.presence:
                live.presence.wait_for(live, question)
        replies = iter(kind.answer(self, askable) if askable else ())
        answers = [None if question is None else next(replies) for _, question in reached]
        return [
            live.presence.complete(live, question, answer) if live.presence else answer
            for (live, question), answer in zip(questions, answers, strict=True)
        ]

    # -- training ----------------------------------------------------------------------------------------------

    def train_selected(
        self, selections: list[tuple[Live, Selection]]
    ) -> list[tuple[Live, Selection, Report]]:
        """Local training of every selected client, the next global models, and the reports for the samplers."""
        repeated = [  # the second and later draws of a client train again
            (live, int(k), draw)
            for live, selection in selections
            for k, draw in zip(selection.clients, earlier_draws(selection.clients), strict=True)
            if draw
        ]
        self.train_once({(id(live), int(k)): (live, int(k)) for live, s in selections for k in s.clients})
        extra: dict[tuple[int, int, int], Answer] = {}
        if repeated:
            for (live, k, draw), answer in zip(repeated, self.answers_of(repeated), strict=True):
                extra[id(live), k, draw] = answer
                live.ledger.train(answer.steps)
        reports = []
        for live, selection in selections:
            with live.trying("aggregate"):
                reports.append((live, selection, self.aggregate(live, selection, extra)))
        return reports

    def aggregate(
        self, live: Live, selection: Selection, extra: dict[tuple[int, int, int], Answer]
    ) -> Report:
        """The next global model of one run. Updates are summed in sorted client order, whatever their order was."""
        algorithm = live.algorithm
        draws = np.asarray(selection.clients, dtype=int).tolist()
        answers = [
            extra[id(live), k, draw] if draw else live.answers[k]
            for k, draw in zip(draws, earlier_draws(draws), strict=True)
        ]
        live.send_model(draws, algorithm.payload * algorithm.models)
        if live.presence:
            selection, answers = live.presence.end(live, selection, answers)
        else:
            live.ledger.upload_draws(draws, algorithm.payload)
        clients = np.asarray(selection.clients, dtype=int)
        squared = self.squared(live, clients) if "squared" in live.sampler.reads else None
        if len(clients):
            updates = self.move(live, selection, answers)
        else:
            self.moved(live, algorithm.skip(live.models, live.run.local.lr_at(live.t)))
            updates = np.zeros((0, live.fed.d), np.float32)
        losses = np.array([answer.loss for answer in answers])
        report = Report(read_only(clients), read_only(updates), read_only(losses), squared=squared)
        return live.presence.report(report) if live.presence else report

    def move(self, live: Live, selection: Selection, answers: Sequence[Answer]) -> np.ndarray:
        """Move a run's model by the updates that arrived; returns what its sampler sees of them, (n, d)."""
        clients = np.asarray(selection.clients, dtype=int)
        order = np.argsort(clients, kind="stable")
        back = np.argsort(order)
        updates = torch.stack([answers[i].update for i in order])
        if ServerLosses in (live.sampler.asks or ()):
            live.received = (live.models[0].clone(), clients, updates[torch.as_tensor(back)])
        live.algorithm.rates = np.array([answers[i].lr for i in order])
        live.algorithm.ages = np.array([live.t - answers[i].t for i in order])
        if live.algorithm.reads_local:
            live.algorithm.local = [answers[i].local for i in order]
        models = live.algorithm.aggregate(
            live.models,
            clients[order],
            np.array([answers[i].model for i in order]),
            aggregation_weights(live.rule, selection, live.fed.sizes)[order],
            updates,
            np.array([answers[i].steps for i in order]),
            live.run.local.lr_at(live.t),
        )
        self.moved(live, models)
        return updates[:, : live.fed.d].cpu().numpy()[back]

    def moved(self, live: Live, models: torch.Tensor) -> None:
        """Set a run's next global models, and note whether they are finite."""
        live.models = models
        finite = torch.isfinite(models)
        live.diverged = not bool((finite if live.constant is None else finite | live.constant).all())

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
        for live, drawn_part in rows:
            row: dict[str, Any] = {"round": live.t, "clients": [], "notes": None, "diverged": live.diverged}
            world = live.presence.row() if live.presence else {}
            costs = vars(live.costs) | {"seconds": 0.0}
            live.rows.append(row | drawn_part | measured.get(id(live), {}) | world | costs)
