"""A run's time by the seconds of finished runs: of those that are most alike, by the round or by the step."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from small import EXPERIMENT

from fedlib.runs.cost import Spent
from fedlib.runs.work import Plan, Work
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Until

SETTINGS = Experiments(
    {"experiments": {"e": EXPERIMENT | {"grid": {"a": {}, "b": {}}}, "f": EXPERIMENT | {"T": 10}}}
)
PLAN = Plan.of_experiment("e", "demo", SETTINGS)


def table(*runs: tuple[Work, float]) -> pd.DataFrame:
    """4 rounds of each run, of so many seconds and 10 steps."""
    return pd.concat(
        pd.DataFrame(
            {"round": range(5), "seconds": [0.0] + [each] * 4, "client_steps": [0] + [10] * 4}
        ).assign(**work.labels)
        for work, each in runs
    )


def of(setting: str, method: str, seed: int, plan: Plan = PLAN) -> Work:
    labels = {"setting": setting, "method": method, "seed": seed}
    return next(work for work in plan.work if work.labels == labels)


def spent(*runs: tuple[Work, float]) -> Spent:
    return Spent([(PLAN, table(*runs))], lambda run: 20.0 * run.T)


def test_the_closest_runs_are_taken() -> None:
    mine, method, other = of("a", "MD", 0), of("b", "MD", 0), of("b", "Random", 0)
    wanted = of("a", "MD", 1)
    assert spent((mine, 1.0), (method, 5.0), (other, 9.0)).seconds(wanted) == pytest.approx(4.0)
    assert spent((method, 5.0), (other, 9.0)).seconds(wanted) == pytest.approx(20.0)
    assert spent((other, 9.0)).seconds(wanted) == pytest.approx(36.0)
    elsewhere = of("", "MD", 0, Plan.of_experiment("f", "demo", SETTINGS))
    assert spent((other, 9.0)).seconds(elsewhere) == pytest.approx(20 * 10 * 9.0 / 10)


def test_another_shape_has_no_time() -> None:
    run = of("a", "MD", 1).run.model_copy(update={"model": "mlp"})
    assert spent((of("a", "MD", 0), 1.0)).seconds(replace(of("a", "MD", 1), name="g", run=run)) is None


def test_a_run_with_a_target_is_taken_to_end_when_others_do() -> None:
    long = {"T": 400, "until": Until(test_accuracy=0.5, least=1)}
    work = of("a", "MD", 1)
    finished = spent((of("a", "MD", 0), 2.0))
    assert finished.seconds(replace(work, run=work.run.model_copy(update={"T": 400}))) == pytest.approx(800.0)
    assert finished.seconds(replace(work, run=work.run.model_copy(update=long))) == pytest.approx(8.0)
