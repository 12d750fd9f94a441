"""Measurements as the tables of `RESULTS.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.candidates import CANDIDATES
from benchmarks.protocol import WORKLOADS

ABOUT = {
    "W1": "Logistic regression 784-10",
    "W2": "MLP 784-50-10",
    "W3": "CNN on 3x32x32 images",
    "W4": "The MLP of W2 for 25 independent runs (this engine: 5 samplers x 5 seeds in lockstep)",
}
TITLES = {name: candidate.title for name, candidate in CANDIDATES.items()} | {
    "evaluating": "this engine, every model tested every 5 rounds",
    "team": "this engine, if the server's work used all cores",
}
QUIET = 0.1  # cores that other programs may use before a measurement is called disturbed


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(x: float) -> str:
    """Three significant digits, without an exponent."""
    return np.format_float_positional(float(f"{x:.3g}"), trim="-")


def rate(results: list[dict[str, Any]]) -> float:
    """Median over all stretches of all processes."""
    return float(np.median([r for result in results for r in result["rates"]]))


def workload(name: str, measured: dict[str, Any], matrix_rate: float) -> str:
    """One workload: the speed of every candidate, and whether it learns the same."""
    work = WORKLOADS[name]
    unit = "run-rounds/s" if work.R > 1 else "rounds/s"
    engine = rate(measured["engine"]) if isinstance(measured.get("engine"), list) else np.nan
    rows, notes = [], []
    for who, results in measured.items():
        if isinstance(results, str):
            notes.append(f"{TITLES[who]}: {results}")
            continue
        median = rate(results)
        rates = [r for result in results for r in result["rates"]]
        flops = median * work.gigaflops
        accuracy = [result["accuracy"] for result in results]
        rows.append(
            (
                TITLES[who],
                f"{number(median)} ({number(min(rates))} to {number(max(rates))}; {len(rates)})",
                "" if who == "engine" else f"{engine / median:.2f}",
                f"{flops:.0f} ({flops / matrix_rate:.0%})",
                f"{np.mean(accuracy):.4f} ({np.ptp(accuracy):.4f})",
                f"{np.mean([result['loss'] for result in results]):.3f}",
                f"{max(result['memory'] for result in results):.0f}",
            )
        )
    head = (
        "who",
        f"{unit}: median (range; stretches)",
        "engine is x faster",
        "needed GFLOP/s (of the matrix rate)",
        "accuracy (range)",
        "loss",
        "peak MiB",
    )
    about = (
        f"{ABOUT[name]}; {work.N} clients x {work.n} samples, {work.m} a round x {work.steps} SGD steps of "
        f"{work.batch}, lr {work.lr}: {work.gigaflops:.2f} GFLOP needed a round{' and run' if work.R > 1 else ''}."
    )
    checked = measured_after(measured)
    after = f"Accuracy and loss on the test set after {checked} round{'s' if checked > 1 else ''}, one seed a process."
    return "\n".join(
        [f"## {name}", f"{about} {after}\n", table(head, rows), *(f"{note}\n" for note in notes)]
    )


def measured_after(measured: dict[str, Any]) -> int:
    return next(results[0]["check"] for results in measured.values() if isinstance(results, list))


def everybody(rows: list[dict[str, Any]]) -> str:
    """W5: rounds in which all clients train."""
    head = ("sampler", "client-steps a round", "rounds/s", "client-steps/s", "of uniform's")
    base = rows[0]["rate"] * rows[0]["client_steps"]
    lines = [
        (
            row["sampler"],
            f"{row['client_steps']:.0f}",
            number(row["rate"]),
            f"{row['rate'] * row['client_steps']:,.0f}",
            f"{row['rate'] * row['client_steps'] / base:.2f}",
        )
        for row in rows
    ]
    return (
        f"## W5\nW2 with samplers that have all N = 100 clients train in every round.\n\n{table(head, lines)}"
    )


def neighbours(rows: list[dict[str, Any]]) -> str:
    head = ("who", "rounds/s", "engine is x faster", "CPU ms a round")
    engine = rows[0]["rate"]
    lines = [
        (
            TITLES[row["who"]],
            number(row["rate"]),
            "" if row["who"] == "engine" else f"{engine / row['rate']:.2f}",
            number(1e3 * row["cpu"]),
        )
        for row in rows
    ]
    about = "W2 while one other program a core computes: what others cost the engine, and it them."
    return f"## Beside neighbours\n{about}\n\n{table(head, lines)}"


def server_work(rows: list[dict[str, Any]]) -> str:
    head = ("sampler", "N", "server ms a round: mean", "largest", "round ms", "share")
    lines = [
        (
            row["sampler"],
            str(row["N"]),
            number(1e3 * row["server"]),
            number(1e3 * row["largest"]),
            number(1e3 * row["round"]) if row["N"] == 100 else "",
            f"{row['share']:.1%}" if row["N"] == 100 else "",
        )
        for row in rows
    ]
    about = (
        "The samplers' own arithmetic on the model of W2 (d = 39,760), each alone; all settings at their defaults. "
        "Those that measure on the server's own samples are left out: here clients have all samples."
    )
    return f"## Samplers\n{about}\n\n{table(head, lines)}"


def growth(series: list[dict[str, Any]]) -> str:
    parts = [
        "## Growth\nThe engine on W2 (clients share samples where there are too few), uniform sampling. Exponents of a "
        "power law fitted to all points, and to the last two alone.\n"
    ]
    for one in series:
        axis = one["axis"]
        head = (f"against {one['title']}", *(f"{row[axis]:,}" for row in one["rows"]), "exponents")
        lines = []
        for key, name, unit in (("seconds", "ms a round", 1e3), ("memory", "peak MiB", 1)):
            values = (number(unit * row[key]) for row in one["rows"])
            exponents = ", ".join(f"{value:.2f}" for value in one["exponents"][key])
            lines.append((name, *values, exponents))
        parts.append(table(head, lines))
    return "\n".join(parts)


def page(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = dict(sorted(results["versions"].items()))
    parts = [
        "# The engine beside a plain loop and other simulators\n",
        "Written by `make bench`. Every candidate trains the same data with equal work in a process of its own; they "
        "take turns in one run. Training alone is timed. All but this engine, FedJAX and "
        "the DataLoader draw their batches with replacement, the cheapest way. Absolute figures belong to the machine; "
        "ratios carry over better. [GPU.md](GPU.md) is about a GPU.\n",
        table(
            ("", ""),
            [
                ("commit", results["commit"]),
                ("date", results["date"]),
                ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']} GiB"),
                (
                    "matrix products through torch",
                    f"{results['matrix_rate']:.0f} GFLOP/s (float32, 2048 x 2048)",
                ),
                ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
                ("other programs", f"at most {results['others']:.2f} cores during a stretch"),
            ],
        ),
    ]
    if results["others"] > QUIET:
        parts.append("**The machine was not quiet: these figures are disturbed. Run it again.**\n")
    parts += [
        workload(name, measured, results["matrix_rate"]) for name, measured in results["workloads"].items()
    ]
    for key, write in (
        ("W5", everybody),
        ("neighbours", neighbours),
        ("samplers", server_work),
        ("growth", growth),
    ):
        if key in results:
            parts.append(write(results[key]))
    return "\n".join(parts)


def quote(results: dict[str, Any]) -> str:
    """README's summary: how many times faster the engine is than each candidate, by workload."""
    rates = {
        name: {who: rate(runs) for who, runs in measured.items() if not isinstance(runs, str)}
        for name, measured in results["workloads"].items()
    }
    units = {name: "run-rounds/s" if WORKLOADS[name].R > 1 else "rounds/s" for name in rates}
    ours = (f"{number(rated['engine'])} {units[name]}" for name, rated in rates.items())
    rows = [(f"**{TITLES['engine']}**", *ours)]
    for who in CANDIDATES:
        if who != "engine":
            ratios = (
                f"{rated['engine'] / rated[who]:.1f} ×" if who in rated else "" for rated in rates.values()
            )
            rows.append((TITLES[who].partition(" (")[0].partition(",")[0], *ratios))
    machine = results["machine"]
    return (
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {results['matrix_rate']:.0f} GFLOP/s in matrix "
        "products. Below this engine's rates stands how many times faster it trains than each other program. "
        f"{'; '.join(f'{name}: {ABOUT[name]}' for name in rates)}.\n\n" + table(("", *rates), rows).rstrip()
    )
