"""The order of a page: title, result, figure, what it shows, verdicts, the rest; code and provenance at the end."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from workspace.pages import layout


def output(**data: str):
    return new_output("display_data", data={name.replace("_", "/"): value for name, value in data.items()})


PICTURE = new_output("display_data", data={"image/svg+xml": "<svg/>"}, metadata={"picture": "figure"})
VERDICTS = output(text_html='<table class="dataframe verdicts"></table>')
CELLS = [
    new_markdown_cell("# Table 1\n\nWhat it shows."),
    new_code_cell("opened()", outputs=[output(text_markdown="- made of")]),
    new_code_cell("prepared()"),
    new_markdown_cell("## The figure\n\nHow it is drawn."),
    new_code_cell("shown()", outputs=[PICTURE]),
    new_markdown_cell("## More"),
    new_code_cell("more()", outputs=[output(text_html="<table></table>")]),
    new_markdown_cell("## Claims"),
    new_code_cell("judged()", outputs=[VERDICTS]),
]
CLAIMS = [("holds", "A <b>bold</b> claim_"), ("contradicted", "Another")]


def arranged(**options):
    cells = [type(cell)(cell | {"metadata": type(cell)(cell.metadata)}) for cell in CELLS]
    return layout.arranged(cells, **options)


def test_the_figure_comes_right_after_the_result_and_the_verdicts_before_the_rest():
    cells = arranged(result=layout.result(CLAIMS), about="downloads", beside="The same at another scale.")
    sources = [cell.source for cell in cells]
    assert sources[0].startswith("# Table 1")
    assert "contradicted" in sources[0]
    order = [
        "shown()",
        "The same at another scale.",
        "How it is drawn.",
        "What it shows.",
        "## Claims",
        "judged()",
        "## More",
        "more()",
    ]
    assert sources[1:-1] == order
    for part in ("opened()", "prepared()", "judged()", "- made of", "downloads"):
        assert part in sources[-1]
    assert all("remove-input" in cell.metadata["tags"] for cell in cells if cell.cell_type == "code")


def test_a_page_without_claims_keeps_its_order():
    sources = [cell.source for cell in arranged(beside="What it lacks.")]
    assert sources[1:5] == [
        "What it shows.",
        "## The figure\n\nHow it is drawn.",
        "shown()",
        "What it lacks.",
    ]


def test_a_finding_without_claims_brings_the_figure_first():
    sources = [
        cell.source for cell in arranged(result=layout.result([], "It *holds*."), beside="What it lacks.")
    ]
    assert sources[0] == "# Table 1\n\nIt \\*holds\\*."
    assert sources[1:5] == ["shown()", "What it lacks.", "How it is drawn.", "What it shows."]


def test_behind_a_picture_of_curves_stands_what_draws_them():
    cells = arranged(result=layout.result(CLAIMS), curves={"figure": "fedcor/table_1/figure"})
    assert 'data-figure="fedcor/table_1/figure"' in cells[2].source


@pytest.mark.parametrize("n", [0, 2, 9])
def test_the_result_names_few_claims_and_counts_many(n: int):
    said = layout.result(CLAIMS[:1] * n)
    assert bool(said) == bool(n)
    assert ("All 9 claims here" in said) == (n == 9)
    assert said.count("A \\<b\\>bold") == (n if n < 9 else 1), "of many, the first one in words"
    assert "<b>" not in said.replace("\\<b\\>", "")


def test_claims_of_the_one_table_stand_in_place_of_the_notebooks_own():
    sources = [cell.source for cell in arranged(claims="<table>forest</table>")]
    assert "<table>forest</table>" in sources
    assert "judged()" not in sources, "folded with the code alone"


def table_of(rows: int) -> str:
    return f"<table>{'<tr><td></td><td></td></tr>' * rows}</table>"


@pytest.mark.parametrize(("rows", "folded"), [(90, [False, True]), (200, [True, True])])
def test_a_long_table_is_folded_unless_it_leads_the_page_and_has_room_there(rows: int, folded: list[bool]):
    code = [new_code_cell(name, outputs=[output(text_html=table_of(rows))]) for name in ("a()", "b()")]
    cells = [new_markdown_cell("# T"), *code]
    shown = [
        "".join(o.data["text/html"])
        for c in layout.arranged(cells)
        if c.cell_type == "code"
        for o in c.outputs
    ]
    assert [text.startswith("<details>") for text in shown] == folded


def test_sections_for_which_a_page_has_no_room_open_on_a_click():
    tall = '<svg viewBox="0 0 750 1600"/>'
    cells = [new_markdown_cell("# T"), new_code_cell("lead()", outputs=[PICTURE])]
    for k in range(4):
        cells.append(new_markdown_cell(f"## Section {k}\n\nAbout it."))
        cells.append(new_code_cell(f"s{k}()", outputs=[output(**{"image_svg+xml": tall})]))
        cells.append(new_markdown_cell("### More"))
    sources = [cell.source for cell in layout.arranged(cells)]
    folds = [k for k, source in enumerate(sources) if source.startswith("<details")]
    assert sources.index("s0()") < folds[0], "the first has room"
    for k in (2, 3):
        at = sources.index(f"s{k}()")
        assert sources[at - 2].startswith(f"## Section {k}"), "the heading stays in view"
        assert "Show 1 figure" in sources[at - 1]
        assert sources[at + 1 : at + 3] == ["**More**", "</details>"], "a fold ends in its section"


def test_a_mark_and_its_sentence_do_not_say_the_same_twice():
    assert layout.unmarked("It is: 3 × [2, 4], 5 seeds; holds.", "holds") == "It is: 3 × [2, 4], 5 seeds."
    assert layout.unmarked("MNIST: not run", "not run") == "MNIST"
    assert layout.unmarked("It is: 3; holds in all 4.", "holds").endswith("all 4.")


def test_the_scoreboard_is_filtered_and_never_folded():
    rows = "<tr><td></td></tr>" * 400
    board = output(text_html=f'<p>Key</p><table class="dataframe verdicts board">{rows}</table>')
    cells = [new_markdown_cell("# T"), new_code_cell("lead()", outputs=[PICTURE])]
    cells += [new_markdown_cell("## One"), new_code_cell("board()", outputs=[board])]
    assert not any("<details" in cell.source for cell in layout.arranged(cells)[:-1])
