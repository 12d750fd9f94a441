"""`python -m benchmarks.own`: models of one's own through `fedlib.simulate`, beside a plain loop; writes `OWN.md`.

It builds the wheel, installs it in a new environment outside the repository and runs this file there. `own.py TURNS`
prints, a line a measurement, the processor seconds of the timed rounds and the loss that they end with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

N, n, m, BATCH, SEED, TURNS = 20, 100, 5, 20, 0, 2


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList([nn.GroupNorm(4, channels) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norms[1](self.two(F.relu(self.norms[0](self.one(x))))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), Block(16), nn.MaxPool2d(2), Block(16)
        )
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.stem(x).mean((2, 3)))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.rnn, self.out = nn.GRU(8, 64, batch_first=True), nn.Linear(64, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.embedding(x))[0][:, -1])


def images(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(10, size=N * n)
    x = rng.normal(size=(10, 3, 8, 8)).repeat(4, 2).repeat(4, 3)[y] + rng.normal(size=(N * n, 3, 32, 32))
    return x.astype(np.float32), y


def tokens(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.integers(50, size=(N * n, 30))
    return x, x[:, -1]


def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(N * n, 20)).astype(np.float32)
    return x, (np.sin(x[:, 0]) + x[:, 1] * x[:, 2]).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """N clients of n samples; every round m of them pass once over theirs in batches, for T rounds."""

    title: str
    data: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    lr: float
    T: int


CASES = {
    "residual": Case(
        "residual CNN with GroupNorm, 3x32x32 images", images, Residual, F.cross_entropy, 0.1, 10
    ),
    "gru": Case("embedding and GRU, 30 tokens", tokens, Reader, F.cross_entropy, 0.5, 8),
    "regression": Case(
        "regression of 20 columns, Huber loss",
        rows,
        lambda: nn.Sequential(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 1), nn.Flatten(0)),
        F.huber_loss,
        0.05,
        50,
    ),
}


def engine(case: Case, x: np.ndarray, y: np.ndarray, T: int) -> float:
    """The loss after T rounds through `fedlib.simulate`."""
    import fedlib

    result = fedlib.simulate(
        x,
        y,
        np.arange(N * n) // n,
        test=(x, y),
        model=case.model,
        loss=case.loss,
        methods={"Random": "uniform"},
        m=m,
        T=T,
        local=fedlib.Local(lr=case.lr, batch=BATCH, epochs=1),
        evaluate=fedlib.Evaluate(every=T),
        threads=1,
        tell=lambda text: None,
    )
    return result.table["test_loss"].iloc[-1]


def plain(case: Case, x: np.ndarray, y: np.ndarray, T: int) -> float:
    """The loss after T rounds of a loop without copies or loaders, measured in rounds 0 and T as the engine does."""
    rng, net = np.random.default_rng(SEED), case.model()
    X, Y = torch.from_numpy(x), torch.from_numpy(y)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    measured(case, net, X, Y)
    for _ in range(T):
        total = {name: torch.zeros_like(value) for name, value in state.items()}
        for client in rng.choice(N, m, replace=False):
            net.load_state_dict(state)
            optimizer = torch.optim.SGD(net.parameters(), lr=case.lr)
            for rows in torch.from_numpy(client * n + rng.permutation(n)).split(BATCH):
                optimizer.zero_grad()
                case.loss(net(X[rows]), Y[rows]).backward()
                optimizer.step()
            for name, value in net.state_dict().items():
                total[name] += value / m
        state = total
    net.load_state_dict(state)
    return measured(case, net, X, Y)


@torch.inference_mode()
def measured(case: Case, net: nn.Module, x: Tensor, y: Tensor) -> float:
    return case.loss(torch.cat([net(part) for part in x.split(500)]), y).item()


def measure(name: str, who: str) -> dict[str, str | float]:
    """With one thread, after two rounds that warm up."""
    torch.manual_seed(SEED)
    case = CASES[name]
    x, y = case.data(np.random.default_rng(SEED))
    run = {"engine": engine, "plain": plain}[who]
    run(case, x, y, 2)
    started = time.process_time()
    loss = run(case, x, y, case.T)
    return {"case": name, "who": who, "seconds": time.process_time() - started, "loss": loss}


def here(turns: int) -> None:
    """Every measurement in this process; the two take turns."""
    torch.set_num_threads(1)
    for _ in range(turns):
        for name in CASES:
            for who in ("engine", "plain"):
                print(json.dumps(measure(name, who)), flush=True)


def in_a_new_environment(folder: Path) -> list[dict]:
    """What `here` prints there."""
    own = Path(__file__).resolve()
    python, uv = folder / "venv" / "bin" / "python", shutil.which("uv")
    for command in (
        [uv, "build", "--quiet", "--wheel", "--out-dir", folder, own.parents[1]],
        [uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"],
    ):
        subprocess.run(command, check=True)
    install = [uv, "pip", "install", "--quiet", "--python", python]
    install += ["--constraint", own.parents[1] / "requirements.lock", *folder.glob("*.whl")]
    subprocess.run(install, check=True)
    shutil.copy(own, folder / "own.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [python, "own.py", str(TURNS)]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def page(found: list[dict]) -> str:
    from benchmarks.machine import describe

    about, turns = describe(), len(found) // 2 // len(CASES)
    lines = [
        "# Models of one's own",
        "",
        f"Written by `python -m benchmarks.own` on {about['cpu']}, {about['cores']} cores: processor seconds of one",
        "process with one thread, the wheel installed in an environment of its own, outside the repository; median and",
        f"range of {turns} runs. {N} clients x {n} samples; in a round {m} of them pass once over",
        f"theirs in batches of {BATCH}. Both do the same work; other programs ran at the same time.",
        "",
        "| model | rounds | `fedlib.simulate`, s | plain loop, s | ours / plain | loss: ours, plain |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, case in CASES.items():
        of = {
            who: [one for one in found if (one["case"], one["who"]) == (name, who)]
            for who in ("engine", "plain")
        }
        seconds = {who: np.array([one["seconds"] for one in some]) for who, some in of.items()}
        middle = {who: np.median(some) for who, some in seconds.items()}
        shown = [f"{middle[who]:.2f} ({some.min():.2f}-{some.max():.2f})" for who, some in seconds.items()]
        losses = ", ".join(f"{np.mean([one['loss'] for one in some]):.3f}" for some in of.values())
        ratio = f"{middle['engine'] / middle['plain']:.2f}"
        lines.append(f"| {case.title} | {case.T} | {' | '.join(shown)} | {ratio} | {losses} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        here(int(sys.argv[1]))
    else:
        from fedlib.files import write_whole

        with tempfile.TemporaryDirectory() as folder:
            measured_there = in_a_new_environment(Path(folder))
        write_whole(Path(__file__).parent / "OWN.md", page(measured_there).encode())
