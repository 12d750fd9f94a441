"""What a program hands over in other forms gives the same numbers, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import fedlib
from fedlib.simulation.engine import Lockstep

N, n = 6, 20
RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=N * n)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(N * n, 6))).astype(np.float32)
NAMES = ["Ulm", "Bern", "Graz", "Lyon", "Turin", "Oulu"]
OWNER = np.repeat(NAMES, n)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4))


def simulate(**options: Any) -> fedlib.Result:
    given = {"x": X, "y": Y, "clients": OWNER, "test": (X[:40], Y[:40]), "model": net}
    given |= {"methods": {"Random": "uniform"}, "m": 3, "T": 4, "threads": 1, "tell": lambda text: None}
    return fedlib.simulate(**given | {"local": fedlib.Local(lr=0.2, batch=8, epochs=1)} | options)


def numbers(result: fedlib.Result) -> pd.DataFrame:
    return result.table.drop(columns=["seconds", "server_seconds", "method", "clients"])


# -- clients and samples ---------------------------------------------------------------------------------------


@pytest.mark.outside("forms of clients and samples")
def test_each_clients_own_samples_are_a_federation() -> None:
    """Named in the order of the mapping; a list numbers them."""
    parts = {name: (X[name == OWNER], Y[name == OWNER]) for name in NAMES}
    pairs = {name: [(a, int(b)) for a, b in zip(*part, strict=True)] for name, part in parts.items()}
    by_number = simulate(clients=np.arange(N * n) // n)
    for clients, names in ((parts, NAMES), (pairs, NAMES), (list(parts.values()), list(range(N)))):
        result = simulate(x=None, y=None, clients=clients)
        assert result.clients == names
        pd.testing.assert_frame_equal(numbers(result), numbers(by_number))


class Two(nn.Module):
    """Takes floats and tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.fc = nn.Embedding(5, 3), nn.Linear(9, 4)
        self.output_layer = "fc"

    def forward(self, real: Tensor, token: Tensor, keep: Tensor) -> Tensor:
        assert token.dtype == torch.long
        assert keep.dtype == torch.bool
        return self.fc(torch.cat([real * keep[:, None], self.embedding(token)], 1))


