"""`fedlib ...`: the command line, or the warm process that stands for it (`warm.py`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def main() -> int:
    if address := os.environ.get("FEDLIB_WARM"):
        from fedlib.commands.warm import ask

        with suppress(ConnectionRefusedError, FileNotFoundError):  # it has ended: only time depends on it
            return ask(sys.argv[1:], address)
    from fedlib.commands.cli import app

    if sys.argv[1:2] == ["serve-warm"]:
        from fedlib.commands.warm import serve

        serve(sys.argv[2], app)
    return app()


if __name__ == "__main__":
    sys.exit(main())
