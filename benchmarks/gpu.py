"""`make bench-gpu`: verify, measure and tune the executor for plain CNNs on a GPU, and write `GPU.md`; ten minutes.

The step that is measured trains 64 clients of HiCS-FL's CIFAR-10 network on batches of 64 with Adam. Needed arithmetic
is the forward pass, the gradients of the weights, and those of the inputs of all layers but the first. The card's limit
is the rate of a large product of float32 matrices without TF32, measured here.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fedlib
from benchmarks import machine
from fedlib.data.datasets import Tensors
from fedlib.files import write_whole
from fedlib.runs import cost
from fedlib.runs.finished import Finished
from fedlib.runs.place import Place
from fedlib.runs.work import Plan
from fedlib.settings import params
from fedlib.settings.schema import Local, Run
from fedlib.streams import stream
from fedlib.training import card, maps
from fedlib.training.card import CardExecutor, StaticStep
from fedlib.training.contract import Executor, Job
from fedlib.training.executors import make_executor
from fedlib.training.looped import ClientLoop
from fedlib.training.models import build
from fedlib.training.stacked import StackedExecutor

PAGE = Path(__file__).parent / "GPU.md"
MODEL = "hics_cifar10_cnn"
HICS = Local(lr=0.001, batch=64, epochs=2, optimizer="adam", mu=0.1)
NO_CARD = (
    "make bench-gpu measures a GPU, and torch finds none on this machine: run it on one with an NVIDIA card."
)


@dataclass(frozen=True)
class Size:
    """What is measured. stretch: seconds of a timed stretch. until: seconds after which tuning stops."""

    jobs: int = 64
    batch: int = 64
    images: int = 50_000
    matrix: int = 8192
    stretch: float = 0.1
    until: float = 360.0
    runs: int = 26
    clients: int = 50
    rounds: int = 12


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def seconds(work: Callable[[], object], device: torch.device, stretch: float) -> float:
    """Seconds of `work`: the median of five stretches."""

    def timed(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(1)
    times = max(1, math.ceil(stretch / timed(1)))
    return statistics.median(timed(times) for _ in range(5)) / times


def images(n: int) -> Tensors:
    """Random images as large as CIFAR-10's, with even patches, where maxima are tied."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(n, 3, 32, 32)).astype(np.float32)
    x[: n // 3, :, 8:20, 8:20] = 1
    x, y = torch.from_numpy(x), torch.from_numpy(rng.integers(10, size=n))
    return Tensors(x, y, x[: n // 5], y[: n // 5])


def jobs_of(count: int, samples: int, n: int) -> list[Job]:
    rng = np.random.default_rng(1)
    return [Job(0, rng.integers(n, size=samples), stream(0, "local", 1, k, 0)) for k in range(count)]


def needed(model: str) -> float:
    """Operations of a sample's training step."""
    net = build(model, (3, 32, 32), 10)
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(8, 3, 32, 32))[0].sum().backward()
    return counter.get_total_flops() / 8


# -- sections ------------------------------------------------------------------------------------------------------


def limits(device: torch.device, size: Size) -> dict[str, float]:
    """TFLOP/s of float32 products, and GB/s of copies."""
    a, b = (torch.randn(size.matrix, size.matrix, device=device) for _ in range(2))
    product = seconds(lambda: torch.mm(a, b), device, size.stretch)
    copied = seconds(lambda: a.clone(), device, size.stretch)
    return {"TFLOP/s": 2 * size.matrix**3 / product / 1e12, "GB/s": 2 * a.nbytes / copied / 1e9}


def three() -> list[Job]:
    """Jobs with different numbers of steps, and partial batches."""
    sizes = enumerate((50, 37, 9))
    return [Job(0, np.arange(k * 90, k * 90 + n), stream(0, "local", 1, k, 0)) for k, n in sizes]


def verified(device: torch.device, compiled: bool) -> list[dict[str, Any]]:
    """Each network beside the CPU's loop over clients, on the same jobs; twice; and one job alone."""
    data, rows = images(600), []
    for model, local, limit in (
        (MODEL, HICS.model_copy(update={"batch": 16}), 1e-2),
        ("fedcor_cnn", Local(lr=0.01, batch=16, epochs=2, weight_decay=3e-4), 1e-3),
        ("cs_cnn", Local(lr=0.05, batch=16, steps=4, momentum=0.9), 1e-3),
    ):
        net = build(model, (3, 32, 32), 10)
        loop = ClientLoop(net, data, torch.device("cpu"), 2)
        start = loop.initial(stream(0, "init"))[None]
        executor = CardExecutor(net, data, device, 2, compiled=compiled)
        expected, update, again, alone = (
            who.train(jobs, start.to(who.device), local, local.lr).updates.cpu()
            for who, jobs in (
                (loop, three()),
                (executor, three()),
                (executor, three()),
                (executor, three()[:1]),
            )
        )
        error = float(((update - expected).norm(dim=1) / expected.norm(dim=1)).max())
        rows.append({
            "network": model,
            "largest relative difference from a CPU": f"{error:.1e}",
            "right": error < limit,
            "equal twice": torch.equal(update, again),
            "equal alone": torch.equal(update[:1], alone),
        })  # fmt: skip
    return rows


def step_of(executor: CardExecutor, local: Local, size: Size) -> StaticStep:
    """A static step with batches in it, all places filled."""
    step = StaticStep(executor, local, 1, shifted=False)
    rng, n = np.random.default_rng(2), len(executor.y["train"])
    index = torch.from_numpy(rng.integers(n, size=(1, card.JOBS, local.batch))).to(executor.device)
    count = torch.full((1, card.JOBS), local.batch, device=executor.device)
    start = executor.initial(stream(0, "init"))[None].expand(card.JOBS, -1)

    def load() -> None:
        step.load(start, index, count, 0.001, None)

    step.reload = load
    return step


def step_seconds(executor: CardExecutor, size: Size, jobs: int) -> float:
    step = step_of(executor, HICS.model_copy(update={"batch": size.batch}), size)
    run = step.prepared(jobs)
    step.reload()

    def work() -> None:
        step.rewind()
        run()

    return seconds(work, executor.device, size.stretch)


def steps(data: Tensors, device: torch.device, size: Size, until: float) -> list[dict[str, Any]]:
    """The step by number of clients, by parts of a batch, and with or without the compiler."""
    net, operations, rows = build(MODEL, (3, 32, 32), 10), needed(MODEL), []
    ways = [(True, maps.PARTS, size.jobs), (False, maps.PARTS, size.jobs)]
    ways += [(True, parts, size.jobs) for parts in (1, 2, 4, 16) if parts != maps.PARTS]
    ways += [(True, maps.PARTS, jobs) for jobs in (size.jobs // 4, 2 * size.jobs)]
    for compiled, parts, jobs in ways:
        if time.monotonic() > until and len(rows) > 1:
            tell("out of time: the other ways to run a step are left out")
            break
        with patch.object(maps, "PARTS", parts), patch.object(card, "JOBS", jobs):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            executor = CardExecutor(net, data, device, 2, compiled=compiled and device.type == "cuda")
            taken = step_seconds(executor, size, jobs)
        memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else math.nan
        rows.append({
            "clients": jobs,
            "parts of a batch": parts,
            "compiled": executor.compiled,
            "ms": 1e3 * taken,
            "TFLOP/s": operations * jobs * size.batch / taken / 1e12,
            "GiB": memory,
        })  # fmt: skip
        tell(f"step: {rows[-1]}")
    return rows


def peers(data: Tensors, device: torch.device, size: Size) -> dict[str, float]:
    """Milliseconds that the same step takes in a plain loop over clients, and stacked by torch.func."""
    net = build(MODEL, (3, 32, 32), 10)
    few = max(1, size.jobs // 8)
    module = nn.Sequential(*copy.deepcopy(net)).to(device).train()
    optimizer = torch.optim.Adam(module.parameters(), 0.001)
    x, y = data.x_train[: size.batch].to(device), data.y_train[: size.batch].to(device)

    def loop() -> None:
        for _ in range(few):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()

    local = HICS.model_copy(update={"batch": size.batch, "epochs": None, "steps": 8})
    stack = StackedExecutor(net, data, device, 2)
    start = stack.initial(stream(0, "init"))[None]
    jobs = jobs_of(size.jobs, 2 * size.batch, len(data.y_train))
    stacked = seconds(lambda: stack.train(jobs, start, local, 0.001), device, size.stretch) / 8
    plain = seconds(loop, device, size.stretch) * size.jobs / few
    return {
        "a plain PyTorch loop, client after client": 1e3 * plain,
        "torch.func (vmap of grad)": 1e3 * stacked,
    }


def speed(executor: Executor, run: Run, size: Size) -> cost.Speed:
    """Seconds of a client's step and of an evaluated sample, through the executor as it is used."""
    local = run.local.model_copy(update={"epochs": None, "steps": 8, "lr": 0.001})
    n = len(executor.y["train"])
    start = executor.initial(stream(0, "init"))[None]

    def train() -> None:
        executor.train(jobs_of(card.JOBS, 2 * local.batch, n), start, local, 0.001)

    models = start.expand(8, -1).contiguous()
    step = seconds(train, executor.device, size.stretch) / 8 / card.JOBS
    sample = seconds(lambda: executor.evaluate(models, "test"), executor.device, size.stretch) / 8
    return cost.Speed(step, sample / len(executor.y["test"]))


def experiments(data: Tensors, device: torch.device, size: Size) -> list[dict[str, Any]]:
    """Run-rounds/s and the hours left of every CIFAR-10 experiment at scale paper that lacks runs."""
    settings, place, rows = params.load(), Place.from_environment(), []
    executors: dict[str, Executor] = {}
    speeds: dict[tuple[str, str], cost.Speed] = {}
    for name in settings.names:
        plan = Plan.of_experiment(name, "paper", settings)
        if not any(work.run and work.run.dataset == "cifar10" for work in plan.work):
            continue
        finished = Finished(plan, place, any_data=True)
        lacking = [work.run for work in plan.work if work.run and not finished.contains(work)]
        lacking = [run for run in lacking if run.dataset == "cifar10"]
        taken = 0.0
        for run in lacking:
            kind = (run.model, run.local.model_dump_json(exclude={"lr", "epochs", "steps"}))
            if run.model not in executors:
                executors[run.model] = make_executor(run.model, data, device, 2)
            if kind not in speeds:
                speeds[kind] = speed(executors[run.model], run, size)
            taken += cost.seconds(run, speeds[kind])
        if lacking:
            rounds = sum(run.T for run in lacking)
            rows.append(
                {
                    "experiment": name,
                    "runs": len(lacking),
                    "run-rounds/s": rounds / taken,
                    "hours": taken / 3600,
                }
            )
            tell(f"{name}: {rows[-1]['run-rounds/s']:.1f} run-rounds/s")
    return rows


def whole(data: Tensors, device: torch.device, size: Size) -> float:
    """Run-rounds/s of HiCS-FL's CIFAR-10 setting through `fedlib.simulate`, with samplers, reports and evaluation."""
    result = fedlib.simulate(
        data.x_train.numpy(),
        data.y_train.numpy(),
        np.arange(len(data.y_train)) % size.clients,
        test=(data.x_test.numpy(), data.y_test.numpy()),
        model=MODEL,
        methods={"Random": "uniform", "HiCS-FL": "hics_fl"},
        m=max(1, size.clients // 5),
        T=size.rounds,
        local=HICS.model_copy(update={"batch": size.batch}),
        seeds=size.runs // 2,
        device=device.type,
        tell=lambda text: None,
    )
    table = result.table
    return 1 / float(table[table["round"] > size.rounds // 2]["seconds"].mean())


# -- the page ------------------------------------------------------------------------------------------------------


def measured(device: torch.device, size: Size) -> dict[str, Any]:
    """All sections, in the order of the page."""
    until = time.monotonic() + size.until
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    compiled, data = device.type == "cuda", images(size.images)
    found: dict[str, Any] = {"machine": machine.describe(), "limits": limits(device, size)}
    tell(f"limits: {found['limits']}")
    found["verified"] = verified(device, compiled)
    tell(f"verified: {found['verified']}")
    found["steps"] = steps(data, device, size, until)
    found["peers"] = peers(data, device, size)
    tell(f"peers: {found['peers']}")
    found["whole"] = whole(data, device, size)
    tell(f"through fedlib.simulate: {found['whole']:.1f} run-rounds/s")
    found["experiments"] = experiments(data, device, size)
    found["card"] = torch.cuda.get_device_name(device) if compiled else "no card"
    return found


def versions() -> str:
    names = []
    for name in ("torch", "triton", "numpy"):
        try:
            names.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            names.append(f"no {name}")
    return ", ".join([*names, f"CUDA {torch.version.cuda}"])


def table(rows: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "**no**"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = [
        list(rows[0]),
        ["---"] * len(rows[0]),
        *([cell(value) for value in row.values()] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(found: dict[str, Any]) -> str:
    """`GPU.md`."""
    limit, used, best = (
        found["limits"],
        found["steps"][0],
        min(found["steps"], key=lambda row: row["ms"] / row["clients"]),
    )
    share = used["TFLOP/s"] / limit["TFLOP/s"]
    others = [{"who": who, "ms": ms, "times slower": ms / used["ms"]} for who, ms in found["peers"].items()]
    hours = sum(row["hours"] for row in found["experiments"])
    tuned = (
        "The constants in use are the fastest."
        if best is used
        else f"Fastest for a client: JOBS = {best['clients']}, PARTS = {best['parts of a batch']}, "
        f"{'compiled' if best['compiled'] else 'not compiled'}; set them in `fedlib/training/card.py` and `maps.py`."
    )
    return f"""# A GPU, measured

Written by `make bench-gpu`; `benchmarks/gpu.py` says what is measured.
Card: {found["card"]}; {versions()}; {found["machine"]["cores"]} cores.

- Float32 products: {limit["TFLOP/s"]:.3g} TFLOP/s; copies: {limit["GB/s"]:.3g} GB/s.
- A step of {used["clients"]} clients: {used["ms"]:.3g} ms, {used["TFLOP/s"]:.3g} TFLOP/s, **{share:.0%} of the limit**.
- HiCS-FL's CIFAR-10 setting through `fedlib.simulate`: **{found["whole"]:.3g} run-rounds/s**.
- All missing CIFAR-10 runs of scale paper: about {hours:.3g} hours.

## Right
{table(found["verified"])}

## The step
{table(found["steps"])}

{tuned}

## Peers on the same card
{table(others)}

## Experiments
From the speed of a client's step and of an evaluated sample, both through the executor; samplers' own work is left out.

{table(found["experiments"]) if found["experiments"] else "No CIFAR-10 run is missing."}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(NO_CARD)
    found = measured(torch.device("cuda"), Size())
    write_whole(PAGE, page(found).encode())
    print(page(found))
    if not all(row["right"] and row["equal twice"] for row in found["verified"]):
        sys.exit("The executor is not right on this card: see the first table.")


if __name__ == "__main__":
    main()
