"""Careless edits of a settings file: each is refused in one sentence, or means what YAML 1.2 says."""

from __future__ import annotations

import random
import re

import pytest

from fedlib.errors import ConfigError
from fedlib.settings.params import Experiments
from fedlib.settings.reading import parse
from fedlib.settings.schema import SCALES
from workspace.analysis.experiments import plan
from workspace.commands import pipeline

FILE = """\
scale: demo
experiments:
  tiny:
    title: A tiny experiment
    paper: fedcor
    archive: [clients]
    dataset: digits
    partition: &sizes
      scheme: dirichlet_clients
      alpha: 0.5
      sizes: [[4, 20], [2, 50]]
    model: mlp
    N: 6
    m: 2
    T: 5
    seeds: 2
    holdout: 0.2
    until:
      test_accuracy: 0.5
      least: 2
    local:
      lr: 0.1
      batch: 10
      steps: 3
      momentum: 0.5
    evaluate:
      every: 2
      train: true
    methods:
      Random: {sampler: uniform}
      FedCor:
        sampler: fedcor
        warmup: 3
        dt: 2
        beta: 0.9
        d: 4
      HiCS-FL:
        sampler: hics_fl
        T_s: 0.0025
        gamma: 4
        several_alphas: true
      IFCA:
        sampler: uniform
        algorithm: ifca
        algorithm_params:
          models: 2
    grid:
      mild:
        partition: {alpha: 10}
      as it is: {}
    scales:
      cpu:
        T: 8
        seeds: [0, 3]
      paper:
        T: 9
        partition:
          <<: *sizes
          alpha: 1
studies:
  fedcor_toy:
    title: The toy
    paper: fedcor
    draws: 10
    n: 5
    pairs: 7
    cases:
      first:
        gap: 4.0
        lr: 1
    scales:
      cpu:
        draws: 4
  hics_last_layer:
    title: The output layer
    experiments: {digits: tiny}
    methods: [HiCS-FL]
    rounds: 3
artifacts:
  fedcor-figure_1:
    experiments: [tiny, fedcor_toy]
"""
LINES = FILE.splitlines()
MEANS = {  # what YAML 1.2 says of a scalar
    **{
        text: text
        for text in ("yes", "no", "on", "1:30", "25e", "e5", "1.2.3", "- 3", "../x", "rm -rf /", "x;y")
    },
    **dict.fromkeys(("", "~", "null")),
    **{text: text == "true" for text in ("true", "false")},
    "010": 10,
    "0o10": 8,
    "0x1f": 31,
    "-1": -1,
    "0": 0,
    "7": 7,
    "1e3": 1000.0,
    "25e-4": 0.0025,
    "10.0": 10.0,
    "1e400": float("inf"),
    ".inf": float("inf"),
    "-.inf": -float("inf"),
    "99999999999999": 99999999999999,
    "'true'": "true",
    '"3"': "3",
    "'0.1'": "0.1",
    "!!str 3": "3",
    "!!float 3": 3.0,
    "[]": [],
    "{}": {},
    "[1]": [1],
    "{a: 1}": {"a": 1},
    "[[1]]": [[1]],
}
REFUSED = (
    "2020-01-01",
    "1_000",
    "0b11",
    "&a [*a]",
    "*nowhere",
    "!!set {a}",
    "[" * 2000,
    "{a: " * 500,
    "\x00",
)
JUNK = (
    ":",
    "-",
    "  ",
    "\t",
    "&",
    "*x",
    "{",
    "]",
    "'",
    '"',
    "#",
    "%",
    "|",
    "ü",
    "\U0001f600",
    "<<: ",
    "? ",
    "!!int ",
)


def understood(content: bytes) -> Experiments:
    """All that the file stands for, at every scale."""
    settings = Experiments(parse(content, "params.yaml"))
    assert settings.scale in SCALES
    for scale in SCALES:
        for name in settings.names:
            assert settings.runs(name, scale)
        for name in settings.studies:
            plan(name, scale, settings)
    names = [*settings.names, *settings.studies, *settings.artifacts]
    assert all(re.fullmatch(r"[\w-]+", name, re.ASCII) for name in names)
    parse(b"stages:\n" + pipeline.stages(settings).encode(), "dvc.yaml")
    return settings


def refused_or_understood(content: bytes) -> Experiments | None:
    settings, said = None, "fine"
    try:
        settings = understood(content)
    except ConfigError as error:
        said = str(error)
    assert 0 < len(said) < 600
    assert "\n" not in said
    return settings


def test_the_file_is_understood():
    settings = understood(FILE.encode())
    assert [len(settings.runs("tiny", scale)) for scale in SCALES] == [16, 16, 16]


