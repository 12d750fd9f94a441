"""The claims of HCSFed (Song et al., UAI 2023), and the rules that decide them.

r(M): first round with test accuracy at the target; a run that never arrives counts as T + 1. Medians are over seeds,
and a speed-up is median r(Random) / median r(M). If none of the compared methods arrives, nothing is decided, because
the tie would be an artefact of T. The paper leaves open how updates are compressed (GC-A, GC-B): each claim is decided
for both, and held only if both held. Everything else that it leaves open, such as how absent clients count, is part of
a reading (`readings.py`), which gives the same rules other runs. The paper states no seeds; tolerances are ours.
"""

from fedlib.papers.hcsfed.claims_parts import FEDAVGS, SWEEPS, sweep, swept
from fedlib.papers.hcsfed.claims_rounds import schematic
from fedlib.papers.hcsfed.claims_table_1 import CLAIMS
from fedlib.papers.hcsfed.printed import (
    ABLATION,
    COLUMNS,
    GCS,
    PRINTED,
    SPEED_UPS,
    TABLE_1,
    book,
    hcsfed,
    in_print,
)

__all__ = [
    "ABLATION",
    "CLAIMS",
    "COLUMNS",
    "FEDAVGS",
    "GCS",
    "PRINTED",
    "SPEED_UPS",
    "SWEEPS",
    "TABLE_1",
    "book",
    "hcsfed",
    "in_print",
    "schematic",
    "sweep",
    "swept",
]
