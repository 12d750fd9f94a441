"""Losses on the server's own samples, and clients' squared losses, against plain computations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from test_pins import SETTING

from fedlib.data import datasets, partition
from fedlib.errors import SamplerError
from fedlib.samplers import SAMPLERS, Report, Round, Sampler, Selection, ServerLosses, register
from fedlib.settings.params import build, merge
from fedlib.simulation.clients import TEAMS
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor


@pytest.fixture
def curious() -> Iterator[type[Sampler]]:
    """A sampler that asks for the losses of `teams`, and keeps what it learns in `heard`."""

    @register("curious")
    class Curious(Sampler):
        asks = frozenset({ServerLosses})
        reads = frozenset({"squared"})
        teams = None

        def select(self, round: Round) -> Selection:
            return Selection(round.rng.choice(round.available, round.m, replace=False))

        def observe(self, round: Round, report: Report):
            teams = type(self).teams(len(report.clients))
            losses = yield ServerLosses(teams)
            type(self).heard.append((report, losses))

    Curious.heard = []
    yield Curious
    SAMPLERS.pop("curious")


def lockstep(seed: int = 0, **changes: Any) -> Lockstep:
    run = build(merge(SETTING, {"method": {"sampler": "curious"}, "T": 2} | changes), seed, "curious")
    data = datasets.load("digits")
    parts = [partition.make(run.partition, data, run.N, run.seed)]
    return Lockstep([run], parts, make_executor(run.model, datasets.tensors(data), "cpu"))


def losses_by_hand(runs: Lockstep, flat: torch.Tensor, rows: np.ndarray) -> np.ndarray:
    """Cross-entropy of every sample under a flat model, by torch alone."""
    data, net = datasets.tensors(datasets.load("digits")), runs.executor.net
    torch.nn.utils.vector_to_parameters(flat.clone(), net.parameters())
    with torch.no_grad():
        scores = net(data.x_train[rows])[0]
    return torch.nn.functional.cross_entropy(scores, data.y_train[rows], reduction="none").numpy()


def test_losses_of_mean_models_on_samples_that_no_client_has(curious: type[Sampler]) -> None:
    """More teams than are measured at once: each team's model is recomputed, weighted by sizes."""
    rng = np.random.default_rng(0)
    drawn = [
        [],
        *(sorted(rng.choice(5, rng.integers(1, 6), replace=False).tolist()) for _ in range(TEAMS + 3)),
    ]
    curious.teams = lambda n: drawn
    runs = lockstep(validation=40)
    (live,) = runs.live
    rows = live.server_samples
    assert len(set(rows.tolist())) == 40
    assert not set(rows.tolist()) & set(np.concatenate(live.partition.train).tolist())
    while runs.active:
        before = live.models[0].clone()
        runs.advance()
        report, losses = curious.heard[-1]
        sizes = live.partition.sizes[report.clients].astype(float)
        for team, loss in zip(drawn, losses, strict=True):
            model = before
            for i in team:
                share = sizes[i] / sizes[team].sum()
                model = model + np.float32(share) * torch.from_numpy(report.updates[i].copy())
            assert loss == pytest.approx(losses_by_hand(runs, model, rows).mean(), rel=1e-4)
    assert live.rows[-1]["samples_evaluated"] == 0, "the server's work is no client's"


def test_every_sampler_of_a_seed_has_the_same_samples_and_seeds_have_others(curious: type[Sampler]) -> None:
    rows = [lockstep(validation=40, seed=seed).live[0].server_samples.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_squared_losses_are_of_training_samples_at_the_rounds_first_model(curious: type[Sampler]) -> None:
    curious.teams = lambda n: [[]]
    runs = lockstep(validation=10)
    (live,) = runs.live
    while runs.active:
        before = live.models[0].clone()
        runs.advance()
        report, _ = curious.heard[-1]
        expected = [
            (losses_by_hand(runs, before, live.partition.train[k]) ** 2).mean() for k in report.clients
        ]
        assert report.squared == pytest.approx(np.array(expected), rel=1e-4)


def test_squared_losses_are_only_told_to_samplers_that_read_them(curious: type[Sampler]) -> None:
    curious.teams, curious.reads = (lambda n: [[]]), frozenset()
    runs = lockstep(validation=10)
    runs.advance()
    assert curious.heard[-1][0].squared is None


@pytest.mark.bad_input
@pytest.mark.parametrize("validation", [None, 10**6])
def test_too_few_samples_are_one_sentence(curious: type[Sampler], validation: int | None) -> None:
    curious.teams = lambda n: [[0]]
    changes = {} if validation is None else {"validation": validation}
    with pytest.raises(
        SamplerError, match=r"set validation to at most \d+, the number of training samples that"
    ):
        lockstep(**changes).advance()


@pytest.mark.bad_input
def test_asking_before_anything_arrived_is_refused(curious: type[Sampler]) -> None:
    def select(self, round: Round):
        yield ServerLosses([[]])
        return Selection(round.available[: round.m])

    curious.select = select
    with pytest.raises(SamplerError, match="before anything arrived; ask in observe"):
        lockstep(validation=10).advance()
