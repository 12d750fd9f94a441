"""How many cores torch uses in the calling thread."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Generator[None]:
    """Use one torch thread.

    With more, OpenMP's threads wait actively for the next operation, and take cores from the executors' workers and
    from other programs: for longer than the small operations of a server last.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
