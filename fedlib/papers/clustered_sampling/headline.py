"""Clustered Sampling's headline: how far the training loss of both algorithms is below MD sampling's in Figure 1."""

from __future__ import annotations

from fedlib.analysis.headline import Effect, Headline, difference
from fedlib.analysis.measure import area
from fedlib.analysis.readings import Where
from fedlib.papers.clustered_sampling.names import ALG1, ALG2, FIRST, LOSS, MD

HEADLINE = Headline(
    "Clustered Sampling, Figure 1",
    "The paper prints no numbers; its claims compare curves.",
    "mean",
    (),
    tuple(
        Effect(
            claim,
            f"mean training loss of MD minus that of {method}, 200 rounds (nats)",
            difference(Where(*FIRST, MD, LOSS), MD, method, area, 200),
            null=0.0,
        )
        for claim, method in (("cs.F1.a", ALG1), ("cs.F1.b", ALG2))
    ),
)
