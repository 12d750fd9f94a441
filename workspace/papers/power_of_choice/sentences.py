"""Power-of-Choice's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

FASTER = (
    "biasing client selection towards clients with higher local loss yields faster error convergence",
    "abstract",
)
TRADES = (
    "a communication- and computation-efficient client selection framework that flexibly spans the trade-off between "
    "convergence speed and solution bias",
    "abstract",
)
UP_TO = (
    "Power-of-Choice can converge up to 3 times faster and give 10% higher test accuracy than the baseline random "
    "selection",
    "abstract",
)
SENTENCES = {
    "poc.F2.a": FASTER,
    "poc.F2.b": TRADES,
    "poc.F3.a": UP_TO,
    "poc.F3.b": TRADES,
    "poc.F3.c": TRADES,
    "poc.F3.d": TRADES,
    "poc.F3.e": TRADES,
    "poc.F4.a": UP_TO,
    "poc.F4.b": UP_TO,
    "poc.F4.c": TRADES,
}