class Joined(nn.Module):
    """The same from one array."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Two()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(x[:, :6], x[:, 6].long(), x[:, 7] > 0)


@pytest.mark.outside("forms of clients and samples")
def test_several_inputs_are_the_models_arguments() -> None:
    token, keep = RNG.integers(5, size=N * n), RNG.random(N * n) > 0.2
    several = {"real": X, "token": token, "keep": keep}
    one = np.concatenate([X, token[:, None], keep[:, None]], 1).astype(np.float32)
    options = {"metric": None, "methods": {"Random": "uniform", "HiCS-FL": "hics_fl"}}
    wanted = simulate(x=one, test=(one[:40], Y[:40]), model=Joined, methods={"Random": "uniform"})
    for x in (several, tuple(several.values())):
        part = {k: v[:40] for k, v in x.items()} if isinstance(x, Mapping) else tuple(v[:40] for v in x)
        result = simulate(x=x, test=(part, Y[:40]), model=Two, keep="last", **options)
        random = result.table[result.table["method"] == "Random"].reset_index(drop=True)
        assert random["test_loss"].to_numpy() == pytest.approx(wanted.table["test_loss"].to_numpy(), rel=1e-5)
        kept = result.model("Random")
        assert isinstance(kept, Two)
        out = kept(*(torch.as_tensor(v[:40]) for v in several.values()))
        loss = float(nn.functional.cross_entropy(out, torch.as_tensor(Y[:40])))
        assert loss == pytest.approx(random["test_loss"].iloc[-1], rel=1e-5)


# -- the clients' own test samples -----------------------------------------------------------------------------


def accuracy(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    with torch.no_grad():
        return float((model(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).float().mean())


@pytest.mark.parametrize("form", ["column", "mapping"])
def test_clients_are_measured_on_their_own_test_samples(form: str) -> None:
    x, y = X + 0.1, Y
    owner = RNG.permutation(OWNER)
    mapping = {name: (x[name == owner], y[name == owner]) for name in NAMES}
    options = (
        {"test": (x, y), "client_test": owner} if form == "column" else {"test": None, "client_test": mapping}
    )
    result = simulate(**options, keep="last", seeds=2)
    clients, model = result.per_client, result.model("Random", 1)
    mine = clients[clients["seed"] == 1].set_index("client")
    assert sorted(mine.index) == sorted(NAMES)
    for name in NAMES:
        assert mine.loc[name, "test_accuracy"] == pytest.approx(
            accuracy(model, x[name == owner], y[name == owner])
        )
        assert mine.loc[name, "samples"] == n
    row = result.table[(result.table["seed"] == 1) & (result.table["round"] == 4)].iloc[0]
    assert row["client_accuracy"] == pytest.approx(mine["test_accuracy"].mean())
    worst = result.worst().loc["Random"]
    by_seed = clients.groupby("seed")["test_accuracy"]
    assert worst["worst client"] == worst["worst tenth"] == pytest.approx(by_seed.min().mean())
    assert worst["mean"] == pytest.approx(by_seed.mean().mean())
    high = result.worst("test_loss").loc["Random"]
    assert high["worst client"] == pytest.approx(clients.groupby("seed")["test_loss"].max().mean())


def test_a_share_is_put_aside_and_not_trained_on() -> None:
    result = simulate(test=None, client_test=0.25)
    assert (result.per_client["samples"] == 15).all()
    assert result.table["client_accuracy"].notna().all()
    assert result.table["client_steps"].iloc[1] == 3 * 2
    again = simulate(test=None, client_test=0.25, seeds=[7])
    assert len(again.per_client) == N


def test_without_test_samples_clients_have_their_training_loss() -> None:
    result = simulate()
    assert list(result.per_client.columns) == ["method", "seed", "client", "samples", "train_loss"]
    measured = simulate(evaluate=fedlib.Evaluate(train=True)).table["train_loss"].iloc[-1]
    assert result.per_client["train_loss"].mean() == pytest.approx(measured)


# -- callbacks -------------------------------------------------------------------------------------------------


class Log(fedlib.Callback):
    def __init__(self, stop: int = 99) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self.losses: dict[int, float] = {}
        self.stop = stop

    def on_round(self, run, row, model):
        self.rows.append((run.method, run.seed, row["round"]))
        if row["round"] == 4 and run.method == "Random":
            out = model()(torch.from_numpy(X[:40]))
            self.losses[run.seed] = float(nn.functional.cross_entropy(out, torch.from_numpy(Y[:40])).detach())
        return run.method == "Random" and row["round"] >= self.stop


METHODS = {"Random": "uniform", "Pow-d": fedlib.samplers.PowerOfChoice(d=5)}


def test_every_row_is_told_once_with_its_model() -> None:
    log = Log()
    result = simulate(methods=METHODS, seeds=2, callbacks=[log], N=None)
    assert sorted(log.rows) == sorted((m, s, t) for m in METHODS for s in range(2) for t in range(5))
    last = result.table[(result.table["round"] == 4) & (result.table["method"] == "Random")]
    assert [log.losses[s] for s in (0, 1)] == pytest.approx(last["test_loss"].tolist(), rel=1e-5)


@pytest.mark.parametrize("stored", [False, True])
def test_a_callback_ends_its_run_alone(stored: bool, tmp_path: Path) -> None:
    options = {"methods": METHODS, "store": tmp_path if stored else None}
    whole = simulate(**options | {"store": None})
    for _ in range(2):
        result = simulate(**options, callbacks=[Log(stop=2)])
        rounds = result.table.groupby("method")["round"].max()
        assert rounds.to_dict() == {"Random": 2, "Pow-d": 4}
    on = simulate(**options)
    pd.testing.assert_frame_equal(numbers(on), numbers(whole))
    short = simulate(**options, callbacks=[Log(stop=2)], keep="last")
    net, x, y = short.model("Random"), torch.from_numpy(X), torch.from_numpy(Y)
    loss = float(nn.functional.cross_entropy(net(x), y).detach())
    wanted = short.table.query("method == 'Random'")
    mine = short.per_client.query("method == 'Random'")["train_loss"].mean()
    assert mine == pytest.approx(loss, rel=1e-5), "the model of the round in which the callback ended the run"
    assert wanted["round"].iloc[-1] == 2
    assert short.table.groupby("method")["round"].max()["Random"] == 2, "also if it was stored whole"


def test_early_stop() -> None:
    y = (X @ RNG.normal(size=6)).astype(np.float32)
    options = {"y": y, "test": (X[:40], y[:40]), "loss": nn.MSELoss(), "T": 40}
    options |= {"model": lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))}
    whole = simulate(**options).table["test_loss"].to_numpy()
    result = simulate(**options, callbacks=[fedlib.EarlyStop(patience=2)])
    losses = result.table["test_loss"].to_numpy()
    assert len(losses) < len(whole)
    assert losses.tolist() == whole[: len(losses)].tolist()
    best = np.minimum.accumulate(losses)
    assert (losses[-2:] >= best[-3]).all()
    assert not any((losses[k - 1 : k + 1] >= best[k - 2]).all() for k in range(2, len(losses) - 1))


# -- what is kept ----------------------------------------------------------------------------------------------


def test_the_last_and_the_best_model_are_kept(tmp_path: Path) -> None:
    options = {"T": 6, "test": (X[:40], Y[:40]), "local": fedlib.Local(lr=1.5, batch=8, epochs=1)}
    for store in (None, tmp_path):
        best = simulate(**options, keep="best", store=store)
        last = simulate(**options, keep="last", store=store)
        curve = last.table["test_accuracy"]
        assert accuracy(last.model("Random"), X[:40], Y[:40]) == pytest.approx(curve.iloc[-1])
        assert accuracy(best.model("Random"), X[:40], Y[:40]) == pytest.approx(curve.max())
        assert curve.max() > curve.iloc[-1], "or this shows nothing"
    with pytest.raises(fedlib.ConfigError, match="its weights were not kept; pass keep='last'"):
        simulate(**options).model("Random")
    with pytest.raises(fedlib.ConfigError, match="no run of method 'random' with seed 0; there are 'Random'"):
        last.model("random")


def test_a_result_is_saved_and_loaded(tmp_path: Path) -> None:
    result = simulate(seeds=2, keep="last", test=(X, Y), client_test=OWNER)
    result.save(tmp_path / "result.zip")
    again = fedlib.load(tmp_path / "result.zip", model=net)
    pd.testing.assert_frame_equal(again.table, result.table)
    pd.testing.assert_frame_equal(again.per_client, result.per_client)
    assert again.clients == sorted(NAMES)
    x = torch.from_numpy(X)
    assert torch.equal(again.model("Random", 1)(x), result.model("Random", 1)(x))
    assert again.summary(target=0.5).equals(result.summary(target=0.5))
    with pytest.raises(fedlib.ConfigError, match="pass model= to fedlib.load"):
        fedlib.load(tmp_path / "result.zip").model("Random")
    (tmp_path / "other.zip").write_bytes(b"PK")
    for name in ("other.zip", "none.zip"):
        with pytest.raises(
            fedlib.ConfigError, match=f"{name}: (it cannot be read as a result|there is no such file)"
        ):
            fedlib.load(tmp_path / name)


# -- a larger T ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["uniform", "fedcor", "hcsfed", "hics_fl"])
@pytest.mark.parametrize("every", [1, 3])
def test_a_larger_T_goes_on(method: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HiCS-FL's temperature depends on T: it begins again."""
    options = {"methods": {"a": method}, "model": lambda: nn.Sequential(nn.Linear(6, 4))}
    options |= {"evaluate": fedlib.Evaluate(every=every, train=True)}
    simulate(**options, T=4, store=tmp_path)
    begun, advance = [], Lockstep.advance

    def count(self: Lockstep) -> None:
        begun.append(self.live[0].t + 1)
        advance(self)

    monkeypatch.setattr(Lockstep, "advance", count)
    longer = simulate(**options, T=7, store=tmp_path)
    assert begun == ([1, 2, 3, 4, 5, 6, 7] if method == "hics_fl" else [5, 6, 7])
    pd.testing.assert_frame_equal(numbers(longer), numbers(simulate(**options, T=7)))
    begun.clear()
    simulate(**options, T=4, store=tmp_path, recheck=0)
    assert begun == []


