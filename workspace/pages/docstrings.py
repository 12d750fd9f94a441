"""Docstrings as pages show them: the house writes plain text, Sphinx's autodoc reads reStructuredText."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from fedlib.digests import HOUSE
from fedlib.samplers import SAMPLERS

MODELS = "fedlib.training.models"
ITEM = re.compile(r"\s*([\w.]+(?:, [\w.]+)*): (.+)")
CODE = re.compile(r"`+([^`]+)`+|(\((?:\w{1,2}|\.\.\.)(?:, (?:\w{1,2}|\.\.\.))*,?\))")  # and shapes, as (n, d)
MARKUP = re.compile(r"([\\*|_<>:\[\]])")


def process_docstring(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's event `autodoc-process-docstring`."""
    lines[:] = as_rest(lines)
    if name == MODELS:
        lines += [f"- ``{model}``: {escaped(about_model)}" for model, about_model in models()] + [""]


def signature(
    app: Any, kind: str, name: str, thing: Any, options: Any, said: str, returned: str
) -> tuple[str, str] | None:
    """Sphinx's event `autodoc-process-signature`: of a class whose base is not installed, its own."""
    if kind != "class" or said != "(*args, **kwargs)":
        return None
    _, *parameters = inspect.signature(thing.__init__).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare)), ""


def models() -> Iterator[tuple[str, str]]:
    """Each model's name and what its function's docstring says first, read without importing it."""
    for file in sorted((HOUSE / "training" / "models").glob("[!_]*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == file.stem:
                yield file.stem, " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def as_rest(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText that shows the same characters: `name: what it is` becomes an item of a list.

    `code` and shapes are set as code, indented text after `::` as a block of it; nothing else is markup.
    """
    rest_lines: list[str] = []
    for block in re.split(r"\n{2,}(?! )", "\n".join(lines).strip("\n")):
        text, *code = re.split(r":(?=:\n+ {4})", block, maxsplit=1)
        for names, meaning in items(f"{text}:".splitlines() if code else text.splitlines()):
            words = escaped(" ".join(meaning))
            rest_lines += [f"- **{escaped(names)}**: {words}" if names else words, ""]
        if code:
            rest_lines += ["::", "", *code[0].removeprefix(":").strip("\n").splitlines(), ""]
    return rest_lines


def items(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(names, words) of each item of a paragraph; no names: words that explain no argument."""
    names, meaning = "", []
    for line in lines:
        match = ITEM.fullmatch(line)
        if match or re.match(r"\s*(\d+\. |\w+:$)", line):
            if meaning:
                yield names, meaning
            names, meaning = (match[1], [match[2]]) if match else ("", [line.strip()])
        else:
            meaning.append(line.strip())
    yield names, meaning


def escaped(text: str) -> str:
    """Text without markup, but for code."""
    marked, end = "", 0
    for match in CODE.finditer(text):
        marked += MARKUP.sub(r"\\\1", text[end : match.start()]) + f"``{match[1] or match[2]}``"
        end = match.end()
    return marked + MARKUP.sub(r"\\\1", text[end:])


def samplers() -> list[dict[str, Any]]:
    """Every registered sampler: name, title and text of its docstring, parameters with defaults."""
    listed = []
    for name, cls in sorted(SAMPLERS.items()):
        parameters = [
            (part.name, "" if part.default is MISSING else repr(part.default)) for part in fields(cls)
        ]
        doc, _, _ = (inspect.getdoc(cls) or "").partition("\n\nRaises:")  # that is for who writes code
        listed.append({"name": name, "doc": doc, "parameters": parameters, "module": cls.__module__})
    return listed
