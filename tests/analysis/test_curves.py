"""What a figure of curves shows of the runs that there are."""

from __future__ import annotations

import pandas as pd

from workspace.analysis.curves import compared


def test_a_curve_alone_is_not_drawn_where_others_can_be_compared():
    table = pd.DataFrame(
        [("a", "X"), ("a", "Y"), ("a", "Y"), ("b", "X"), ("b", "other")], columns=["setting", "method"]
    )
    assert set(compared(table, ["X", "Y"])["setting"]) == {"a"}
    alone = table[table["setting"] == "b"]
    pd.testing.assert_frame_equal(compared(alone, ["X", "Y"]), alone)
