"""`docs/in-flower.md`, followed word by word: in Flower's simulation, and as processes on the loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "flwr", reason="Flower asks for older libraries than requirements.lock has: `make flower` tests it"
)

import torch

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.settings.schema import ROOT, Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

BLOCK = re.compile(r"^```(\w+)[ ]?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
PAGE = (ROOT / "docs" / "in-flower.md").read_text()
PATIENCE = 600.0  # seconds that any wait may take, on a machine that does much else


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, and the data that they make."""
    (tmp_path / "home").mkdir()
    for _, path, text in BLOCK.findall(PAGE):
        if path:
            (tmp_path / ("home" if path == "config.toml" else "") / path).write_text(text)
    subprocess.run([sys.executable, "data.py"], cwd=tmp_path, check=True)
    return tmp_path


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@contextmanager
def running(folder: Path, command: str) -> Iterator[None]:
    """A command of the page in the background, in a process group that ends with the test."""
    environment = os.environ | {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each message's process compiles Flower again
    with open(folder / "log", "a") as log:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition, what: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what}\n{log.read_text()[-3000:]}"
        time.sleep(0.2)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def follow(folder: Path, block: str, samplers: str, rounds: int) -> dict[str, list[dict]]:
    """Run one of the page's blocks of commands, at a free port, and return what the server wrote."""
    port = free_port()
    config = folder / "home" / "config.toml"
    config.write_text(config.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    commands = block.replace("flower-superlink", f"flower-superlink --port {port}")
    link, rest = commands.replace("127.0.0.1:8000", f"127.0.0.1:{port}").split("\n", 1)
    more = f"data='$PWD' rounds={rounds} samplers='{samplers}'"
    rest = rest.replace("data='$PWD'", more).replace("9100", str(free_port()))
    log = folder / "log"
    with running(folder, link.removesuffix(" &")):
        wait_until(lambda: listens(port), "no SuperLink", log)
        with running(folder, f"{rest}\nwait"):
            wanted = {name: folder / f"{name}.json" for name in samplers.split()}
            wait_until(
                lambda: all(path.exists() for path in wanted.values()) or "Exit Code" in log.read_text(),
                "no result",
                log,
            )
    assert all(path.exists() for path in wanted.values()), log.read_text()[-5000:]
    return {name: json.loads(path.read_text()) for name, path in wanted.items()}


def in_the_engine(folder: Path, sampler: str, rounds: int) -> list[dict]:
    """The same in our engine: a step there is one on all of a client's samples, for they are fewer than a batch."""
    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    clients, test = [np.load(folder / f"client-{k}.npz") for k in range(5)], np.load(folder / "test.npz")
    x, y = (torch.from_numpy(np.concatenate([client[key] for client in clients])) for key in "xy")
    train = np.split(np.arange(len(y)), np.cumsum([len(client["y"]) for client in clients])[:-1])
    labels = np.stack([np.bincount(y[k], minlength=10) for k in train])
    run = Run(
        dataset="digits",
        partition={"scheme": "iid"},
        model="logistic",
        N=config["N"],
        m=config["m"],
        T=config["rounds"],
        local={"lr": 0.5, "batch": 1000, "steps": 5},
        method={"sampler": sampler, "params": json.loads(config[sampler])},
        seed=0,
    )
    tensors = Tensors(x, y, torch.from_numpy(test["x"]), torch.from_numpy(test["y"]))
    executor = make_executor("logistic", tensors, threads=1)
    lockstep = Lockstep([run], [Partition(train=train, holdout=None, test=None, labels=labels)], executor)
    while lockstep.live[0].t < rounds:
        lockstep.advance()
    return lockstep.live[0].rows


def blocks() -> list[str]:
    return [text for language, path, text in BLOCK.findall(PAGE) if language == "sh" and "flwr run" in text]


def agree(folder: Path, found: dict[str, list[dict]], rounds: int) -> None:
    for sampler, rows in found.items():
        expected = in_the_engine(folder, sampler, rounds)
        assert [row.get("clients", []) for row in rows] == [row["clients"] for row in expected], sampler
        accuracy = [row["by_server"]["accuracy"] for row in rows]
        assert accuracy == pytest.approx([row["test_accuracy"] for row in expected], abs=0.006), sampler
        assert accuracy[-1] > accuracy[0] + 0.1


def test_in_flowers_simulation(folder: Path):
    samplers = "uniform power_of_choice hics_fl hcsfed fedcor"
    agree(folder, follow(folder, blocks()[0], samplers, rounds=6), rounds=6)


@pytest.mark.skipif(
    "FEDLIB_NETWORK" not in os.environ,
    reason="starts one process per message, together about 100 s of processor time; set FEDLIB_NETWORK=1",
)
def test_as_processes_on_a_network(folder: Path):
    agree(folder, follow(folder, blocks()[1], "power_of_choice", rounds=3), rounds=3)
