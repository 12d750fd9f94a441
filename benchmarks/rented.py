"""A GPU that is rented by the minute: measure it, then train on it until the time is up.

    python -m benchmarks.rented FOLDER --seconds 590

No network is needed: packages are installed, and datasets are prepared or in `FEDLIB_MIRROR`. What is measured and
trained lies in FOLDER as soon as it is there: what the card does (`gpu.json`, `GPU.md`), `runs` with their
checkpoints, `archive`, and the compiler's cache (`compiled`). The same command with the same FOLDER continues there.

Where a section fails or a step is wrong on the card, nothing is trained, and more is measured, to find out why. Nothing
is trained either on other data than that of the archived runs, with which results would be compared.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.protocol import tell
from fedlib.errors import ConfigError, DataError
from fedlib.runs import archive
from fedlib.settings.schema import Scale
from workspace.commands import next as next_runs

FIVE = "--methods Random,Pow-d,CS,DivFL,HiCS-FL"
TRAINED = (  # what decides most comes first, and one seed of the other settings before more
    "hics_cifar10 --setting (2) --methods Random,HiCS-FL --seeds 1-4",
    "hics_cifar10 --setting (2) --methods CS",
    f"hics_cifar10 --setting (1) --setting (3) {FIVE} --seeds 0",
    f"hics_cifar10 {FIVE}",
    "cs_cifar --setting 'alpha = 0.01'",
    "cs_cifar --setting 'alpha = 10'",
    "fedcor_cifar10 --methods Pow-d,FedCor",
)
FIRST = "limits,verified,steps,products"
WRONG = "whole,tuned"  # instead of training
CHECKPOINT = 20  # seconds between checkpoints
LAST = 40  # seconds that are kept for the archive
WRONG_STEP = 1  # exit status of `benchmarks.gpu`


class Rental:
    """A folder and the time until which a card is there."""

    def __init__(self, folder: Path, seconds: float, scale: Scale, device: str) -> None:
        self.folder, self.scale, self.device = folder.resolve(), scale, device
        self.until = time.monotonic() + seconds
        self.environment = os.environ | {
            "FEDLIB_DEVICE": device,
            "FEDLIB_CHECKPOINT_SECONDS": str(CHECKPOINT),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "compiled"),
        }
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def start(self, *command: str) -> subprocess.Popen:
        tell(f"{self.left:.0f} s left: {shlex.join(command)}")
        return next_runs.start(*command, environment=self.environment)

    def call(self, *command: str, seconds: float) -> int | None:
        """The exit status of a program of the project; None if it is stopped after so many seconds."""
        return next_runs.status_of(self.start(*command), seconds)

    def measure(self, sections: str, seconds: float) -> int | None:
        on_cpu = ["--cpu"] if self.device == "cpu" else []
        options = [
            "--sections",
            sections,
            "--seconds",
            str(int(seconds)),
            "--into",
            str(self.folder),
            *on_cpu,
        ]
        return self.call("benchmarks.gpu", *options, seconds=min(seconds + 20, self.left))

    def train(self, part: str) -> None:
        """Train a part of an experiment, and archive what is finished of it."""
        name, *options = shlex.split(part)
        where = ("--scale", self.scale, "--into", str(self.folder))
        self.call("workspace", "run", name, *options, *where, seconds=self.left - LAST)
        self.call("workspace", "archive", name, *where, seconds=self.left)


def check_data(names: Iterable[str], scale: Scale) -> None:
    """Check that experiments would be trained on the data of their archived runs.

    Raises:
        DataError: data is missing, or differs.
    """
    from fedlib.data import datasets

    for name in names:
        for dataset, archived in archive.read(name, scale).digests.items():
            if (found := datasets.digest(dataset)) not in archived:
                raise DataError(
                    f"{dataset}: its digest is {found[:12]}, that of {name}'s archived runs {min(archived)[:12]}; "
                    "prepare it from the same files, with the library that decodes them in the same version."
                )


def datasets_of(names: Iterable[str], scale: Scale) -> list[str]:
    from workspace.analysis.experiments import plan

    return sorted({work.dataset for name in names for work in plan(name, scale).work if work.dataset})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where everything that is made lies")
    parser.add_argument("--seconds", type=float, required=True, help="until the card is given back")
    parser.add_argument(
        "--measure", type=float, default=150, help="seconds of them for measuring; 0 for none"
    )
    parser.add_argument(
        "--sections", default=FIRST, help="what is measured first: names, with commas between"
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="PART",
        help="as for `fedlib run`, repeated; default: what decides most",
    )
    parser.add_argument("--scale", choices=("demo", "cpu", "paper"), default="paper")
    parser.add_argument("--cpu", action="store_true", help="rehearse it without a card, at toy size")
    given = parser.parse_args()
    rental = Rental(given.folder, given.seconds, given.scale, "cpu" if given.cpu else "cuda")
    parts = given.train or list(TRAINED)
    names = list(dict.fromkeys(shlex.split(part)[0] for part in parts))
    preparing = rental.start("workspace", "data", "prepare", *datasets_of(names, given.scale))
    wrong = bool(given.measure) and rental.measure(given.sections, given.measure) == WRONG_STEP
    if wrong:
        preparing.terminate()
        rental.measure(WRONG, rental.left - LAST)
        sys.exit("A section failed, or a step is wrong on this card, so that nothing was trained: see above.")
    next_runs.status_of(preparing, rental.left)
    check_data(names, given.scale)
    for part in parts:
        if rental.left > 2 * LAST:
            rental.train(part)
    tell(f"{rental.left:.0f} s left; everything is in {rental.folder}.")


if __name__ == "__main__":
    try:
        main()
    except (ConfigError, DataError) as reason:
        sys.exit(str(reason))
