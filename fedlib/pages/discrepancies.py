"""The page of discrepancies: the claims that did not hold, and what each reading of what a paper leaves open gives."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from IPython.display import Markdown, display

from fedlib.analysis.claims import Missing, Runs
from fedlib.analysis.headline import headlines, specifications
from fedlib.analysis.paper import part
from fedlib.analysis.readings import readings
from fedlib.analysis.verdict import STATUSES
from fedlib.pages import plots_summary
from fedlib.pages.artifact import Artifact

UNDECIDED = ("not held", "held in part")


def unsettled(board: pd.DataFrame, paper: str) -> pd.DataFrame:
    """The claims of a paper that did not hold, or held in part: rows of `judging.verdicts`."""
    return board[(board["paper"] == paper) & board["verdict"].isin(UNDECIDED)]


def curves(artifact: Artifact, paper: str, results: Mapping[str, pd.DataFrame]) -> None:
    """A specification curve for each headline claim: its effect under every archived reading, sorted."""
    runs = Runs(results)
    for k, effect in enumerate(headlines()[paper].effects, start=1):
        try:
            rows = specifications(effect, readings(paper), runs)
        except Missing:
            continue
        figure = plots_summary.specification_curve(rows, effect.words, effect.printed, effect.null)
        artifact.show(figure, f"{paper}_curve_{k}", data=rows)


def show(artifact: Artifact, paper: str, board: pd.DataFrame, results: Mapping[str, pd.DataFrame]) -> None:
    """A paper's part of the page: its claims that did not hold, then each choice with what its readings give."""
    open_claims = unsettled(board, paper)
    counts = board[board["paper"] == paper]["verdict"].value_counts()
    said = ", ".join(f"{counts[status]} {status}" for status in STATUSES if status in counts)
    display(Markdown(f"{len(board[board['paper'] == paper])} claims at scale **{artifact.scale}**: {said}."))
    if len(open_claims):
        artifact.board(open_claims, f"{paper}_claims")
    curves(artifact, paper, results)
    for k, choice in enumerate(part(paper, "choices").CHOICES, start=1):
        concerned = open_claims.loc[open_claims["artifact"].isin(choice.bears_on), "id"]
        bears = f" Bears on {', '.join(f'`{one}`' for one in concerned)}." if len(concerned) else ""
        text = f"### {choice.title}\n\n{choice.sources} **Taken here:** {choice.taken}{bears}"
        found = choice.table(results)
        ran = not found.empty
        where = f"Runs: `{choice.experiment}`" + (
            "." if ran else f", none of which is there at scale {artifact.scale}."
        )
        display(Markdown(f"{text} {where}"))
        if ran:
            artifact.table(found, f"{paper}_choice_{k}")
    display(Markdown("### Left open as well, without runs of their own"))
    rest = pd.DataFrame(part(paper, "choices").NOT_VARIED, columns=["left open", "sources", "taken here"])
    artifact.table(rest, f"{paper}_not_varied", index=False)
