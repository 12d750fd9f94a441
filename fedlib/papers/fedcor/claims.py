"""FedCor (Tang et al., CVPR 2022): what it claims, what it prints, and what decides."""

from fedlib.papers.fedcor import claims_curves, claims_process
from fedlib.papers.fedcor.printed import book

__all__ = ["book", "claims_curves", "claims_process"]
