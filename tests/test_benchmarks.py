"""The measuring protocol and its tables; nothing is timed here."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import arrays, gpu, gpu_left, gpu_page, own, profile, protocol, report, samplers
from benchmarks.__main__ import END, START
from benchmarks.candidates import CANDIDATES, PEERS, Candidate, Failed, install
from benchmarks.protocol import WORKLOADS, Options, measured_rounds
from fedlib.samplers import find
from workspace.pages.readme import replace_between


@pytest.mark.parametrize(
    ("name", "forward_mega", "factor"), [("W1", 0.01568, 2), ("W2", 0.0794, 2.0126), ("W3", 9.0985, 2.829)]
)
def test_needed_arithmetic(name: str, forward_mega: float, factor: float) -> None:
    """Two operations a multiplication; a first layer needs no gradient of its input.

    W1: 2 * 7840 forward, as much for the weights. W2: 2 * (39200 + 500), weights as much, and 2 * 500 back.
    """
    work = WORKLOADS[name]
    samples = work.m * work.steps * work.batch
    assert work.gigaflops == pytest.approx(forward_mega * factor * samples / 1e3, rel=1e-3)


def test_rounds_are_counted_and_the_model_is_measured_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(replace(WORKLOADS["W1"], check=4), Path(), seed=3, threads=1, seconds=0.0, stretches=3)
    done = 0
    measured_after = []

    def evaluate() -> tuple[float, float]:
        measured_after.append(done)
        return 0.5, 0.25

    for _ in measured_rounds(options, evaluate, ("numpy",), multiple=5, facts=lambda: {"client_steps": 7}):
        done += 1
    printed = json.loads(capsys.readouterr().out)
    assert measured_after == [4]
    assert done == 4 + 3 * 5
    assert (printed["loss"], printed["accuracy"], printed["check"], printed["seed"]) == (0.5, 0.25, 4, 3)
    assert printed["client_steps"] == 7
    assert len(printed["rates"]) == 3


@pytest.mark.parametrize("name", [n for n in samplers.measured() if find(n).__module__.startswith("fedlib.")])
def test_the_server_work_of_every_sampler_can_be_measured(name: str) -> None:
    small = replace(WORKLOADS["W2"], dataset="digits", model="logistic", layers=(64, 10), n=20, steps=1)
    (row,) = samplers.server_work(small, {name: 3}, 1)
    assert (row["sampler"], row["N"]) == (name, 100)
    assert 0 <= row["server"] <= row["largest"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="read from Linux's /proc")
def test_memory_and_processor_time_are_of_this_process() -> None:
    block = bytearray(64 * 2**20)
    assert protocol.peak_memory() > len(block) / 2**20
    assert 0 < protocol.tree_seconds() <= protocol.machine_seconds()


def result(rate: float) -> dict[str, object]:
    return {
        "rates": [rate, 2 * rate, 3 * rate],
        "loss": 1.0,
        "accuracy": 0.5,
        "memory": 100.0,
        "others": [0.0],
        "check": 5,
    }


def test_table_shows_ratios_of_medians_and_who_is_missing() -> None:
    text = report.workload(
        "W2", {"engine": [result(10)], "plain": [result(5)], "pfl": "no environment."}, 100.0
    )
    assert "| plain PyTorch loop, client after client | 10 (5 to 15; 3) | 2.00 |" in text
    assert "pfl-research: no environment." in text


def test_neighbours_cost_is_told_in_rates_and_processor_time() -> None:
    rows = [{"who": "engine", "rate": 9.0, "cpu": 0.06}, {"who": "team", "rate": 3.0, "cpu": 0.18}]
    text = report.neighbours(rows)
    assert "| this engine | 9 |  | 60 |" in text
    assert "| this engine, if the server's work used all cores | 3 | 3.00 | 180 |" in text


def test_readme_quotes_ratios_of_medians(tmp_path: Path) -> None:
    machine = {"cpu": "A processor", "cores": 2, "memory": 8}
    measured = {"engine": [result(10)], "plain": [result(4)], "pfl": "no environment."}
    text = report.quote({"workloads": {"W2": measured}, "machine": machine, "matrix_rate": 100.0})
    assert "| **this engine** | 20 rounds/s |\n| plain PyTorch loop | 2.5 × |\n" in text
    assert "| pfl-research |  |\n" in text
    assert "W2: MLP 784-50-10." in text
    readme = tmp_path / "README.md"
    readme.write_text(f"before {START} old {END} after")
    assert replace_between(readme, START, END, text)
    assert readme.read_text() == f"before {START}\n\n{text}\n\n{END} after"
    assert not replace_between(readme, START, END, text)


def test_a_candidate_without_measurements_says_why() -> None:
    broken = Candidate("broken", ("-c", "raise SystemExit('no data')"), ("W1",))
    with pytest.raises(Failed, match="no data"):
        broken.measure("W1", [])


def test_every_peer_is_a_program_with_locked_packages() -> None:
    peers = {candidate.peer for candidate in CANDIDATES.values() if candidate.peer}
    assert peers == {folder.parent.name for folder in PEERS.glob("*/requirements.in")}
    for peer in peers:
        lock = (PEERS / peer / "requirements.lock").read_text()
        locked = {line.partition("==")[0] for line in lock.splitlines() if "==" in line}
        wanted = (PEERS / peer / "requirements.in").read_text().split()
        assert locked.issuperset(name.partition("[")[0] for name in wanted)
        assert "://" not in lock
        assert (PEERS / peer / "run.py").exists()


def test_a_peer_may_need_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda command, check: commands.append(command))
    for name in ("blazefl", "jax"):
        install(name)
    made = [command[command.index("--python") + 1] for command in commands if "venv" in command]
    assert made == ["3.12", sys.executable]


@pytest.mark.parametrize("name", ["W1", "W2", "W4"])
def test_own_candidates_run_and_learn_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each workload in small, with digits for its data, as its candidates are started; the first run counts."""
    full = WORKLOADS[name]
    layers = (64, *full.layers[1:])
    small = replace(full, dataset="digits", layers=layers, n=14, steps=20, batch=10, lr=0.1, R=min(full.R, 5))
    monkeypatch.setitem(WORKLOADS, name, small)
    arrays.write(small, tmp_path)
    accuracies = {}
    for candidate in ("engine", "plain"):
        options = ["--arrays", str(tmp_path), "--threads", "1", "--check", "4", "--seconds", "0"]
        monkeypatch.setattr(sys, "argv", [candidate, name, *options, "--stretches", "1"])
        runpy.run_module(f"benchmarks.{candidate}", run_name="__main__")
        printed = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert len(printed["rates"]) == 1
        assert printed["rates"][0] > 0
        accuracies[candidate] = printed["accuracy"]
    assert all(accuracy > 0.6 for accuracy in accuracies.values()), "ten classes: a guess has 0.1"


