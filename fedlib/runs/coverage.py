"""What a record of results says is there, what is missing and what failed; in words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedlib.runs.results import RESULTS, record
from fedlib.runs.work import labels_of, words
from fedlib.settings.schema import Scale

FEW = 6  # names that are listed; more are counted


def lacking(info: dict[str, Any]) -> str:
    """The missing runs in a record of results (`open_results`), in words; empty if none is missing.

    A setting without any run is named as a whole, and so is a method. Otherwise the missing seeds are named. Methods
    that lack the same seeds are named together, and so are settings that lack the same methods.
    """
    finished = {(_setting(run), run["method"]) for run in info["runs"]}
    started = {setting for setting, _ in finished}
    seeds: dict[tuple[str, str], list[str]] = {}
    for run in info.get("missing", []):
        setting = _setting(run)
        method = run.get("method", "") if setting in started else "all"
        seeds.setdefault((setting, method), []).append(str(run["seed"]))
    return _grouped(
        {key: f" (seeds {', '.join(numbers)})" if key in finished else "" for key, numbers in seeds.items()}
    )


def present(info: dict[str, Any]) -> str:
    """What the record of results says is there, in words: "HiCS-FL / Random of (2), 1 seed"; empty if nothing is."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in info.get("runs", []):
        seeds.setdefault((_setting(run), run.get("method", "")), set()).add(run["seed"])
    return _grouped(
        {key: f", {len(numbers)} seed{'s' * (len(numbers) > 1)}" for key, numbers in seeds.items()}
    )


def _grouped(suffixes: dict[tuple[str, str], str]) -> str:
    """What is said of each (setting, method), once for all methods of a setting, and all settings, with the same."""
    methods: dict[tuple[str, str], list[str]] = {}  # (setting, what is said) -> methods
    for (setting, method), suffix in suffixes.items():
        methods.setdefault((setting, suffix), []).append(method)
    settings: dict[tuple[str, str], list[str]] = {}  # (methods, what is said) -> settings
    for (setting, suffix), names in methods.items():
        settings.setdefault((_counted(names, "methods"), suffix), []).append(setting)
    return "; ".join(
        " of ".join(filter(None, [names, _counted(alike, "settings")])) + suffix
        for (names, suffix), alike in settings.items()
    )


def failed(info: dict[str, Any]) -> list[str]:
    """The failed runs in a record of results, one sentence each."""
    return [f"{words(run)}: {run['reason']}" for run in info.get("missing", []) if "failed" in run]


def nothing_of(name: str, scale: Scale, planned: int) -> str:
    """What is said where nothing of an experiment or study is finished."""
    return (
        f"{name} at scale {scale}: none of its {planned:,} planned runs is finished or archived; run: "
        f"fedlib run {name} --scale {scale}"
    )


def covered(experiments: Iterable[str], scale: Scale, results: Path = RESULTS) -> set[tuple[str, str, str]]:
    """All (experiment, setting, method) that have at least one seed at a scale."""
    finished = ((name, run) for name in experiments for run in record(name, scale, results).get("runs", []))
    return {(name, _setting(run), run.get("method", "")) for name, run in finished}


def _setting(run: dict[str, Any]) -> str:
    """The setting of a run; of a measurement, whose settings may occur on several datasets, with the dataset."""
    data, setting = labels_of(run).get("data", ""), run.get("setting", "")
    return data if setting in data else f"{data} {setting}".strip()


def _counted(names: list[str], plural: str) -> str:
    return " / ".join(names) if len(names) <= FEW else f"{len(names)} {plural}"
