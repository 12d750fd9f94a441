"""A finished picture: as small, byte-stable SVG, and as the points of its lines."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.path import Path

PATH = re.compile(r' d="(M [^"]*)"')
PLACE = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)')  # what is written in points
FRACTION = re.compile(r"-?\d+\.\d+")
STYLE = re.compile(r' style="([^"]*)"')
NAME = re.compile(r' id="([^"]*)"')
NOT_TURNED = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
EMPTY = re.compile(r"<g\b[^>]*/>")
GROUP = re.compile(r"(<g\b[^>]*>|</g>)")
INVISIBLE = 0.25  # points: about how far a line may be from where it was, once it has fewer vertices


def svg(figure: Figure, salt: str) -> bytes:
    """A figure as byte-stable SVG: without date and author, with ids that depend only on `salt`."""
    picture = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(
            picture,
            format="svg",
            bbox_inches="tight",
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )
    plt.close(figure)
    return compact(picture.getvalue().decode()).encode()


def compact(svg: str) -> str:
    """An SVG with tenths or hundredths of a point for millionths, and without what nobody would miss.

    That is: vertices, names that nothing refers to, groups without attributes, and a style that is written again.
    """
    svg = NOT_TURNED.sub("", PLACE.sub(rounded, PATH.sub(thinned, svg)))
    used = set(re.findall(r"#([\w-]+)", svg))
    svg = NAME.sub(lambda name: name[0] if name[1] in used else "", svg)
    return re.sub(r"\n\s*", "\n", ungrouped(with_classes(svg)))


def thinned(found: re.Match[str]) -> str:
    """The lines and outlines of a path with fewer vertices, as steps from one to the next; any other path as it is."""
    return f' d="{"".join(steps(part) for part in re.findall("M[^M]*", found[1]))}"'


def steps(part: str) -> str:
    """A part of a path that is drawn without lifting the pen."""
    words = part.split()
    if {*words} & {"C", "Q"} or words.count("L") < 20:
        return part.replace(" \n", " ")
    numbers = [word for word in words if word not in ("M", "L", "z")]
    line = Path(np.array(numbers, float).reshape(-1, 2))
    line.simplify_threshold = INVISIBLE
    line = line.cleaned(simplify=True)
    tenths = np.rint(10 * np.asarray(line.vertices)[np.asarray(line.codes) != Path.STOP]).astype(int)
    moves = np.diff(tenths, axis=0)
    moved = moves[moves.any(axis=1)]
    return f"M{joined(tenths[0])}l{joined(moved.ravel())}{'z' * (words[-1] == 'z')}"


def joined(tenths: Iterable[int]) -> str:
    """Numbers as a path writes them: a sign separates two, and so does a second decimal point."""
    text, last = "", "."
    for number in tenths:
        word = f"{number / 10:.1f}".removesuffix(".0")
        word = word.replace("0.", ".") if abs(number) < 10 else word
        apart = word[0] == "-" or (word[0] == "." and "." in last)
        text, last = text + " " * (bool(text) and not apart) + word, word
    return text


def with_classes(svg: str) -> str:
    """An SVG in which styles that occur again stand once, at its head; a class has the same meaning in all pictures."""
    counts = Counter(STYLE.findall(svg))
    names = {style: f"s{sha256(style.encode()).hexdigest()[:7]}" for style, n in counts.items() if n > 1}
    if "</style>" not in svg:
        return svg
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    svg = STYLE.sub(lambda style: f' class="{names[style[1]]}"' if style[1] in names else style[0], svg)
    return svg.replace("</style>", f"{rules}</style>", 1)


def ungrouped(svg: str) -> str:
    """An SVG without the groups that say nothing of what is in them."""
    parts, kept = [], []
    for part in GROUP.split(EMPTY.sub("", svg)):
        if part.startswith("<g"):
            kept.append(part != "<g>")
        if not (part == "<g>" or (part == "</g>" and not kept.pop())):
            parts.append(part)
    return "".join(parts)


def rounded(place: re.Match[str]) -> str:
    def hundredths(number: re.Match[str]) -> str:
        text = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text

    return FRACTION.sub(hundredths, place[0])


def show(picture: bytes, /, **metadata: Any) -> None:
    """Display an SVG. IPython's own class for it parses it with Python's slow XML parser."""
    text = picture.decode()
    display({"image/svg+xml": text[text.index("<svg") :]}, raw=True, metadata=metadata)


def lines(figure: Figure) -> pd.DataFrame:
    """The points of every line of a figure: one row per point, with columns panel, line, x, y.

    A line's name is its label without the underscore that keeps it out of the legend; empty if it has no label.
    """
    rows = []
    for k, axes in enumerate(figure.axes):
        panel = axes.get_title() or f"panel {k + 1}"
        for line in axes.get_lines():
            label = str(line.get_label())
            name = "" if label.startswith("_child") else label.removeprefix("_")
            rows += [(panel, name, x, y) for x, y in zip(*map(np.asarray, line.get_data()), strict=True)]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "y"])