def test_own_models_are_compared_by_the_medians_of_their_runs() -> None:
    seconds = {"engine": (3.0, 1.0, 2.0), "plain": (4.0, 4.0, 7.0)}
    found = [
        {"case": case, "who": who, "seconds": value, "loss": 0.5}
        for who, values in seconds.items()
        for value in values
        for case in own.CASES
    ]
    text = own.page(found)
    assert "range of 3 runs" in text
    for case in own.CASES.values():
        assert (
            f"| {case.title} | {case.T} | 2.00 (1.00-3.00) | 4.00 (4.00-7.00) | 0.50 | 0.500, 0.500 |" in text
        )


def test_without_a_card_its_benchmark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    with pytest.raises(SystemExit, match="torch finds none on this machine"):
        gpu.main()


@pytest.mark.slow
def test_all_sections_of_a_card_run_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At toy size, and nothing is written."""
    monkeypatch.setattr(sys, "argv", ["gpu", "--cpu"])
    monkeypatch.setattr(gpu, "write_whole", lambda path, content: pytest.fail(f"{path} is written"))
    gpu.main()
    text = capsys.readouterr().out
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert titles == [title for title, _ in gpu_page.SECTIONS.values()]
    assert "A convolution in Triton" in text
    assert "two groups of runs in turns" in text


def test_a_section_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a card that is taken away lose what was measured."""
    for section in gpu.SECTIONS:
        monkeypatch.setattr(gpu.Bench, section, lambda self: [{"clients": 64, "ms": 2.0}])

    def broken(self):
        raise RuntimeError("CUDA error: out of memory")

    for section in ("limits", "whole", "experiments", "tuned"):
        monkeypatch.setattr(gpu.Bench, section, broken)
    pages: list[str] = []
    gpu.measured(
        gpu.Bench(torch.device("cpu"), gpu.TOY), lambda results: pages.append(gpu_page.page(results))
    )
    assert len(pages) == len(gpu.SECTIONS)
    assert "## The step" in pages[2]
    assert "## Peers on the same card" in pages[-1]
    assert "Failed: RuntimeError: CUDA error: out of memory" in pages[-1]


