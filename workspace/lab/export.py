"""What the lab ran, as a script that runs it again and as an entry of params.yaml."""

from __future__ import annotations

import base64
import html
import json
import linecache
import pprint
from collections.abc import Mapping, Sequence
from typing import Any

from fedlib.samplers import SAMPLERS, Sampler
from workspace.lab.setting import as_yaml

SCRIPT = '''\
"""Trains the methods of a setting side by side; run in the repository, with the dataset prepared."""

from workspace.lab.training import Training, standings
{classes}
SETTING = {setting}
METHODS = {methods}

training = Training(SETTING, {seeds})
for label, method in METHODS.items():
    training.enter(label, method)
while not training.done:
    training.advance()
results = training.results()
results.to_csv("results.csv", index=False)
print(standings(results, target={target}))
'''


def entry(setting: Mapping[str, Any], methods: Mapping[str, Any], seeds: int) -> str:
    """An experiment of params.yaml, to stand under `experiments:`."""
    run = {"title": "from the lab", **setting, "seeds": seeds, "methods": methods}
    lines = as_yaml({"from_the_lab": run}).splitlines()
    return "\n".join(f"  {line}" for line in lines) + "\n"


def script(setting: Mapping[str, Any], methods: Mapping[str, Any], seeds: int, target: float) -> str:
    """A Python script that trains the same runs. target: an accuracy in [0, 1], for its last table."""
    names = dict.fromkeys(method["sampler"] for method in methods.values())
    classes = [source(SAMPLERS[name]) for name in names if name in SAMPLERS]
    return SCRIPT.format(
        classes="\n".join(dict.fromkeys(filter(None, classes))),
        setting=pprint.pformat(dict(setting), width=100, sort_dicts=False),
        methods=pprint.pformat(dict(methods), width=100, sort_dicts=False),
        seeds=f"range({seeds})",
        target=target,
    )


def links(files: Mapping[str, str]) -> str:
    """HTML that copies or downloads texts. files: the name of each -> the text."""
    parts = []
    for name, text in files.items():
        data = f"data:text/plain;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
        copied = f"navigator.clipboard.writeText({json.dumps(text)})"
        parts.append(
            f'{html.escape(name)}: <a href="{data}" download="{html.escape(name)}">download</a>, '
            f'<a href="#" onclick="{html.escape(copied)}; return false">copy</a>'
        )
    return " · ".join(parts)


def source(sampler: type[Sampler]) -> str:
    """The cell or program that defines a sampler; "" for a shipped one."""
    if sampler.__module__.startswith("fedlib."):
        return ""
    if sampler.__module__ != "__main__":
        return f"import {sampler.__module__}\n"
    files: Sequence[str] = [
        part.__code__.co_filename for part in vars(sampler).values() if hasattr(part, "__code__")
    ]
    text = next((lines for file in files if (lines := "".join(linecache.getlines(file)))), "")
    return text or f"# Put the definition of the sampler {sampler.__name__} here.\n"
