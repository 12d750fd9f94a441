"""What the clients of all runs compute for their servers: local training, and answers to the samplers' questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.errors import SamplerError
from fedlib.samplers import Gradients, Losses, ServerLosses, TrialLosses, Updates, read_only
from fedlib.simulation.evaluation import part_means, segment_means
from fedlib.simulation.guard import GlobalDraws
from fedlib.simulation.live import Live
from fedlib.simulation.presence import Answer
from fedlib.streams import Purpose
from fedlib.training.contract import Executor, Trained

TEAMS = 64  # models that are measured at once on the server's samples
AT_ONCE = 2**30  # bytes of updates that are kept at once for a question to which clients send something else


class ClientSide:
    """The clients of all runs of one shape, and the executor that trains them."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    # -- training ----------------------------------------------------------------------------------------------

    def train_once(self, pairs: dict[Any, tuple[Live, int]]) -> None:
        """Train each (run, client) that has not trained in this round yet, and remember its results."""
        missing = [
            (live, k, 0)
            for live, k in pairs.values()
            if k not in live.answers or live.answers[k].update is None
        ]
        if not missing:
            return
        for (live, k, _), answer in zip(missing, self.answers_of(missing), strict=True):
            live.ledger.train(0 if k in live.answers else answer.steps)
            live.answers[k] = answer

    def answers_of(self, jobs: list[tuple[Live, int, int]]) -> list[Answer]:
        """Local training of (run, client, draw) jobs, as in `train`; the result of each."""
        trained = self.train(jobs)
        rates, rounds = [live.run.local.lr_at(live.t) for live, _, _ in jobs], [live.t for live, _, _ in jobs]
        models = [live.assigned.get(k, 0) for live, k, _ in jobs]
        rows = zip(
            trained.updates,
            trained.losses.tolist(),
            trained.steps.tolist(),
            rates,
            rounds,
            models,
            strict=True,
        )
        return [Answer(*row) for row in rows]

    def train(self, jobs: list[tuple[Live, int, int]], purpose: Purpose = "local") -> Trained:
        """Local training of (run, client, draw) jobs from the runs' current global models, in the order of `jobs`."""
        lives = list({id(live): live for live, _, _ in jobs}.values())
        first = dict(
            zip(map(id, lives), np.cumsum([0] + [len(v.models) for v in lives]).tolist(), strict=False)
        )
        start = torch.cat([live.models for live in lives])
        for live in lives:
            if live.algorithm.models > 1:
                self.assign(live, [k for job, k, _ in jobs if job is live])
        rows = [first[id(live)] + live.assigned.get(k, 0) for live, k, _ in jobs]
        starts = gather(jobs, lambda live, clients: live.algorithm.starts(clients, live.models))
        if starts is not None:
            start, rows = starts, list(range(len(jobs)))
        placed = [live.job(row, k, draw, purpose) for row, (live, k, draw) in zip(rows, jobs, strict=True)]
        linear = gather(jobs, lambda live, clients: live.algorithm.linear(clients))
        previous = gather(jobs, lambda live, clients: live.algorithm.previous(clients, live.models[0]))
        rates = np.array([live.run.local.lr_at(live.t) for live, _, _ in jobs])
        parts = [np.flatnonzero(rates == rate) for rate in np.unique(rates)]
        trained = [
            self.executor.train(
                [placed[i] for i in part],
                start,
                jobs[0][0].run.local,
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
        parts = [live.partition.train[k] for k in clients]
        rows = [np.concatenate(parts)] * len(live.models)
        losses, _ = self.executor.evaluate(live.models, "train", rows)
        by_client = np.stack([part_means(self.executor, loss, parts) for loss in losses])
        live.costs.samples_evaluated += len(live.models) * len(rows[0])
        live.assigned |= dict(zip(clients, live.algorithm.assign(by_client).tolist(), strict=True))

    def squared(self, live: Live, clients: np.ndarray) -> np.ndarray:
        """(n,) mean squared loss of each client's training samples at the model that the round began with.

        A client computes it while it trains, so nothing is charged.
        """
        if not len(clients):
            return np.zeros(0)
        parts = [live.partition.train[int(k)] for k in clients]
        losses, _ = self.executor.evaluate(live.models[:1], "train", [np.concatenate(parts)])
        return read_only(segment_means(losses[0].astype(float) ** 2, [len(part) for part in parts]))

    # -- questions ---------------------------------------------------------------------------------------------

    def updates(self, questions: list[tuple[Live, Updates]]) -> list[np.ndarray | None]:
        """Answer `Updates`: train the clients that have not trained, and return their encoded updates."""
        small = [(live, question) for live, question in questions if not self.in_blocks(live, question)]
        self.train_once(
            {(id(live), int(k)): (live, int(k)) for live, question in small for k in question.clients}
        )
        for live, question in questions:
            clients = [int(k) for k in question.clients]
            live.send_model(clients, live.algorithm.payload * live.algorithm.models)
            live.ledger.upload(clients, question.parameters, question.scalars)
        return [
            self.encoded_in_blocks(live, question)
            if self.in_blocks(live, question)
            else self.encode(live, question, self.updates_of(live, question.clients))
            for live, question in questions
        ]

    def updates_of(self, live: Live, clients: np.ndarray) -> Tensor:
        """(n, d) the updates of clients that were trained in this round."""
        return torch.stack([live.answers[int(k)].update[: live.fed.d] for k in clients])

    def in_blocks(self, live: Live, question: Updates) -> bool:
        """Whether the updates that are asked for are too large to be kept; where answers may be late, they are kept."""
        size = len(question.clients) * self.executor.layout.d * 4
        alone = live.presence is None and live.algorithm.models == 1
        return size > AT_ONCE and question.encode is not Updates.encode and alone

    def encoded_in_blocks(self, live: Live, question: Updates) -> np.ndarray | None:
        """The encoded updates, where the updates themselves are forgotten: who is selected later trains again."""
        rows = max(1, AT_ONCE // (self.executor.layout.d * 4))
        blocks: list[np.ndarray] = []
        for clients in np.split(question.clients, range(rows, len(question.clients), rows)):
            self.train_once({int(k): (live, int(k)) for k in clients})
            block = self.encode(live, question, self.updates_of(live, clients))
            if block is None:
                return None
            blocks.append(block)
            for k in map(int, clients):
                live.answers[k] = replace(live.answers[k], update=None)
        return np.concatenate(blocks)

    def encode(self, live: Live, question: Updates, updates: Tensor) -> np.ndarray | None:
        """The clients' encoded updates (n, d), computed in as many parts as there are threads; None if that fails."""
        parts = np.array_split(updates.cpu().numpy(), min(len(updates), self.executor.threads))
        watch = GlobalDraws()
        with live.trying("encode"):
            encoded = list(self.executor.pool.map(question.encode, parts))
            rows = [len(part) for part in encoded]
            if rows != [len(part) for part in parts]:
                raise SamplerError(
                    f"it must return one row per client; for {len(updates)} clients it returned {sum(rows)} rows"
                )
            if touched := watch.touched():
                raise SamplerError(f"it drew from the global generator of {' and '.join(touched)}")
            return np.concatenate(encoded)
        return None

    def gradients(self, questions: list[tuple[Live, Gradients]]) -> list[np.ndarray]:
        """Answer `Gradients`: one array (n, d) per question."""
        jobs = [
            live.job(r, k, purpose="question")
            for r, (live, question) in enumerate(questions)
            for k in question.clients
        ]
        start = torch.stack([live.models[0] for live, _ in questions])
        gradients = self.executor.gradients(jobs, start, questions[0][0].run.local.batch)
        for live, question in questions:
            live.send_model(question.clients, 1)
            live.ledger.gradients(len(question.clients))
        rows = gradients[:, : questions[0][0].fed.d].cpu().numpy()
        return np.split(rows, np.cumsum([len(question.clients) for _, question in questions])[:-1])

    def losses(self, questions: list[tuple[Live, Losses]]) -> list[np.ndarray]:
        """Answer `Losses`: one array (n,) per question."""
        for live, question in questions:
            live.send_model(question.clients, 1)
        start = torch.stack([live.models[0] for live, _ in questions])
        return self.client_losses(start, [(live, question.clients) for live, question in questions])

    def trial_losses(self, questions: list[tuple[Live, TrialLosses]]) -> list[np.ndarray]:
        """Answer `TrialLosses`: one array (n,) per question."""
        trained = self.train(
            [(live, int(k), 0) for live, question in questions for k in question.train], "probe"
        )
        trials, first = [], 0
        for live, question in questions:
            n = len(question.train)
            part = slice(first, first + n)
            trials.append(live.models[0] + trained.updates[part].mean(0))
            live.send_model(question.train, 1)
            live.ledger.trial(n, int(trained.steps[part].sum()), len(question.clients))
            first += n
        return self.client_losses(
            torch.stack(trials), [(live, question.clients) for live, question in questions]
        )

    def server_losses(self, questions: list[tuple[Live, ServerLosses]]) -> list[np.ndarray]:
        """Answer `ServerLosses`: one array (n,) per question."""
        return [self.losses_of_teams(live, question.teams) for live, question in questions]

    def losses_of_teams(self, live: Live, teams: Sequence[Sequence[int]]) -> np.ndarray:
        """(n,) mean loss on the server's samples of the model that each team's updates lead to."""
        if live.received is None:
            raise SamplerError("it asks for the server's losses before anything arrived; ask in observe")
        start, clients, updates = live.received
        rows = live.server_samples
        means = torch.zeros(len(teams), len(clients), dtype=updates.dtype)
        for i, team in enumerate(teams):
            places = list(map(int, team))
            if places:
                means[i, places] = torch.as_tensor(live.fed.shares(clients[places]), dtype=updates.dtype)
        losses: list[float] = []
        for part in means.to(updates.device).split(TEAMS):
            models = self.executor.pool.submit(torch.addmm, start, part, updates).result()
            measured, _ = self.executor.evaluate(models, "train", [rows] * len(part))
            losses += [float(loss.mean(dtype=float)) for loss in measured]
        return np.array(losses)

    def client_losses(self, models: Tensor, questions: list[tuple[Live, np.ndarray]]) -> list[np.ndarray]:
        """Mean loss of model r on the data of run r's clients; models: (R, d) -> R arrays (n,)."""
        parts = [[live.partition.asked[int(k)] for k in clients] for live, clients in questions]
        losses, _ = self.executor.evaluate(models, "train", [np.concatenate(part) for part in parts])
        for (live, clients), part in zip(questions, parts, strict=True):
            live.ledger.losses(len(clients), sum(map(len, part)))
        return [part_means(self.executor, loss, part) for loss, part in zip(losses, parts, strict=True)]


def gather(
    jobs: list[tuple[Live, int, int]], vectors: Callable[[Live, list[int]], Tensor | None]
) -> Tensor | None:
    """Stack the vectors of each run's algorithm for its clients into (n, d), in the order of `jobs`; None if none."""
    clients: dict[int, tuple[Live, list[int], list[int]]] = {}
    for i, (live, k, _) in enumerate(jobs):
        _, ks, places = clients.setdefault(id(live), (live, [], []))
        ks.append(k)
        places.append(i)
    parts = [(vectors(live, ks), places) for live, ks, places in clients.values()]
    if parts[0][0] is None:
        return None
    stacked = torch.cat([part for part, _ in parts])  # ty: ignore[invalid-argument-type]  # all runs have one algorithm
    return stacked[torch.as_tensor(np.argsort(np.concatenate([places for _, places in parts])))]
