"""FedCor (Tang et al., CVPR 2022): its claims, its printed numbers, and the rules that decide."""

from fedlib.papers.fedcor import claims_curves, claims_process
from fedlib.papers.fedcor.printed import book

__all__ = ["book", "claims_curves", "claims_process"]
