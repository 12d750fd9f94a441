"""`fedlib ...`: run the command line, or pass the command to the warm process (`warm.py`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def main() -> int:
    if address := os.environ.get("FEDLIB_WARM"):
        from workspace.commands.warm import ask

        with suppress(ConnectionRefusedError, FileNotFoundError):  # it has ended: run it here instead
            return ask(sys.argv[1:], address)
    from fedlib.files import find_home

    find_home()
    from workspace.commands.cli import app

    if sys.argv[1:2] == ["serve-warm"]:
        from workspace.commands.warm import serve

        serve(sys.argv[2], app)
    return app()


if __name__ == "__main__":
    sys.exit(main())
