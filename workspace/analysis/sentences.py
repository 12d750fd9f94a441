"""The sentence in which the order of a claim is said; no digest depends on it (`frozen`)."""

from __future__ import annotations

from workspace.analysis.judge import Order

NAMED = 3  # cells that a sentence names
WHOLE = ", but not after correction for the paper's other main claims"


def said(found: Order, outcome: str, over: str) -> str:
    """What the order of a claim came to, with its numbers: "holds in all 3 run; 3 open"."""
    m, M = found.m, found.M
    rest = f"; {M - m} open" if m < M else ""
    run = "" if m == M else " run"
    least = "" if over in ("all", "average") else f"at least {over} of "
    where = (
        f"at least {over} of {m}{run}" if least else f"all {m}{run}" if m > 1 or not run else "the one run"
    )
    none = f"any of {m}" if m > 1 else "the one run"
    if over == "average":
        where = f"average over {'all ' if m == M else ''}{m}"
    if outcome in ("holds", "holds where run"):
        return outcome if M == 1 else f"holds {'on' if over == 'average' else 'in'} {where}{rest}"
    if outcome == "not after correction":
        place = "" if M == 1 else f" {'on' if over == 'average' else 'in'} {where}"
        return f"shown{place}{WHOLE}{rest}"
    if outcome == "contradicted":
        return outcome if M == 1 else f"contradicted: {_reversed(found)}{rest}"
    if outcome == "shown in part":
        if M == 1:
            return f"reversed{WHOLE}"
        parts = [f"shown in at least {found.shown} of {m}"] if found.shown else [f"not shown in {none}"]
        return ", ".join([*parts, *([_reversed(found)] if found.reversed else [])]) + rest
    return f"not shown in {none}{rest}" if outcome == "not shown" and M > 1 else outcome


def _reversed(found: Order) -> str:
    names = found.where_reversed[:NAMED]
    more = f" and {len(found.where_reversed) - NAMED} more" if len(found.where_reversed) > NAMED else ""
    named = f" ({'; '.join(names)}{more})" if names else ""
    return f"reversed in at least {max(1, found.reversed)} of {found.m}{named}"
