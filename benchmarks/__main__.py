"""`python -m benchmarks`: measure everything, write `RESULTS.md`, `results/<date>.json` and README's summary.

Only a complete run writes `RESULTS.md` and README; `--quick` and `--only` print their tables.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import arrays, machine, report, scaling
from benchmarks.candidates import CANDIDATES, HERE, Failed, install
from benchmarks.protocol import WORKLOADS, tell
from fedlib.data import datasets
from fedlib.files import write_whole
from workspace.pages import readme

START, END = "<!-- speed: written by `make bench` -->", "<!-- end of speed -->"
SECTIONS = (*WORKLOADS, "W5", "neighbours", "samplers", "growth")
ALL_TRAIN = ("uniform", "hcsfed", "importance", "divfl:gradients=previous")


@dataclass(frozen=True)
class Plan:
    """The number of turns of a workload's candidates, and their options."""

    repeats: int
    options: tuple[str, ...]


FULL = {
    "W1": Plan(2, ("--seconds", "1", "--stretches", "3")),
    "W2": Plan(2, ("--seconds", "1", "--stretches", "3")),
    "W3": Plan(3, ("--stretches", "1")),
    "W4": Plan(2, ("--seconds", "1", "--stretches", "2")),
}
SHORT = Plan(1, ("--check", "3", "--seconds", "0.3", "--stretches", "3"))
ONCE = "usual"  # has one turn, because it is much slower than all others


def compare(name: str, peers: list[str], quick: bool) -> dict[str, Any]:
    """Candidate -> its measurements, one per process, or a sentence that says why there are none. They take turns."""
    plan = SHORT if quick else FULL[name]
    measured: dict[str, Any] = {}
    turns = {
        who: candidate
        for who, candidate in CANDIDATES.items()
        if name in candidate.workloads and (candidate.peer is None or who in peers)
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays.write(WORKLOADS[name], Path(folder))
        for turn in range(plan.repeats):
            for who, candidate in turns.items():
                if who == ONCE and (turn or quick):
                    continue
                if not candidate.installed:
                    measured[who] = f"no environment; make it with `python -m benchmarks --install {who}`."
                    continue
                variants = {who: plan.options}
                if (name, who) == ("W4", "engine"):
                    variants["evaluating"] = (*plan.options, "--every", "5")
                for variant, options in variants.items():
                    if isinstance(measured.get(variant), str):
                        continue  # it failed in an earlier turn
                    tell(f"{name}, turn {turn + 1} of {plan.repeats}: {report.TITLES[variant]}")
                    try:
                        result = candidate.measure(name, ["--arrays", folder, "--seed", str(turn), *options])
                        measured.setdefault(variant, []).append(result)
                    except Failed as error:
                        measured[variant] = f"failed: {error}"
    return measured


def all_train() -> list[dict[str, Any]]:
    """W5: each sampler's rounds/s and client-steps per round."""
    rows = []
    for sampler in ALL_TRAIN:
        tell(f"W5: {sampler}")
        options = ["--sampler", sampler, "--check", "2", "--seconds", "1", "--stretches", "3"]
        result = CANDIDATES["engine"].measure("W2", options)
        rows.append({"sampler": sampler, "rate": report.rate([result]), **result})
    return rows


def beside_neighbours(peers: list[str]) -> list[dict[str, Any]]:
    """W2 while one other program a core computes: rounds/s, and the CPU seconds that a round takes."""
    variants = {"engine": (), "team": ("--team",), "plain": (), "jax": ()}
    rows = []
    with tempfile.TemporaryDirectory() as folder, neighbours(os.cpu_count() or 1):
        arrays.write(WORKLOADS["W2"], Path(folder))
        for who, options in variants.items():
            candidate = CANDIDATES["engine" if who == "team" else who]
            if (candidate.peer is None or who in peers) and candidate.installed:
                tell(f"beside neighbours: {report.TITLES[who]}")
                given = ["--arrays", folder, "--check", "4", "--seconds", "4", "--stretches", "3", *options]
                result = candidate.measure("W2", given)
                rows.append(
                    {"who": who, "rate": report.rate([result]), "cpu": float(np.median(result["cpu"]))}
                )
    return rows


@contextmanager
def neighbours(n: int) -> Generator[None]:
    """n programs that compute without end."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for program in running:
            program.kill()
            program.wait()


def server_work() -> list[dict[str, Any]]:
    rows = []
    for options in ([], ["--large"]):
        tell(f"samplers' server work {' '.join(options)}")
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.samplers", *options],
            stdout=subprocess.PIPE,
            check=True,
            cwd=HERE.parent,
        )
        rows += json.loads(done.stdout)
    return rows


def commit() -> str:
    """The measured commit, marked if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="W1, W2 and W4 once, in short stretches")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of {','.join(SECTIONS)}")
    known = [name for name, candidate in CANDIDATES.items() if candidate.peer]
    parser.add_argument("--peers", nargs="*", default=known, choices=known, help="default: all")
    parser.add_argument(
        "--install", nargs="+", metavar="PEER", choices=known, help="make environments, then stop"
    )
    given = parser.parse_args()
    for name in given.install or []:
        tell(f"installing {name}")
        install(name)
    if given.install:
        return
    sections = given.only or (("W1", "W2", "W4") if given.quick else SECTIONS)
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--only: there is no {min(unknown)}; there are {', '.join(SECTIONS)}")
    results = run(sections, given.peers, quick=given.quick)
    write_whole(HERE / "results" / f"{results['date']}.json", json.dumps(results, indent=1).encode())
    if given.quick or given.only or set(given.peers) < set(known):
        print(report.page(results))
    else:
        write_whole(HERE / "RESULTS.md", report.page(results).encode())
        readme.replace_between(readme.README, START, END, report.quote(results))


def run(sections: list[str], peers: list[str], quick: bool) -> dict[str, Any]:
    for dataset in {WORKLOADS[name].dataset for name in sections if name in WORKLOADS}:
        datasets.prepare(dataset)  # before minutes are spent on another one
    about = machine.describe()
    results: dict[str, Any] = {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ"),
        "machine": about,
        "matrix_rate": machine.matrix_rate(about["cores"]),
        "workloads": {name: compare(name, peers, quick) for name in sections if name in WORKLOADS},
    }
    others = {
        "W5": all_train,
        "neighbours": lambda: beside_neighbours(peers),
        "samplers": server_work,
        "growth": lambda: scaling.measure(tell),
    }
    for name in [name for name in others if name in sections]:
        try:
            results[name] = others[name]()
        except (Failed, subprocess.CalledProcessError) as error:
            tell(f"{name} gave no result: {error}")
    measured = [
        r
        for who in results["workloads"].values()
        for some in who.values()
        if not isinstance(some, str)
        for r in some
    ]
    measured += results.get("W5", [])
    results["versions"] = {name: v for r in measured for name, v in r["versions"].items()}
    results["others"] = max((max(r["others"]) for r in measured), default=0.0)
    return results


if __name__ == "__main__":
    main()
