"""The program on the page about other languages does what the page says, through `fedlib.simulate`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import fedlib
from fedlib.isolated.sampler import spoken
from fedlib.samplers import SAMPLERS
from fedlib.settings.schema import ROOT

PERL = shutil.which("perl")


def test_a_program_in_another_language_selects(tmp_path: Path) -> None:
    if not PERL or subprocess.run([PERL, "-MJSON::PP", "-e", "1"], check=False).returncode:
        pytest.skip("there is no Perl with its module JSON::PP")
    page = (ROOT / "docs" / "any-language.md").read_text()
    (program,) = re.findall(r"^```perl fewest_turns.pl\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "fewest_turns.pl"
    path.write_text(program)
    spoken("fewest_turns_in_perl", [PERL, str(path)])
    try:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
        result = fedlib.simulate(
            x,
            y,
            np.arange(60) // 10,
            test=(x, y),
            model="logistic",
            methods={"Fewest turns": "fewest_turns_in_perl", "Random": "uniform"},
            m=2,
            T=6,
            local=fedlib.Local(lr=0.1, batch=5, epochs=1),
            seeds=2,
            threads=1,
            tell=lambda text: None,
        )
    finally:
        del SAMPLERS["fewest_turns_in_perl"]
    rows = result.table[result.table["method"] == "Fewest turns"]
    for _, run in rows.groupby("seed"):
        assert [list(ids) for ids in run["clients"]][1:] == [[0, 1], [2, 3], [4, 5]] * 2
