"""How the loops are compiled that neither NumPy nor torch has: by Numba, for the processor at hand, once.

The machine code is kept beside its source; it runs without the interpreter's lock.
"""

from __future__ import annotations

from numba import njit

exact = njit(cache=True, nogil=True, error_model="numpy")  # sums in the order that is written
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz", "reassoc"})
