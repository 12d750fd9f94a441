"""Every table of a page is written by one function: names, numbers, missing values and markup."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workspace.pages import tables


def cells(table: str, tag: str = "td") -> list[str]:
    return re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", table.partition("</thead>")[2])


def test_markup_is_escaped():
    table = tables.html_of(pd.DataFrame({"a < b": ["<b>", tables.Markup("<i>x</i>")], "n": [1, 2]}))
    assert cells(table) == ["&lt;b&gt;", "1", "<i>x</i>", "2"]
    assert "<th>a &lt; b</th>" in table
    assert table.count('class="number"') == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234567, "1,234,567"),
        (0.30000000000000004, "0.3"),
        (34.699999999999996, "34.7"),
        (123456.7, "123,457"),
        (np.float32(0.5), "0.5"),
        (np.int64(12), "12"),
        (np.nan, "–"),
        (None, "–"),
        (np.inf, "never"),
        (True, "True"),
        ("200+", "200+"),
        ("259.2 ± 147.4", "259.2\u00a0±\u00a0147.4"),
    ],
)
def test_a_value_is_shown_without_noise(value, shown):
    assert tables.text(value) == shown


def test_row_labels_stand_in_every_row_and_repeated_ones_are_marked():
    index = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("b", "x")], names=["setting", "reading"])
    frame = pd.DataFrame({"one": [1, 2, 3]}, index=index)
    table = tables.html_of(frame, index=True)
    assert re.findall(r"<th\b(?!ead)[^>]*>(.*?)</th>", table.partition("</thead>")[0]) == [
        "setting",
        "reading",
        "one",
    ]
    assert cells(table, "th") == ["a", "x", "a", "y", "b", "x"]
    assert table.count("again") == 1
    assert frame.index.names == ["setting", "reading"], "the table itself stays as it is"


def test_a_name_over_several_columns_spans_them():
    columns = pd.MultiIndex.from_product([["s", "t"], ["ours", "paper"]])
    table = tables.html_of(
        pd.DataFrame([[1, 2, 3, 4]], index=pd.Index(["MD"], name="method"), columns=columns), True
    )
    head = table.partition("</thead>")[0]
    assert head.count("<tr>") == 2
    assert re.findall(r"<th\b(?!ead)[^>]*>(.*?)</th>", head) == [
        "method",
        "s",
        "t",
        "ours",
        "paper",
        "ours",
        "paper",
    ]
    assert head.count('colspan="2"') == 2
    assert table.count(">4<") == 1


def test_a_downloaded_table_holds_no_formulas(tmp_path: Path):
    """A spreadsheet runs text that begins so; numbers, and everything that stands further on, stay as they are."""
    risky = ["=1+1", "+importance", "-x", "@sum", "\t=1", "- 3"]
    plain = ["a=1", "1 + 1", "", "-", 'it\'s, "quoted"\nand long']
    numbers = [-1.5, 1e-300, np.inf, -np.inf, np.nan, 34.699999999999996, -4, -3, -2, -1, 0]
    table = pd.DataFrame({"=head": [*risky, *plain], "n": numbers})
    path = tmp_path / "table.csv"
    path.write_text(tables.csv_of(table.set_index("=head"), index=True), newline="")
    shown = pd.read_csv(path, keep_default_na=False, dtype=str)
    assert shown["'=head"].tolist() == [*(f"'{cell}" for cell in risky), *plain]
    assert shown["n"].tolist()[:6] == ["-1.5", "1e-300", "inf", "-inf", "", "34.7"]
    assert tables.read_csv(path, keep_default_na=False)["'=head"].tolist() == [*risky, *plain]
    assert tables.csv_of(table[["n"]]) == table[["n"]].to_csv(index=False, float_format="%.10g")


def test_a_long_table_opens_on_a_click():
    rows = pd.DataFrame({"round": range(tables.LONG)})
    assert tables.foldable(rows, index=False) == tables.html_of(rows)
    longer = tables.foldable(pd.concat([rows, rows[:1]]), index=True)
    assert longer.startswith("<details><summary>Table of 151 rows</summary><table")
    assert longer.endswith("</table></details>")
