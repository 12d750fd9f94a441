"""Clustered Sampling's headline: how far the training loss of both algorithms is below MD sampling's in Figure 1."""

from __future__ import annotations

from workspace.analysis.headline import Headline
from workspace.papers.clustered_sampling.names import ALG1, ALG2

HEADLINE = Headline(
    "Clustered Sampling, Figure 1",
    "The paper prints no numbers; its claims compare curves.",
    "mean",
    (),
    (("cs.F1.a", f"MNIST, {ALG1}"), ("cs.F1.b", f"MNIST, {ALG2}")),
)
