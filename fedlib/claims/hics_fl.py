"""HiCS-FL (Chen and Vikalo): what it claims, what it prints, and what decides."""

from fedlib.claims import hics_curves, hics_estimates
from fedlib.claims.hics_settings import book

__all__ = ["book", "hics_curves", "hics_estimates"]
