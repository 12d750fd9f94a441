"""Every paper has one primary reading, chosen by reasons that stand in a fixed order."""

from __future__ import annotations

import pytest

from workspace.analysis.paper import papers
from workspace.analysis.readings import AS_WRITTEN, REASONS, primary, readings


@pytest.mark.parametrize("paper", papers())
def test_a_primary_reading_is_one_of_the_papers_readings_and_says_why_in_three_sentences(paper):
    first, options = primary(paper), {reading.name: reading for reading in readings(paper)}
    assert first.reading in options
    assert set(first.beside) <= set(options) - {first.reading}
    assert len(first.why) == 3
    assert all(sentence.endswith(".") for sentence in first.why) or len(options) == 1
    written = options.get(AS_WRITTEN, options[first.reading]).choices
    compared = [reading for reading in options.values() if reading.name not in first.beside]
    left_open = {choice for reading in compared for choice in reading.choices}
    assert set(first.reasons) == left_open == {*written, *options[first.reading].choices}
    assert set(first.reasons.values()) <= set(REASONS)


def test_closeness_to_print_is_no_reason():
    assert not any("print" in reason or "close" in reason for reason in REASONS)
    assert REASONS.index("the authors' own earlier program") < REASONS.index("the field's custom")
