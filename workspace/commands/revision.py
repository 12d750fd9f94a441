"""`fedlib revision`: which shipped code differs from its record, and recording it after the tests that pin numbers."""

from __future__ import annotations

import subprocess
import sys

from fedlib.errors import ConfigError
from fedlib.settings import code
from fedlib.settings.schema import ROOT

PINS, GOLDEN = "tests/test_pins.py", "tests/golden"


def keep(names: list[str]) -> list[str]:
    """Record the code of these (`code.keep`), or of all that differs, if their pins and the golden tests hold.

    Raises:
        ConfigError: a name is unknown, there are no tests here, or one of them fails.
    """
    chosen = code.named(names) if names else list(code.departures())
    if not chosen:
        return []
    if not (ROOT / PINS).exists():
        raise ConfigError(f"{ROOT} has no {PINS}; record revisions in a clone of the repository.")
    samplers = [key.split()[1] for key in chosen if key.startswith("sampler ")]
    pins = [f"{PINS}::test_choices_are_the_pinned_ones[{name}]" for name in samplers]
    if len(samplers) < len(chosen):  # an algorithm, scheme or model may be used by any sampler
        pins = [PINS]
    if subprocess.call([sys.executable, "-m", "pytest", "-q", "-x", *pins, GOLDEN], cwd=ROOT):
        raise ConfigError(
            "a test of numbers fails, so nothing is recorded; if new numbers are meant, raise the revision and renew "
            f"the pins with `python {PINS}`."
        )
    return code.keep(chosen)
