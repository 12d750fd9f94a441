"""The sentence in which the order of a claim is said; no digest depends on it (`frozen`)."""

from __future__ import annotations

from workspace.analysis.judge import ALPHA, Order

NAMED = 3  # cells that a sentence names
TAKEN_BACK = ", but not after correction for the paper's other main claims"


def said(found: Order, outcome: str, over: str) -> str:
    """What the order of a claim came to, with its numbers: "holds in all 3 that were run; 3 open"."""
    if found.M == 1:
        if outcome == "not after correction":
            return f"shown{TAKEN_BACK}"
        return f"reversed{TAKEN_BACK}" if outcome == "not shown" and found.reversed else outcome
    m, run = found.m, " that were run" if found.m < found.M else ""
    rest = f"; {found.M - m} open" if run else ""
    if over == "average":
        where = f"on average over {m}" if run else f"on average over all {m}"
    elif over == "all":
        where = _in(m, found)
    else:
        where = f"in at least {over} of {m}{run}"
    nowhere = f"not shown {_in(1, found)}" if m == 1 else f"not shown in any of {m}"
    if outcome in ("holds", "holds where run"):
        return f"holds {where}{rest}"
    if outcome == "not after correction":
        return f"shown {where}{TAKEN_BACK}{rest}"
    if outcome == "contradicted":
        return f"contradicted: {_reversed(found)}{rest}"
    if outcome == "shown in part":
        shown = f"shown {_in(found.shown, found)}"
        return (f"{shown}, {_reversed(found)}" if found.reversed else shown) + rest
    if outcome == "not shown":
        if over == "average":
            return f"not shown {where}{rest}"
        taken_back = TAKEN_BACK if found.p_reversed <= ALPHA else ""
        return (f"{nowhere}; {_reversed(found)}{taken_back}" if found.reversed else nowhere) + rest
    return outcome


def _in(k: int, found: Order) -> str:
    """In how many of the settings that were run, if it is in k of them at least."""
    if k < found.m:
        return f"in at least {k} of {found.m}"
    if found.m == 1:
        return "in the one that was run"
    return ("in both" if k == 2 else f"in all {k}") + (" that were run" if found.m < found.M else "")


def _reversed(found: Order) -> str:
    reversed = max(1, found.reversed)
    names = found.where_reversed[:NAMED]
    more = f" and {len(found.where_reversed) - NAMED} more" if len(found.where_reversed) > NAMED else ""
    among = "among them " if len(found.where_reversed) < reversed else ""
    named = f" ({among}{'; '.join(names)}{more})" if names and reversed < found.m else ""
    return f"reversed {_in(reversed, found)}{named}"
