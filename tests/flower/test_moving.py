"""`docs/moving-from-flower.md`: its two programs give the same numbers, in as many lines as it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "flwr", reason="Flower asks for older libraries than requirements.lock has: `make flower` tests it"
)

from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig
from grid import InProcess

from fedlib.settings.schema import ROOT

PAGE = (ROOT / "docs" / "moving-from-flower.md").read_text()
FILES = dict(re.findall(r"^```python (\S+)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))
MEASURED = ["test_loss", "test_accuracy"]


class Answering(InProcess):
    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def test_both_programs_give_the_same_numbers(tmp_path: Path, monkeypatch, capsys) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        import client_app
        import server_app
        import study
    finally:
        for name in FILES:
            sys.modules.pop(name.removesuffix(".py"), None)
    capsys.readouterr()
    server_app.app(
        Answering(client_app.app, range(5)), Context(1, 1, UserConfig(), RecordDict(), UserConfig())
    )
    theirs = eval(capsys.readouterr().out.splitlines()[-1])
    ours = study.result.table.set_index("round")[MEASURED]
    assert len(ours) == len(theirs) == 11
    assert ours["test_accuracy"].iloc[-1] > ours["test_accuracy"].iloc[0] + 0.5
    for t, row in theirs.items():
        assert [row[name] for name in MEASURED] == pytest.approx(ours.loc[t].tolist(), rel=1e-5)


def test_the_lines_are_counted() -> None:
    lines = {name: sum(map(bool, text.splitlines())) for name, text in FILES.items()}
    said = re.search(r"that is (\d+) lines in Flower and (\d+) here", PAGE)
    assert [int(count) for count in said.groups()] == [
        lines["client_app.py"] + lines["server_app.py"],
        lines["study.py"],
    ]
