"""Read a settings file: YAML 1.2 as DVC reads it, without repeated keys, and with plain values only.

`T: yes` and `T: 1:30` are text, `010` is ten and `25e-4` is a number. Some content is refused, with its line: values
that other YAML versions read differently (dates, `1_000`, `0b11`), and what later errors could not explain (repeated
keys, values that contain themselves).
"""

from __future__ import annotations

import pickle
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from fedlib.errors import ConfigError

DEPTH = 30
VALUES = 100_000  # after aliases are expanded
PLAIN = {"null", "bool", "int", "float", "str", "merge", "map", "seq"}


def read(path: Path) -> dict[str, Any]:
    """The mapping in a settings file.

    Raises:
        ConfigError: the file is missing or unreadable, is not UTF-8 or YAML, or holds something other than
            settings. The message names the line.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path.name} is missing; run from the project's folder.") from None
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read ({error.strerror}).") from None
    return pickle.loads(_parsed(content, path.name))


@lru_cache(maxsize=4)
def _parsed(content: bytes, name: str) -> bytes:
    """`parse`, pickled: every reader of the same content gets its own mapping, without parsing again."""
    return pickle.dumps(parse(content, name))


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Like `read`, for a file's content; `name` is what error messages call the file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8; save the file in that encoding.") from None
    yaml = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an anchor that is given twice
            node = yaml.compose(text)
            if yaml.version or any(line.startswith("%YAML") for line in text.splitlines()):
                raise ConfigError(f"{name}: remove the %YAML line; settings are YAML 1.2.")
            _size(node, name, {})
            raw = yaml.constructor.construct_document(node) if node else None
    except RecursionError:
        raise ConfigError(f"{name}: nested more than {DEPTH} deep; settings need less.") from None
    except (YAMLError, Warning, ValueError, OverflowError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name}{_problem(error)}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{name} must hold a mapping of settings.")
    return raw


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = (error.problem or error.context) if isinstance(error, MarkedYAMLError) else str(error)
    line = f", line {mark.line + 1}" if mark else ""
    return f"{line}: not valid YAML ({' '.join(str(problem).split())})."


def _size(node: Node | None, name: str, sizes: dict[int, int | None], depth: int = 0) -> int:
    """Number of values that a node stands for. `sizes` holds those of nodes done, and None for nodes around this one.

    Raises:
        ConfigError: it repeats a key, contains itself, is too large, or holds anything but numbers, text, lists and
            mappings.
    """
    if node is None:
        return 0
    line = f"{name}, line {node.start_mark.line + 1}"
    if id(node) in sizes:
        if (size := sizes[id(node)]) is None:
            raise ConfigError(f"{line}: contains itself; write it out.")
        return size
    if depth > DEPTH:
        raise ConfigError(f"{line}: nested more than {DEPTH} deep; settings need less.")
    kind = str(node.tag).rsplit(":", 1)[-1]
    if kind not in PLAIN:
        raise ConfigError(
            f"{line}: {kind.strip('!')} is not a kind of setting; write a number, a list, a mapping or quoted text."
        )
    sizes[id(node)], total = None, 1
    if isinstance(node, ScalarNode):
        if kind in ("int", "float") and ("_" in node.value or "0b" in node.value[:3]):
            raise ConfigError(
                f"{line}: {node.value} is not a number in YAML 1.2; write it in decimal digits."
            )
    elif isinstance(node, MappingNode):
        _check_keys(node, name)
        total += sum(_size(part, name, sizes, depth + 1) for pair in node.value for part in pair)
    else:
        total += sum(_size(part, name, sizes, depth + 1) for part in node.value)
    if total > VALUES:
        raise ConfigError(f"{line}: more than {VALUES:,} values; settings need less.")
    sizes[id(node)] = total
    return total


def _check_keys(node: MappingNode, name: str) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise ConfigError(f"{name}, line {line}: a key must be text or a number.")
        tagged = (str(key.tag), key.value)
        if tagged in lines:
            raise ConfigError(
                f"{name}: {key.value} appears twice, in lines {lines[tagged]} and {line}; keep one of them."
            )
        lines[tagged] = line
