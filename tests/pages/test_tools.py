"""What the site's tools read: a setting in the words of the chooser's filters, and the choices of a multiverse."""

from __future__ import annotations

import math

import pytest

from fedlib import samplers
from fedlib.data.schemes import DirichletClients
from fedlib.settings import params
from workspace.pages import chooser, multiverse


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([(10, 100)], "of one size"),
        ([(5, 100), (5, 100)], "of one size"),
        ([(5, 100), (5, 200)], "of different size"),
        ([(4, 100), (3, 200), (3, 300)], "of different size"),
    ],
)
def test_a_setting_in_words(sizes: list[tuple[int, int]], words: str) -> None:
    run = params.load().runs("cs_mnist", "demo")[0].run
    changes = {"partition": DirichletClients(alpha=0.1, sizes=sizes), "N": 10, "m": 3, "T": 40}
    setting = chooser.described("cs_mnist", "alpha = 0.1", run.model_copy(update=changes))
    assert (setting["sizes"], setting["share"], setting["T"]) == (words, "30 % of 10", 40)


def test_what_a_sampler_asks_grows_from_nothing_to_labels() -> None:
    levels = [
        chooser.level_asked(samplers.find(name)) for name in ("md", "power_of_choice", "divfl", "target")
    ]
    assert levels == [0, 1, 2, 3]


def test_only_what_readings_take_differently_is_a_choice() -> None:
    taken = [{"data": "a", "lr": "0.1"}, {"data": "a", "lr": "0.01"}, {"data": "a", "lr": "0.1", "T": "long"}]
    assert multiverse.varied(taken) == {"lr": ["0.1", "0.01"], "T": ["", "long"]}


@pytest.mark.parametrize(
    ("value", "plain"), [(1.234567, 1.2346), (math.inf, None), (math.nan, None), ("x", "x")]
)
def test_numbers_for_the_script(value: object, plain: object) -> None:
    assert multiverse.plain(value) == plain
