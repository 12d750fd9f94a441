"""`make bench-gpu`: verify, measure and tune the executor for plain CNNs on a GPU, and write `GPU.md`; ten minutes.

The step that is measured trains 64 clients of HiCS-FL's CIFAR-10 network on batches of 64 with Adam. Needed arithmetic
is the forward pass, the gradients of the weights, and those of the inputs of all layers but the first. The card's limit
is the rate of a large product of float32 matrices without TF32, measured here.

The page is written after every section, so that a card that is taken away leaves what it measured. A section that fails
says why, and the others go on. `--cpu` runs all sections on a CPU at toy size and writes nothing: it shows that they
work, and measures nothing. `--into` names a folder for the page and its numbers; what it has of the same card stays.
`--estimate` writes the page from counted arithmetic and bytes, without a card.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fedlib
from benchmarks import machine
from benchmarks.gpu_left import MODEL, SHAPE, Rows, estimated, left, needed
from benchmarks.gpu_page import PAGE, estimate_page, page
from benchmarks.protocol import tell
from fedlib.data.datasets import Tensors
from fedlib.files import write_whole
from fedlib.runs import cost
from fedlib.settings.schema import Local, Run
from fedlib.streams import stream
from fedlib.training import card, maps
from fedlib.training.card import CardExecutor, StaticStep
from fedlib.training.contract import Job
from fedlib.training.executors import make_executor
from fedlib.training.looped import ClientLoop
from fedlib.training.models import build
from fedlib.training.stacked import StackedExecutor

HICS = Local(lr=0.001, batch=64, epochs=2, optimizer="adam", mu=0.1)
NO_CARD = (
    "make bench-gpu measures a GPU, and torch finds none on this machine: run it on one with an NVIDIA card."
)


@dataclass(frozen=True)
class Size:
    """What is measured. stretch, stretches: seconds of a timed stretch, and how many there are.

    until: seconds after which no other way is measured.
    """

    jobs: int = 64
    batch: int = 64
    images: int = 50_000
    matrix: int = 8192
    stretch: float = 0.1
    stretches: int = 5
    until: float = 540.0
    runs: int = 26
    clients: int = 50
    rounds: int = 12
    experiments: int | None = None  # as many of them; None for all


TOY = Size(
    jobs=4,
    batch=4,
    images=60,
    matrix=64,
    stretch=0.0,
    stretches=1,
    runs=2,
    clients=5,
    rounds=2,
    experiments=1,
)


def seconds(work: Callable[[], object], device: torch.device, stretch: float, stretches: int) -> float:
    """Seconds of `work`: the median of some stretches."""

    def timed(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(1)
    times = max(1, math.ceil(stretch / timed(1)))
    return statistics.median(timed(times) for _ in range(stretches)) / times


def images(n: int) -> Tensors:
    """Random images as large as CIFAR-10's, with even patches, where maxima are tied."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(n, *SHAPE)).astype(np.float32)
    x[: n // 3, :, 8:20, 8:20] = 1
    x, y = torch.from_numpy(x), torch.from_numpy(rng.integers(10, size=n))
    y[:10] = torch.arange(10)
    return Tensors(x, y, x[: n // 5], y[: n // 5])


def jobs_of(count: int, samples: int, n: int) -> list[Job]:
    rng = np.random.default_rng(1)
    return [Job(0, rng.integers(n, size=samples), stream(0, "local", 1, k, 0)) for k in range(count)]


class Bench:
    """A device and what is measured on it. Each public method is a section of the page, under its name."""

    def __init__(self, device: torch.device, size: Size) -> None:
        self.device, self.size, self.data = device, size, images(size.images)
        self.on_card = device.type == "cuda"
        self.until = time.monotonic() + size.until

    def time(self, work: Callable[[], object]) -> float:
        return seconds(work, self.device, self.size.stretch, self.size.stretches)

    # -- sections ------------------------------------------------------------------------------------------------

    def limits(self) -> dict[str, float]:
        """TFLOP/s of float32 products, also with TF32; GB/s of copies; ms in which a step's dropout bits are drawn."""
        n = self.size.matrix
        a, b = (torch.randn(n, n, device=self.device) for _ in range(2))
        exact = self.time(lambda: torch.mm(a, b))
        torch.backends.cuda.matmul.allow_tf32 = True
        rounded = self.time(lambda: torch.mm(a, b))
        torch.backends.cuda.matmul.allow_tf32 = False
        copied = self.time(lambda: a.clone())
        executor = CardExecutor(
            build(MODEL, SHAPE, 10), images(50), torch.device("cpu"), torch.get_num_threads()
        )
        jobs = jobs_of(self.size.jobs, self.size.batch, 50)
        drawn = self.time(lambda: executor._packed_bits(jobs, self.size.batch, 1))
        return {
            "TFLOP/s": 2 * n**3 / exact / 1e12,
            "TF32 TFLOP/s": 2 * n**3 / rounded / 1e12,
            "GB/s": 2 * a.nbytes / copied / 1e9,
            "bits ms": 1e3 * drawn,
        }

    def verified(self) -> Rows:
        """Each network beside the CPU's loop over clients, on the same jobs; twice; and one job alone."""
        data, rows = images(600), []
        for model, local, limit in (
            (MODEL, HICS.model_copy(update={"batch": 16}), 1e-2),
            ("fedcor_cnn", Local(lr=0.01, batch=16, epochs=2, weight_decay=3e-4), 1e-3),
            ("cs_cnn", Local(lr=0.05, batch=16, steps=4, momentum=0.9), 1e-3),
        ):
            net = build(model, SHAPE, 10)
            loop = ClientLoop(net, data, torch.device("cpu"), 2)
            start = loop.initial(stream(0, "init"))[None]
            executor = CardExecutor(net, data, self.device, 2)
            jobs = three(), three(), three(), three()[:1]
            expected, update, again, alone = (
                who.train(some, start.to(who.device), local, local.lr).updates.cpu()
                for who, some in zip((loop, executor, executor, executor), jobs, strict=True)
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

    def step(self, compiled: bool, parts: int, jobs: int) -> dict[str, Any]:
        """Milliseconds of a step of so many clients."""
        with patch.object(maps, "PARTS", parts), patch.object(card, "JOBS", jobs):
            if self.on_card:
                torch.cuda.reset_peak_memory_stats(self.device)
            executor = CardExecutor(
                build(MODEL, SHAPE, 10), self.data, self.device, 2, compiled=compiled and self.on_card
            )
            local = HICS.model_copy(update={"batch": self.size.batch})
            static = StaticStep(executor, local, 1, shifted=False)
            run = static.prepared(jobs)
            rng, n = np.random.default_rng(2), len(self.data.y_train)
            index = torch.from_numpy(rng.integers(n, size=(1, jobs, local.batch))).to(self.device)
            count = torch.full((1, jobs), local.batch, device=self.device)
            start = executor.initial(stream(0, "init"))[None].expand(jobs, -1)
            static.load(start, index, count, 0.001, None)

            def work() -> None:
                static.rewind()
                run()

            taken = self.time(work)
        row = {
            "clients": jobs,
            "parts of a batch": parts,
            "compiled": executor.compiled,
            "ms": 1e3 * taken,
            "TFLOP/s": needed(MODEL) * jobs * local.batch / taken / 1e12,
            "GiB": torch.cuda.max_memory_allocated(self.device) / 2**30 if self.on_card else math.nan,
        }
        tell(f"step: {row}")
        return row

    def steps(self) -> Rows:
        """The step as it is used."""
        return [self.step(True, maps.PARTS, self.size.jobs)]

    def products(self) -> Rows:
        """The batched products of a step, each alone."""
        size, rows = self.size, []
        executor = CardExecutor(build(MODEL, SHAPE, 10), self.data, self.device, 2, compiled=False)
        with patch.object(card, "JOBS", size.jobs):
            static = StaticStep(executor, HICS.model_copy(update={"batch": size.batch}), 1, shifted=False)
        with BatchedProducts() as products:
            static.step(size.jobs)
        for pair in products.pairs:
            a, b = (
                torch.randn(shape, device=self.device) if not turned
                else torch.randn(shape[0], shape[2], shape[1], device=self.device).mT
                for shape, turned in pair
            )  # fmt: skip
            taken = self.time(lambda a=a, b=b: torch.bmm(a, b))
            n, rows_of_a, inner = a.shape
            operations = 2 * n * rows_of_a * inner * b.shape[2]
            rows.append({
                "product": f"{n} of {rows_of_a} x {inner} by {inner} x {b.shape[2]}",
                "ms": 1e3 * taken,
                "TFLOP/s": operations / taken / 1e12,
            })  # fmt: skip
        total = sum(row["ms"] for row in rows)
        done = sum(row["ms"] * row["TFLOP/s"] for row in rows)
        return [*rows, {"product": "all", "ms": total, "TFLOP/s": done / total}]

    def peers(self) -> Rows:
        """Milliseconds that the same step takes in a plain loop over clients, and stacked by torch.func."""
        size, net = self.size, build(MODEL, SHAPE, 10)
        few = max(1, size.jobs // 8)
        module = nn.Sequential(*copy.deepcopy(net)).to(self.device).train()
        optimizer = torch.optim.Adam(module.parameters(), 0.001)
        x, y = (t[: size.batch].to(self.device) for t in (self.data.x_train, self.data.y_train))

        def loop() -> None:
            for _ in range(few):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x), y).backward()
                optimizer.step()

        local = HICS.model_copy(update={"batch": size.batch, "epochs": None, "steps": 8})
        stack = StackedExecutor(net, self.data, self.device, 2)
        start = stack.initial(stream(0, "init"))[None]
        jobs = jobs_of(size.jobs, 2 * size.batch, len(self.data.y_train))
        stacked = self.time(lambda: stack.train(jobs, start, local, 0.001)) / 8
        plain = self.time(loop) * size.jobs / few
        return [
            {"peer": "a plain PyTorch loop, client after client", "ms": 1e3 * plain},
            {"peer": "torch.func (vmap of grad)", "ms": 1e3 * stacked},
        ]

    def whole(self) -> dict[str, float]:
        """Run-rounds/s of HiCS-FL's CIFAR-10 setting with samplers, reports and evaluation; also without turns."""
        rates = {}
        for way, jobs in (("in turns", card.GROUP), ("one group", 10**9)):
            with patch.object(card, "GROUP", jobs):
                rates[way] = self.simulated()
        return rates

    def simulated(self) -> float:
        size, data = self.size, self.data
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
            device=self.device.type,
            tell=lambda text: None,
        )
        table = result.table
        return 1 / float(table[table["round"] > size.rounds // 2]["seconds"].mean())

    def experiments(self) -> Rows:
        """Run-rounds/s and the hours left of every CIFAR-10 experiment at scale paper."""
        executors: dict[str, Any] = {}
        speeds: dict[tuple[str, int], cost.Speed] = {}

        def speed_of(run: Run) -> cost.Speed | None:
            kind = run.model, run.local.batch
            if kind not in speeds and time.monotonic() < self.until:
                if run.model not in executors:
                    executors[run.model] = make_executor(run.model, self.data, self.device, 2)
                speeds[kind] = self.speed(executors[run.model], run)
                tell(f"{kind}: {speeds[kind]}")
            return speeds.get(kind)

        return left(speed_of, self.size.experiments)

    def speed(self, executor: Any, run: Run) -> cost.Speed:
        """Seconds of a client's step and of an evaluated sample, through the executor as it is used."""
        local = run.local.model_copy(update={"epochs": None, "steps": 8, "lr": 0.001})
        n, start = len(executor.y["train"]), executor.initial(stream(0, "init"))[None]
        jobs = jobs_of(self.size.jobs, 2 * local.batch, n)
        models = start.expand(8, -1).contiguous()
        step = self.time(lambda: executor.train(jobs, start, local, 0.001)) / 8 / len(jobs)
        sample = self.time(lambda: executor.evaluate(models, "test")) / 8 / len(executor.y["test"])
        return cost.Speed(step, sample)

    def tuned(self) -> Rows:
        """The step without the compiler, by parts of a batch, and by number of clients, as long as there is time."""
        parts, jobs = maps.PARTS, self.size.jobs
        ways = [(False, parts, jobs), *((True, n, jobs) for n in (4, 16, 2, 1))]
        ways += [(True, parts, 2 * jobs), (True, parts, jobs // 4)]
        rows = []
        for way in ways:
            if time.monotonic() > self.until:
                tell("out of time: the other ways to run a step are left out")
                break
            rows.append(self.step(*way))
        return rows


class BatchedProducts(TorchDispatchMode):
    """Writes down the operands of batched products: the shape of each, and whether it is a transposed view."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[list[tuple[torch.Size, bool]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default):
            self.pairs.append([(t.shape, t.stride(-1) != 1) for t in args[-2:]])
        return function(*args, **(kwargs or {}))


def three() -> list[Job]:
    """Jobs with different numbers of steps, and partial batches."""
    sizes = enumerate((50, 37, 9))
    return [Job(0, np.arange(k * 90, k * 90 + n), stream(0, "local", 1, k, 0)) for k, n in sizes]


SECTIONS = ("limits", "verified", "steps", "products", "whole", "experiments", "peers", "tuned")


def measured(
    bench: Bench,
    keep: Callable[[dict[str, Any]], None],
    sections: Sequence[str] = SECTIONS,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Sections by name. keep: called with those that are done after each of them. before: those of an earlier time."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    card_name = torch.cuda.get_device_name(bench.device) if bench.on_card else "no card"
    results: dict[str, Any] = {"card": card_name, "machine": machine.describe(), "failed": {}}
    if before and before["card"] == card_name:
        results = before | {"failed": {k: why for k, why in before["failed"].items() if k not in sections}}
    for name in sections:
        try:
            results[name] = getattr(bench, name)()
        except Exception as error:
            traceback.print_exc()
            results["failed"][name] = f"{type(error).__name__}: {error}".splitlines()[0]
        tell(f"{name}: {results.get(name, results['failed'].get(name))}")
        keep(results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--cpu", action="store_true", help="try the sections on a CPU at toy size; write nothing but --into"
    )
    parser.add_argument("--estimate", action="store_true", help="write the page from counts, without a card")
    parser.add_argument(
        "--sections", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}; default: all"
    )
    parser.add_argument("--seconds", type=float, default=Size.until, help="after which nothing long is begun")
    parser.add_argument(
        "--into", type=Path, help="folder for the page and its numbers, in place of GPU.md here"
    )
    options = parser.parse_args()
    if options.estimate:
        write_whole(PAGE, estimate_page(estimated()).encode())
        return
    if unknown := set(sections := options.sections.split(",")) - {*SECTIONS}:
        sys.exit(f"--sections: there is no section {min(unknown)!r}; there are {', '.join(SECTIONS)}.")
    if not options.cpu and not torch.cuda.is_available():
        sys.exit(NO_CARD)
    size = replace(TOY if options.cpu else Size(), until=options.seconds)
    bench = Bench(torch.device("cpu" if options.cpu else "cuda"), size)
    numbers = options.into and options.into / "gpu.json"

    def keep(done: dict[str, Any]) -> None:
        if numbers:
            write_whole(numbers, json.dumps(done, indent=1).encode())
        if numbers or bench.on_card:
            write_whole((options.into or PAGE.parent) / PAGE.name, page(done).encode())

    before = json.loads(numbers.read_bytes()) if numbers and numbers.exists() else None
    results = measured(bench, keep, sections, before)
    print(page(results))
    if results["failed"]:
        sys.exit(f"These sections failed: {', '.join(results['failed'])}; what they print above says why.")
    if not all(row["right"] and row["equal twice"] for row in results.get("verified", [])):
        sys.exit("The executor is not right on this card: see the first table.")


if __name__ == "__main__":
    main()
