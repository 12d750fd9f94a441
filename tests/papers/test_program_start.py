"""What FedCor's program starts from: shards, model and draws that follow from its seed; the engine takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedlib.data import datasets
from fedlib.settings import params
from fedlib.settings.schema import Local, Method, Run
from workspace.analysis.reference import own_table, reference
from workspace.papers.fedcor import program_start


def test_each_client_has_one_shard_of_one_label_and_keeps_a_fifth_aside() -> None:
    y = np.repeat(np.arange(10), 20)[np.random.default_rng(0).permutation(200)]
    parts = program_start.clients(y, N=20, seed=1)
    assert (parts.labels.max(axis=1) == 10).all()
    assert (parts.labels.sum(axis=0) == 20).all(), "each label has two clients"
    assert [len(part) for part in parts.train] == [8] * 20
    everything = np.sort(np.concatenate([*parts.train, *parts.holdout]))
    assert everything.tolist() == list(range(200))
    again, other = (program_start.clients(y, N=20, seed=seed).labels for seed in (1, 2))
    assert (again == parts.labels).all()
    assert (other != parts.labels).any()


def test_the_initial_model_follows_from_the_seed_alone() -> None:
    before = torch.random.get_rng_state()
    found = program_start.model(1)
    assert torch.equal(before, torch.random.get_rng_state()), "torch's own generator is left as it was"
    bound = 1 / 28  # of a layer of 784 inputs
    assert found.shape == (784 * 64 + 64 + 64 * 30 + 30 + 30 * 10 + 10,)
    assert found.abs().max() <= 1 / np.sqrt(30)
    assert found[: 64 * 784].abs().max() <= bound
    assert not torch.equal(found, program_start.model(2))


def test_the_engine_takes_that_start_and_those_draws() -> None:
    data = datasets.load("digits")
    run = Run(
        dataset="digits",
        partition={"scheme": "shards", "shards": 1},
        holdout=0.2,
        model="fedcor_mlp",
        N=20,
        m=4,
        T=50,
        local=Local(lr=0.05, batch=10, epochs=1),
        method=Method(sampler="uniform"),
        seed=0,
    )
    fedcor = run.model_copy(update={"method": Method(sampler="fedcor", params={"warmup": 1, "gpr_begin": 0})})
    own = program_start.follow(fedcor, data, seed=3, rounds=2).live[0]
    told = program_start.draws(3, 20, 4, 2)
    assert [sorted(row["clients"]) for row in own.rows[1:]] == [sorted(chosen) for chosen in told]
    lockstep = program_start.follow(run, data, seed=3, rounds=2)
    rows = lockstep.live[0].rows
    assert [row["round"] for row in rows] == [0, 1, 2]
    drawn = [sorted(row["clients"]) for row in rows[1:]]
    assert drawn == [sorted(chosen) for chosen in program_start.draws(3, 20, 4, 2)]
    assert np.isfinite(program_start.accuracy(lockstep)).all()
    moved = lockstep.live[0].models[0] - program_start.model(3, data.x_train.shape[1:], data.n_classes)
    assert 0 < moved.norm() < 5


@pytest.mark.dataset("fmnist")
def test_the_kept_table_comes_out_again(tmp_path: Path) -> None:
    """The largest and mean differences of `same_start.csv`, of the authors' seed 1 in Random."""
    datasets.prepare("fmnist", root=tmp_path)
    planned = params.load().runs("fedcor_fmnist", "paper")
    run = next(entry.run for entry in planned if (entry.setting, entry.method) == ("1SPC", "Random"))
    authors = reference("fedcor").query(
        "experiment == 'fedcor_fmnist' and setting == '1SPC' and method == 'Random'"
    )
    again = program_start.compare(run, datasets.load("fmnist", root=tmp_path), authors, seeds=[1]).iloc[0]
    kept = own_table("same_start", index_col=[0, 1]).loc[("Random", 1)]
    assert again.to_numpy() == pytest.approx(kept.to_numpy(), abs=0.05), (
        "points of accuracy, as another processor rounds"
    )
