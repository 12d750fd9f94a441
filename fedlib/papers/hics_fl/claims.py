"""HiCS-FL (Chen and Vikalo): what it claims, what it prints, and what decides."""

from fedlib.papers.hics_fl import claims_curves, claims_estimates
from fedlib.papers.hics_fl.printed import book

__all__ = ["book", "claims_curves", "claims_estimates"]
