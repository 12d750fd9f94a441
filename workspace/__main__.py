"""`fedlib ...`: run the command line, or pass the command to the warm process (`warm.py`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from fedlib.files import HOME, ROOT, is_clone


def main() -> int:
    run_own_code()
    address = os.environ.get("FEDLIB_WARM")
    if not address and "DVC_STAGE" in os.environ:  # plain `dvc repro` runs this
        from workspace.commands.stages import warm_process

        address = warm_process(sys.argv[1:])
    if address:
        from workspace.commands.warm import ask

        with suppress(ConnectionRefusedError, FileNotFoundError):  # it has ended: run it here instead
            return ask(sys.argv[1:], address)
    from fedlib.files import find_home

    find_home()
    from workspace.commands.cli import app

    if sys.argv[1:2] == ["serve-warm"]:
        from workspace.commands.warm import serve

        serve(sys.argv[2], app, *map(float, sys.argv[3:]))
    return app()


def run_own_code() -> None:
    """In another clone than that of this program (a second one, a git worktree, DVC's temporary one): run its code."""
    if ROOT == HOME or not is_clone(ROOT):
        return
    path = os.environ.get("PYTHONPATH", "")
    if path.split(os.pathsep)[0] == str(ROOT):
        sys.exit(
            f"{ROOT}: its own code cannot be loaded instead of {HOME}'s; make an environment there (`make lab`)."
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), path]))
    os.environ.pop("FEDLIB_WARM", None)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "workspace", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
