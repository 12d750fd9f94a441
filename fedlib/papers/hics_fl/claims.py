"""HiCS-FL (Chen and Vikalo): its claims, its printed numbers, and the rules that decide."""

from fedlib.papers.hics_fl import claims_curves, claims_estimates
from fedlib.papers.hics_fl.printed import book

__all__ = ["book", "claims_curves", "claims_estimates"]
