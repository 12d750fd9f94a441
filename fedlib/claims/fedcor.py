"""FedCor (Tang et al., CVPR 2022): what it claims, what it prints, and what decides."""

from fedlib.claims import fedcor_curves, fedcor_process
from fedlib.claims.fedcor_settings import book

__all__ = ["book", "fedcor_curves", "fedcor_process"]
