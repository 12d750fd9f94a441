"""Clustered Sampling's readings: how clients are numbered, and how ties between clients of equal size are broken."""

from __future__ import annotations

from workspace.analysis.readings import AS_RUN, AS_WRITTEN, REASONS, Primary, Reading, Swap
from workspace.papers.clustered_sampling.printed import ALG1, FIRST

SORTED = "ids sorted by digit"
_IDS = Swap(FIRST[0], settings={FIRST[1]: SORTED})
_PARTITIONS = Swap("cs_partitions", settings={FIRST[1]: SORTED})
_NAMES = {"as numpy 1.24 sorts": "authors' tie order", "at random": "ties at random", "by id": "ties by id"}


def _sorted(ties: str) -> tuple[Swap, ...]:
    return _IDS, _PARTITIONS, Swap(FIRST[0], methods={ALG1: f"{ALG1}, {_NAMES[ties]}"})


READINGS = [
    Reading(
        AS_WRITTEN,
        "the paper's text: a server does not know the labels",
        {"clients' ids": "at random", "ties in Algorithm 1": "at random"},
        {
            "clients' ids": "the text numbers clients without regard to their data",
            "ties in Algorithm 1": "not stated; all clients of Figure 1 have equal sizes",
        },
    ),
    Reading(
        AS_RUN,
        "the authors' program: clients numbered by digit, ties as numpy's unstable sort leaves them",
        {"clients' ids": "by digit", "ties in Algorithm 1": "as numpy 1.24 sorts"},
        {
            "clients' ids": "the authors' program builds its clients digit after digit",
            "ties in Algorithm 1": "the authors' program calls numpy's argsort, which is not stable",
        },
        _sorted("as numpy 1.24 sorts"),
    ),
    *(
        Reading(
            f"ids by digit, ties {ties}",
            "one of the readings tried",
            {"clients' ids": "by digit", "ties in Algorithm 1": ties},
            swaps=_sorted(ties),
        )
        for ties in ("at random", "by id")
    ),
]
PRIMARY = Primary(
    AS_WRITTEN,
    AS_WRITTEN,
    (
        "The text describes both algorithms completely but for the order of clients of equal size.",
        "A server that selects clients does not know their labels, so ids that follow the digits would tell it "
        "what it cannot know: ids and ties are therefore at random.",
        "The authors' program numbers its clients by digit, with ties from an unstable sort, and is shown beside it.",
    ),
    {"clients' ids": REASONS[0], "ties in Algorithm 1": REASONS[6]},
    beside={AS_RUN: AS_RUN},
)

LEFT_OPEN = [
    (
        "the learning rate at the two ends of alpha",
        "the text has 0.1 at alpha = 10 and 0.05 at alpha = 0.001, the plotting program the reverse",
        "the text's; MD sampling's loss at both is on the page of Figure 2",
    ),
    (
        "rows or condensed distances for Ward's tree",
        "the paper: a similarity matrix; the code hands its rows to scipy",
        "rows, as the code",
    ),
    ("dropout while measuring", "the code leaves it on", "off"),
    (
        "test samples of an MNIST client",
        "the paper: 100; the code: 80",
        "80: five digits have fewer than 1,000 test images",
    ),
    (
        "number of seeds",
        "one, with the draws of MD sampling reseeded by the round",
        "5 seeds, every draw from the run's seed",
    ),
]