def test_needed_arithmetic_of_a_cnn() -> None:
    """Multiplications of its convolutions and products, three times except for the first layer's inputs."""
    first = 900 * 32 * 27
    others = 169 * 64 * 288 + 16 * 64 * 576 + 1024 * 64 + 64 * 10
    assert gpu_left.needed(gpu_left.MODEL) == 2 * (2 * first + 3 * others)
    assert gpu_left.needed(gpu_left.MODEL, training=False) == 2 * (first + others)


def test_the_products_of_a_step_are_its_needed_arithmetic() -> None:
    """All that is needed is done, in batched products, and nothing else."""
    rows = gpu.Bench(torch.device("cpu"), gpu.TOY).products()
    operations = sum(row["ms"] * row["TFLOP/s"] for row in rows[:-1]) * 1e9
    assert operations == pytest.approx(gpu_left.needed(gpu_left.MODEL) * gpu.TOY.jobs * gpu.TOY.batch)


RESULTS = {
    "card": "A card",
    "machine": {"cores": 16},
    "failed": {},
    "limits": {"TFLOP/s": 52.0, "TF32 TFLOP/s": 390.0, "GB/s": 3000.0, "bits ms": 1.5},
    "verified": [{"network": "a", "right": True, "equal twice": False}],
    "peers": [{"peer": "a plain loop", "ms": 80.0}],
    "whole": {"in turns": 33.3, "one group": 22.2},
    "experiments": [{"experiment": e, "run-rounds/s": 9.0, "missing runs": 2, "hours": 1.25} for e in "ab"],
}


def way(parts: int, ms: float, rate: float) -> dict[str, object]:
    return {"clients": 64, "parts of a batch": parts, "compiled": True, "ms": ms, "TFLOP/s": rate, "GiB": 3.0}


def test_the_page_of_a_card_names_share_hours_and_the_fastest_way() -> None:
    text = gpu_page.page(RESULTS | {"steps": [way(8, 4.0, 26.0)], "tuned": [way(4, 2.0, 52.0)]})
    assert "**50% of the limit**" in text
    assert "about 2.5 hours" in text
    assert "JOBS = 64, PARTS = 4, compiled" in text
    assert "| a plain loop | 80 |" in text
    assert "| a | yes | **no** |" in text
    assert "The constants in use" in gpu_page.page(
        RESULTS | {"steps": [way(8, 4.0, 26.0)], "tuned": [way(4, 5.0, 20.0)]}
    )


@pytest.mark.parametrize(
    ("step", "products", "verdict"),
    [
        (way(8, 4.0, 26.0), 30.0, "not needed: the step reaches 50%"),
        (way(8, 6.5, 16.0), 20.0, "worth writing: the products alone reach 20 TFLOP/s"),
        (way(8, 6.5, 16.0), 30.0, "worth writing: 2.5 of the step's 6.5 ms only move memory"),
    ],
)
def test_the_page_of_a_card_says_whether_a_convolution_is_worth_writing(
    step: dict, products: float, verdict: str
) -> None:
    rows = [{"product": "all", "ms": 4.0, "TFLOP/s": products}]
    text = gpu_page.page(RESULTS | {"steps": [step], "products": rows})
    assert verdict in text
    assert "at most 130 TFLOP/s" in text


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("W2", marks=pytest.mark.dataset("mnist")),
        pytest.param("W3", marks=pytest.mark.dataset("cifar10")),
    ],
)
def test_the_profile_finds_every_part_of_a_round(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = replace(WORKLOADS[name], N=4, m=2, n=20, steps=2, batch=5)
    monkeypatch.setitem(WORKLOADS, name, work)
    text = profile.describe(name, matrix_rate=100.0)
    expected = (
        ["`affine`: hidden layer", "`cross_entropy`"]
        if name == "W2"
        else ["a batch of images", "64 x 32 x 3 x 3"]
    )
    assert all(part in text for part in [*expected, "all else"])