# -- refused ---------------------------------------------------------------------------------------------------

COLUMN = np.array(NAMES)[np.arange(40) % N]


@pytest.mark.outside("forms of clients and samples")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": None}, "x is missing|clients.'Ulm'"),
        ({"x": None, "y": None, "clients": {}}, "clients is empty"),
        (
            {"x": None, "y": None, "clients": {"a": (X, Y), "b": (X[:, :3], Y)}},
            r"clients\['b'\] has samples float32",
        ),
        (
            {"x": None, "y": None, "clients": {"a": (X, Y), "b": (X[:0], Y[:0])}},
            r"clients\['b'\] has no samples",
        ),
        ({"x": {"a": X, "b": Y[:-1]}}, r"x\['b'\] has 119 samples, but x\['a'\] has 120"),
        ({"x": {"a": X}}, "test: its inputs differ from those of x"),
        ({"x": (X, OWNER)}, r"x\[1\] is <U"),
        ({"x": (X, Y + 2**24)}, "whole numbers must be 16,777,216 at most"),
        ({"client_test": 0.5}, "a share needs clients whose samples are fixed, and no other test data"),
        ({"client_test": 0.01, "test": None}, "0.01 of client 'Bern''s 20 samples leaves a part empty"),
        ({"client_test": COLUMN[:-1]}, "client_test names the owners of 39 samples, but there are 40"),
        ({"client_test": np.where(COLUMN == "Ulm", "Rom", COLUMN)}, "client_test: there is no client 'Rom'"),
        ({"client_test": np.where(COLUMN == "Ulm", "Bern", COLUMN)}, "client 'Ulm' has no test samples"),
        ({"client_test": COLUMN, "test": None}, "names the owners of test samples; give test as well"),
        ({"clients": fedlib.IID(), "N": 4, "client_test": COLUMN}, "needs clients with fixed samples"),
        ({"evaluate": fedlib.Evaluate(clients=True)}, "the clients have no test samples; give client_test"),
        (
            {
                "evaluate": fedlib.Evaluate(clients=True),
                "metric": nn.CrossEntropyLoss(),
                "client_test": COLUMN,
            },
            "evaluate.clients measures accuracy",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message) as raised:
        simulate(**options)
    assert "\n" not in str(raised.value)
