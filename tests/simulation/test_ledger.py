"""What a round costs, by hand; sizes of 100 numbers a model."""

from __future__ import annotations

import numpy as np
import pytest

from fedlib.simulation.evaluation import worst
from fedlib.simulation.ledger import Ledger


def test_a_client_receives_each_model_once() -> None:
    ledger = Ledger(100)
    ledger.send_model([0, 1, 1])
    ledger.send_model(np.array([1, 2]))
    assert ledger.costs.parameters_down == 300
    ledger.send_model([1, 2], copies=2)  # the model and a control variate
    assert ledger.costs.parameters_down == 500
    ledger.new_model()
    ledger.send_model([1])
    assert ledger.costs.parameters_down == 600


@pytest.mark.parametrize(("payload", "sent"), [(1, 200), (2, 500)])
def test_an_update_that_has_arrived_is_not_sent_again(payload: int, sent: int) -> None:
    """Client 3 answered with its update; it is drawn twice, and client 4 once."""
    ledger = Ledger(100)
    ledger.upload([3])
    assert ledger.costs.parameters_up == 100
    ledger.upload_draws([3, 4, 3], payload)
    assert ledger.costs.parameters_up == 100 + sent


def test_a_part_of_an_update_does_not_stand_for_the_whole() -> None:
    ledger = Ledger(100)
    ledger.upload([3, 4], parameters=10, scalars=2)
    assert (ledger.costs.parameters_up, ledger.costs.scalars_up) == (20, 4)
    ledger.upload_draws([3])
    assert ledger.costs.parameters_up == 120


def test_other_questions() -> None:
    ledger = Ledger(100)
    ledger.gradients(2)
    ledger.losses(3, samples=50)
    ledger.trial(trained=4, steps=20, clients=5)
    ledger.train(7)
    assert vars(ledger.costs) == {
        "parameters_up": 200 + 400,
        "parameters_down": 500,
        "scalars_up": 3,
        "client_steps": 2 + 20 + 7,
        "samples_evaluated": 50,
        "server_seconds": 0.0,
    }


def test_the_worst_class_and_the_worst_tenth_of_clients() -> None:
    """Class 0 is right in one of four cases, class 1 always; 20 clients have a share of class 0 of 0, 1/19, ..., 1."""
    share = np.arange(20) / 19
    found = worst(
        np.array([1, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 1, 1]), np.stack([share, 1 - share], axis=1)
    )
    assert found["worst_class"] == 0.25
    assert found["worst_tenth"] == pytest.approx((0.25 + 1 - 0.75 * 18 / 19) / 2)