def places() -> list[tuple[int, list[str]]]:
    """Line of each scalar that is written on its own, and the keys that lead to it."""
    found, above = [], []
    for n, line in enumerate(LINES):
        depth, key, value = (len(line) - len(line.lstrip())) // 2, *line.strip().partition(": ")[::2]
        above = [*above[:depth], key.rstrip(":")]
        if value and value[0] not in "&*{[" and "<<" not in key:
            found.append((n, above))
    return found


def test_values_are_refused_or_mean_what_yaml_1_2_says(record_property):
    rng = random.Random(0)
    tried = [(place, text) for place in places() for text in (*MEANS, *REFUSED)]
    chosen = rng.sample(tried, 300)
    taken = 0
    for (n, keys), text in chosen:
        written = LINES[n].partition(":")[0]
        settings = refused_or_understood(
            "\n".join([*LINES[:n], f"{written}: {text}", *LINES[n + 1 :], ""]).encode()
        )
        if settings is not None:
            value = settings.raw
            for key in keys:
                value = value[key]
            assert text not in REFUSED
            assert (value, type(value)) == (MEANS[text], type(MEANS[text])), (keys, text)
            taken += 1
    assert 20 < taken < 200
    record_property("mutations of settings refused or understood", len(chosen))


def mutated(rng: random.Random) -> bytes:
    """The file with one careless edit."""
    lines = list(LINES)
    n = rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:  # a letter of the key is lost, doubled or changed
            key = lines[n].partition(":")[0]
            i = rng.randrange(len(key) - len(key.lstrip()), len(key))
            lines[n] = (
                key[:i]
                + rng.choice(["", 2 * key[i], "x", "/", "..", " ", "$"])
                + key[i + 1 :]
                + lines[n][len(key) :]
            )
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[n])
        case 2:
            del lines[n]
        case 3:
            lines[n] = rng.choice([" ", "  ", "\t", "      "]) + lines[n]
        case 4:
            lines[n] = lines[n].lstrip()
        case 5:
            i = rng.randrange(len(lines[n]) + 1)
            lines[n] = lines[n][:i] + rng.choice(JUNK) + lines[n][i:]
        case _:
            content = bytearray("\n".join(lines).encode())
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            return bytes(content)
    return "\n".join([*lines, ""]).encode()


def test_careless_edits_are_refused_or_understood(record_property):
    rng = random.Random(1)
    edits = [mutated(rng) for _ in range(300)]
    refused = sum(refused_or_understood(content) is None for content in edits)
    assert 100 < refused < 290
    record_property("mutations of settings refused or understood", len(edits))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  tiny:\n", "  ../tiny:\n", r"experiments: '\.\./tiny' is not a valid name; use letters, digits"),
        ("  tiny:\n", "  /tiny:\n", "is not a valid name"),
        ("  tiny:\n", "  'x; rm -rf y':\n", "is not a valid name"),
        ("  fedcor_toy:\n", "  $(toy):\n", r"studies: '\$\(toy\)' is not a valid name"),
        ("  fedcor-figure_1:\n", "  fedcor figure:\n", "artifacts: 'fedcor figure' is not a valid name"),
        ("paper: fedcor", "paper: ../x", r"experiments\.tiny\.paper: '\.\./x' is not a valid name"),
        ("title: A tiny experiment", "title: 3", r"experiments\.tiny\.title: .*valid string \(given: 3\)"),
        ("experiments: [tiny, fedcor_toy]", "experimnts: []", r"fedcor-figure_1\.experimnts"),
        ("[tiny, fedcor_toy]", "[tinny]", r"'tinny' does not exist; did you mean tiny\?"),
        ("    pairs: 7", "    paris: 7", r"studies\.fedcor_toy\.pairs: Field required"),
        ("    draws: 10", "    draws: ten", r"studies\.fedcor_toy\.draws: .*valid integer"),
        (
            "        draws: 4",
            "        drawz: 4",
            r"fedcor_toy\.scales\.cpu: no key 'drawz'; did you mean draws",
        ),
        (
            "    scales:\n      cpu:\n        draws",
            "    scales:\n      gpu:\n        draws",
            "no scale 'gpu'",
        ),
        ("        T: 9", "        TT: 9", r"tiny\.scales\.paper: no key 'TT'"),
        ("methods: [HiCS-FL]", "methods: [HiCS]", r"no method 'HiCS' to follow; did you mean HiCS-FL\?"),
        ("    seeds: 2\n", "    seeds: 100000000000\n", r"tiny\.seeds must be .*10,000 at most"),
        ("    T: 5\n", "    T: 5\n    T: 6\n", "T appears twice, in lines 15 and 16"),
    ],
)
def test_misspelt_keys_and_unsafe_names_are_named(old: str, new: str, message: str):
    assert old in FILE
    with pytest.raises(ConfigError, match=message):
        understood(FILE.replace(old, new, 1).encode())
