"""The Flower app in `docs/flower-app`: its form, and a run of it in Flower's own simulation."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

pytest.importorskip(
    "flwr", reason="Flower asks for older libraries than requirements.lock has: `make flower` tests it"
)

from test_in_flower import free_port, listens, running, wait_until

from fedlib.settings.schema import ROOT

APP = ROOT / "docs" / "flower-app"
CONFIG = '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{}"\ninsecure = true\n'
ROUNDS = 3


def test_the_app_has_the_form_that_flower_asks_for() -> None:
    from flwr.common.config import validate_config

    config = tomllib.loads((APP / "pyproject.toml").read_text())
    assert validate_config(config, project_dir=APP) == (True, [], []), "valid, without errors and warnings"
    for component in config["tool"]["flwr"]["app"]["components"].values():
        assert (APP / component.split(":")[0].replace(".", "/")).with_suffix(".py").exists()


def test_the_app_runs_in_flowers_simulation(tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "rows.json"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(CONFIG.format(port))
    link = f"flower-superlink --port {port} --insecure --simulation --disable-runtime-dependency-installation"
    settings = f"rows='{out}' num-server-rounds={ROUNDS}"
    with running(tmp_path, link):
        wait_until(lambda: listens(port), "no SuperLink", tmp_path / "log")
        run = f'flwr run {APP} --stream --run-config "{settings}" --federation-config "num-supernodes=10"'
        with running(tmp_path, run):
            log = tmp_path / "log"
            wait_until(lambda: out.exists() or "Exit Code" in log.read_text(), "no result", log)
    rows = json.loads(out.read_text())
    assert [len(row["clients"]) for row in rows[1:]] == [3] * ROUNDS
    assert [row["available"] for row in rows[1:]] == [10] * ROUNDS
    assert all(second > 0 for row in rows[1:] for second in row["seconds"])
    assert [row["scalars_up"] for row in rows[1:]] == [6] * ROUNDS, (
        "Power-of-Choice asks six for their losses"
    )
    accuracy = [row["by_server"]["accuracy"] for row in rows]
    assert accuracy[-1] > accuracy[0] + 0.1
