"""Tables as pages show them: one function writes every table."""

from __future__ import annotations

import csv
import html
import io
import math
import numbers
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML, display

LONG = 150  # cells of a table that is folded
DIGITS = 4  # significant digits of a number between 0.001 and 10,000
MISSING = "–"  # in place of a value that does not exist


@dataclass(frozen=True)
class Markup:
    """HTML that a cell shows as it is; any other text is escaped."""

    html: str


def show(frame: pd.DataFrame, index: bool = False) -> None:
    """Display a whole table; a long one opens on a click."""
    display(HTML(foldable(frame, index)))


def fold(frame: pd.DataFrame, title: str, kind: str = "") -> None:
    """Display a table that opens on a click on its title."""
    display(HTML(folded(html_of(frame, kind=kind), title)))


def foldable(frame: pd.DataFrame, index: bool) -> str:
    """A table as HTML, folded if it has more than `LONG` cells."""
    table = html_of(frame, index)
    return folded(table, f"Table of {len(frame)} rows") if frame.size > LONG else table


def folded(table: str, title: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{table}</details>"


def as_here() -> None:
    """Let a notebook show every table like this, also one that is the last value of a cell."""
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type(pd.DataFrame, lambda frame: foldable(frame, index=True))


def html_of(frame: pd.DataFrame, index: bool = False, kind: str = "") -> str:
    """A table as HTML.

    index: whether the row labels are shown; one that repeats the row above is dimmed. kind: further CSS classes.
    """
    labels = [str(name or "") for name in frame.index.names] if index else []
    body, previous = [], ()
    for label, values in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        keys = parts(label) if index else ()
        repeated = [keys[: k + 1] == previous[: k + 1] for k in range(len(keys))]
        heads = [
            cell(key, "th", "again" if is_repeated and name != labels[-1] else "")
            for key, name, is_repeated in zip(keys, labels, repeated, strict=True)
        ]
        cells = [cell(value) for value in values]
        body.append(f"<tr>{''.join([*heads, *cells])}</tr>")
        previous = keys
    head = "".join(head_rows([parts(column) for column in frame.columns], labels))
    classes = " ".join(filter(None, ["dataframe", kind]))
    return f'<table class="{classes}"><thead>{head}</thead><tbody>\n' + "\n".join(body) + "\n</tbody></table>"


def csv_of(frame: pd.DataFrame, index: bool = False) -> str:
    """A table as CSV. Text that a spreadsheet would run as a formula gets an apostrophe; numbers stay."""
    # Seven digits: 34.7, where binary arithmetic gave 34.699999999999996.
    rows = csv.reader(io.StringIO(frame.to_csv(index=index, float_format="%.7g")))
    csv.writer(made := io.StringIO(), lineterminator="\n").writerows(
        [safe(cell) for cell in row] for row in rows
    )
    return made.getvalue()


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """The table that `csv_of` wrote. options: of `pandas.read_csv`."""
    return pd.read_csv(path, **options).replace(r"^'([=+\-@\t\r])", r"\1", regex=True)


def safe(cell: str) -> str:
    """The text of a cell that no spreadsheet takes for a formula."""
    if len(cell) == 1 or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def parts(label: Hashable) -> tuple[str, ...]:
    """The levels of a label of rows or columns, as text."""
    return tuple(text(part) for part in label) if isinstance(label, tuple) else (text(label),)


def head_rows(columns: Sequence[tuple[str, ...]], labels: Sequence[str]) -> Iterable[str]:
    """One row of the head per level of the column names; a name over several columns spans them."""
    levels = max(map(len, columns), default=1)
    for level in range(levels):
        row = [f'<th rowspan="{levels}">{html.escape(name)}</th>' for name in labels] if level == 0 else []
        for _, group in groupby(columns, key=lambda column: column[: level + 1]):
            group_columns = list(group)
            span = f' colspan="{len(group_columns)}"' if len(group_columns) > 1 else ""
            row.append(
                f"<th{span}>{html.escape(group_columns[0][level] if level < len(group_columns[0]) else '')}</th>"
            )
        yield f"<tr>{''.join(row)}</tr>"


def cell(value: Any, tag: str = "td", kind: str = "") -> str:
    """One cell. A number is aligned to the right."""
    is_number = isinstance(value, numbers.Number) and not isinstance(value, bool)
    classes = " ".join(filter(None, [kind, "number" if is_number else ""]))
    attribute = f' class="{classes}"' if classes else ""
    scope = ' scope="row"' if tag == "th" else ""
    content = value.html if isinstance(value, Markup) else html.escape(text(value))
    return f"<{tag}{scope}{attribute}>{content}</{tag}>"


def text(value: Any) -> str:
    """A value as a table shows it: numbers with `DIGITS` digits, and with what belongs to them in one line."""
    if value is None or value is pd.NA or value is pd.NaT:
        return MISSING
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return f"{int(value):,}"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return number(float(value))
    return str(value).replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def number(value: float) -> str:
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "never" if value > 0 else "−∞"
    if abs(value) >= 10**DIGITS:
        return f"{value:,.0f}"
    return f"{value:.{DIGITS}g}"
