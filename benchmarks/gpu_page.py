"""`GPU.md`, from what `gpu.py` measured or estimated."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import table

PAGE = Path(__file__).parent / "GPU.md"
ENOUGH = 0.4  # of the card's float32 rate: a step that reaches it needs no convolutions of its own
SLOW = 25.0  # TFLOP/s of the products alone, below which these hold the step up


def versions() -> str:
    names = []
    for name in ("torch", "triton", "numpy"):
        try:
            names.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            names.append(f"no {name}")
    return ", ".join([*names, f"CUDA {torch.version.cuda}"])


def rows_as_table(rows: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "**no**"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return table(list(rows[0]), ([cell(value) for value in row.values()] for row in rows)).rstrip()


def page(results: dict[str, Any]) -> str:
    """The page of a card. A section that is not there yet is left out; one that failed says why."""
    parts = [
        "# A GPU, measured",
        "Written by `make bench-gpu`; `benchmarks/gpu.py` says what is measured.\n"
        f"Card: {results['card']}; {versions()}; {results['machine']['cores']} cores.",
        "\n".join(summary(results)),
    ]
    for name, (title, text) in SECTIONS.items():
        if name in results["failed"]:
            parts += [f"## {title}", f"Failed: {results['failed'][name]}"]
        elif results.get(name):
            parts += [f"## {title}", *([text(results)] if text else []), rows_as_table(results[name])]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(results: dict[str, Any]) -> list[str]:
    lines = []
    if limit := results.get("limits"):
        lines.append(
            f"- Float32 products: {limit['TFLOP/s']:.3g} TFLOP/s, with TF32 {limit['TF32 TFLOP/s']:.3g}; copies: "
            f"{limit['GB/s']:.3g} GB/s. The CPU draws a step's dropout bits in {limit['bits ms']:.3g} ms."
        )
    if limit and (steps := results.get("steps")):
        step = steps[0]
        lines.append(
            f"- A step of {step['clients']} clients: {step['ms']:.3g} ms, {step['TFLOP/s']:.3g} TFLOP/s, "
            f"**{step['TFLOP/s'] / limit['TFLOP/s']:.0%} of the limit**."
        )
    if whole := results.get("whole"):
        lines.append(
            f"- HiCS-FL's CIFAR-10 setting through `fedlib.simulate`: **{whole['in turns']:.3g} run-rounds/s**, two "
            f"groups of runs in turns; {whole['one group']:.3g} in one group."
        )
    if experiments := results.get("experiments"):
        hours = sum(row["hours"] for row in experiments)
        lines.append(f"- All missing CIFAR-10 runs of scale paper: about {hours:.3g} hours.")
    return lines


def of_products(results: dict[str, Any]) -> str:
    """Whether a convolution of our own, in Triton with three TF32 products for one of float32, would be worth it."""
    if not (results.get("limits") and results.get("steps")):
        return ""
    step, products, limit = results["steps"][0], results["products"][-1], results["limits"]
    share = step["TFLOP/s"] / limit["TFLOP/s"]
    if share >= ENOUGH:
        verdict = f"not needed: the step reaches {share:.0%} of the limit."
    elif products["TFLOP/s"] < SLOW:
        verdict = f"worth writing: the products alone reach {products['TFLOP/s']:.3g} TFLOP/s."
    else:
        rest = step["ms"] - products["ms"]
        verdict = f"worth writing: {rest:.3g} of the step's {step['ms']:.3g} ms only move memory."
    return (
        f"A convolution in Triton, without patches in memory and with three TF32 products for one of float32 (at most "
        f"{limit['TF32 TFLOP/s'] / 3:.3g} TFLOP/s), is {verdict}"
    )


def of_tuning(results: dict[str, Any]) -> str:
    ways = [*results.get("steps", []), *results["tuned"]]
    best = min(ways, key=lambda row: row["ms"] / row["clients"])
    if results.get("steps") and best is ways[0]:
        return "The constants in use are the fastest."
    return (
        f"Fastest for a client: JOBS = {best['clients']}, PARTS = {best['parts of a batch']}, "
        f"{'compiled' if best['compiled'] else 'not compiled'}; set them in `fedlib/training/card.py` and `maps.py`."
    )


def of_experiments(results: dict[str, Any]) -> str:
    return (
        "From the speed of a client's step and of an evaluated sample, both through the executor; samplers' own work "
        "is left out."
    )


SECTIONS = {
    "verified": ("Right", None),
    "steps": ("The step", None),
    "products": ("Its products, each alone", of_products),
    "peers": ("Peers on the same card", None),
    "experiments": ("Experiments", of_experiments),
    "tuned": ("Other ways to run the step", of_tuning),
}


def estimate_page(estimate: dict[str, Any]) -> str:
    """The page as long as no card was there."""
    rows = [
        row | {key: float(f"{row[key]:.2g}") for key in ("run-rounds/s", "hours")}
        for row in estimate["experiments"]
    ]
    return f"""# A GPU, estimated, not measured

No card was there since plain CNNs got static steps: `make bench-gpu` replaces this page by measurements. These numbers
(`python -m benchmarks.gpu --estimate`) come from counted arithmetic and bytes, for an H100 whose products run at 60 %
of its float32 rate, and whose memory moves the rest at 85 % of its own:

- A step of 64 clients of HiCS-FL's CIFAR-10 network: {estimate["step ms"]:.2g} ms, {estimate["TFLOP/s"]:.2g} TFLOP/s.
  The former stack took 28 ms, measured on an H200.
- All missing CIFAR-10 runs of scale paper: about {sum(row["hours"] for row in rows):.2g} hours.
- A convolution in Triton that leaves no patches in memory is not written: `make bench-gpu` says whether it would help.

{rows_as_table(rows)}
"""
