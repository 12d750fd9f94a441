"""A page of the site: its notebook in order, the result under the title, code and provenance at the end."""

from __future__ import annotations

import copy

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from workspace.pages import layout


def output(**data: str):
    return new_output("display_data", data={name.replace("_", "/"): value for name, value in data.items()})


PICTURE = new_output("display_data", data={"image/svg+xml": "<svg/>"}, metadata={"picture": "figure"})
VERDICTS = output(text_html="<table>the notebook's</table>")
VERDICTS.metadata = type(VERDICTS)(claims=True)
PROVENANCE = output(text_markdown="- made of")
PROVENANCE.metadata = type(PROVENANCE)(provenance=True)
FINDING = output(text_markdown="It holds.")
FINDING.metadata = type(FINDING)(finding=True)
CELLS = [
    new_markdown_cell("# Table 1\n\nWhat it is."),
    new_code_cell("opened()", outputs=[PROVENANCE]),
    new_code_cell("prepared()"),
    new_code_cell("shown()", outputs=[FINDING, PICTURE]),
    new_markdown_cell("What it shows."),
    new_markdown_cell("## Claims"),
    new_code_cell("judged()", outputs=[VERDICTS]),
    new_markdown_cell("## More"),
    new_code_cell("more()", outputs=[output(text_html="<table></table>")]),
]
CLAIMS = [("holds", "A <b>bold</b> claim_"), ("contradicted", "Another")]


def arranged(**options):
    return layout.arranged(copy.deepcopy(CELLS), **options)


def test_what_a_page_lacks_stands_under_the_title_where_nothing_is_drawn():
    cells = [CELLS[0], CELLS[1], CELLS[4]]
    made = layout.arranged(copy.deepcopy(cells), beside="What it lacks.")
    assert [cell.source for cell in made[1:-1]] == ["What it lacks.", "What it shows."]


def test_a_page_has_the_order_of_its_notebook_with_the_result_under_the_title_and_the_code_at_the_end():
    cells = arranged(
        result=layout.result(CLAIMS),
        about="downloads",
        beside="What it lacks.",
        claims="<table>the site's</table>",
    )
    sources = [cell.source for cell in cells]
    assert sources[0].startswith("# Table 1")
    assert sources[0].index("contradicted") < sources[0].index("What it is.")
    shown = [
        "shown()",
        "What it lacks.",
        "What it shows.",
        "## Claims",
        "<table>the site's</table>",
        "## More",
        "more()",
    ]
    assert sources[1:-1] == shown
    for part in ("opened()", "prepared()", "judged()", "- made of", "downloads"):
        assert part in sources[-1]
    assert all("remove-input" in cell.metadata["tags"] for cell in cells if cell.cell_type == "code")
    assert cells[1].outputs == [PICTURE], "the finding is said under the title alone"


def test_without_claims_of_the_site_the_notebooks_own_outcomes_stay():
    cells = arranged()
    assert [cell.outputs for cell in cells if cell.source == "judged()"] == [[VERDICTS]]


def test_behind_a_picture_of_curves_stands_what_draws_them():
    cells = arranged(curves={"figure": "fedcor/table_1/figure"})
    assert cells[1].outputs == [PICTURE]
    assert 'data-figure="fedcor/table_1/figure"' in cells[2].source
    assert [cell.source for cell in cells].count("shown()") == 1


def test_of_a_cell_with_two_pictures_each_stands_before_its_curves_and_both_are_folded_if_it_says_so():
    both = [PICTURE, new_output("display_data", data=PICTURE.data, metadata={"picture": "other"})]
    cell = new_code_cell("two()", outputs=[*both, FINDING], metadata={"tags": ["fold"]})
    nothing = new_code_cell("nothing()", outputs=[FINDING], metadata={"tags": ["fold"]})
    assert "<details" not in "".join(part.source for part in layout.arranged([CELLS[0], nothing]))
    opens, *cells, closes = layout.arranged([CELLS[0], cell], curves={"figure": "f", "other": "o"})[1:-1]
    assert [cell.get("outputs") for cell in cells] == [both[:1], None, both[1:], None]
    assert all(cell.metadata["tags"] == ["remove-input"] for cell in cells[::2])
    assert opens.source.startswith("<details")
    assert closes.source == "</details>"


@pytest.mark.parametrize("n", [0, 2, 9])
def test_the_result_names_few_claims_and_counts_many(n: int):
    said = layout.result(CLAIMS[:1] * n)
    assert bool(said) == bool(n)
    assert ("All 9 claims here" in said) == (n == 9)
    assert said.count("A \\<b\\>bold") == (n if n < 9 else 1), "of many, the first one in words"
    assert "<b>" not in said.replace("\\<b\\>", "")


def test_a_mark_and_its_sentence_do_not_say_the_same_twice():
    assert layout.unmarked("It is: 3 × [2, 4], 5 seeds; holds.", "holds") == "It is: 3 × [2, 4], 5 seeds."
    assert layout.unmarked("MNIST: not run", "not run") == "MNIST"
    assert (
        layout.unmarked("It is: holds; as large as printed. 3 ×.", "holds")
        == "It is: as large as printed. 3 ×."
    )
    assert layout.unmarked("It is: contradicted. 3 ×, 5 seeds.", "contradicted") == "It is. 3 ×, 5 seeds."
    assert layout.unmarked("It is: not shown in any of 6.", "not shown") == "It is: not shown in any of 6."
    assert layout.unmarked("contradicted: reversed in all 3", "contradicted") == "reversed in all 3"
    assert (
        layout.unmarked("Faster: contradicted: reversed in all 3.", "contradicted")
        == "Faster: reversed in all 3."
    )
    assert layout.unmarked("It is: 3; holds in all 4.", "holds").endswith("all 4.")
