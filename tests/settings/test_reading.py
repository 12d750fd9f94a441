"""Settings files are YAML 1.2, read as DVC reads them; what could be read in two ways is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml

from fedlib.errors import ConfigError, meant
from fedlib.settings.params import PARAMS
from fedlib.settings.reading import parse, read

TEN = "[*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]"
LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} {TEN.format(old)}\n" for old, new in zip("abcdef", "bcdefg", strict=True)
)


def test_dvc_reads_the_same_settings():
    assert load_yaml(str(PARAMS)) == read(PARAMS)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("010", 10),
        ("0o17", 15),
        ("0xb", 11),
        ("25e-4", 0.0025),
        ("1e3", 1000.0),
        ("True", True),
        ("~", None),
        ("(1)", "(1)"),
        ("{<<: {x: 1, y: 2}, y: 3}", {"x": 1, "y": 3}),
        ("{<<: [{x: 1}, {x: 2, y: 3}]}", {"x": 1, "y": 3}),
    ],
)
def test_values_mean_what_yaml_1_2_says(written: str, value: object):
    found = parse(f"key: {written}\n".encode(), "params.yaml")["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"params\.yaml: a appears twice, in lines 1 and 3; keep one of them\."),
        ("x:\n  b: {c: 1,\n    c: 2}", "c appears twice, in lines 2 and 3"),
        ("a: 2020-01-01", r"line 1: timestamp is not a kind of setting.*quoted text"),
        ("a: !!set {b}", "line 1: set is not a kind of setting"),
        ("a: !mine 3", "line 1: mine is not a kind of setting"),
        ("a: 1\nb: 1_000", r"line 2: 1_000 is not a number in YAML 1\.2"),
        ("a: 0b11", "0b11 is not a number"),
        ("a: &x [*x]", "line 1: contains itself"),
        ("a: &x 1\nb: &x 2\nc: *x", "not valid YAML .*duplicate anchor 'x'"),
        ("a: *x", "line 1: not valid YAML .*undefined alias"),
        ("? [1, 2]\n: 3", "a key must be text or a number"),
        ("%YAML 1.1\n---\na: yes", r"remove the %YAML line; settings are YAML 1\.2"),
        ("a: 1\n---\nb: 2", "another document"),
        ("a: " + "[" * 40 + "]" * 40, "nested more than 30 deep"),
        ("a: " + "[" * 100_000, "nested more than 30 deep"),
        ("a: " + "{a: " * 5_000, "nested more than 30 deep"),
        ("a: " + "9" * 5_000, "not valid YAML"),
        (LAUGHS, "more than 100,000 values"),
        ("a: \x00", "not valid YAML"),
        ("\ta: 1", "line 1: not valid YAML"),
        ("a: [1", "not valid YAML"),
        ("- 1", "must hold a mapping of settings"),
        ("", "must hold a mapping of settings"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_with_its_line(content: str, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        parse(content.encode(), "params.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.bad_input
def test_other_encodings_and_folders_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"params\.yaml, line 2: not UTF-8"):
        parse("a: 1\nb: ü".encode("latin-1"), "params.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        read(tmp_path)


def test_unknown_names_are_answered_with_near_ones_or_all():
    assert meant("fedcro", ["fedcor", "md"]) == "did you mean fedcor?"
    assert meant("x", ["fedcor", "md"]) == "there are fedcor, md."
    assert meant(7, []) == "there are none."
