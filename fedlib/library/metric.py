"""A program's own metric, and which of two values of a column is the better one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedlib.errors import ConfigError

Better = Literal["high", "low"]
QUALITY = ("test_accuracy", "test_metric", "test_loss", "train_loss")  # the first that was measured counts


@dataclass(frozen=True)
class Metric:
    """A metric of a program's own, and whether high or low values of it are good.

    function: of the model's output and y, as `metric` of `fedlib.simulate`. better: "high" (as of F1 or AUC) or "low".

    Raises:
        ConfigError: function cannot be called, or better is something else.
    """

    function: Callable[[Any, Any], Any]
    better: Better

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"Metric.function is {self.function!r}; give a function of output and y.")
        check_better("Metric.better", self.better)

    def __call__(self, output: Any, y: Any) -> Any:
        return self.function(output, y)


def check_better(place: str, better: Any) -> None:
    """Raises ConfigError: it is neither "high" nor "low"."""
    if better not in get_args(Better):
        raise ConfigError(f"{place} is {better!r}; it must be 'high' or 'low'.")


def is_low(column: str, metric: Better | None, stated: Better | None = None) -> bool:
    """Whether low values of a column are the good ones: as stated, or by what the column holds.

    metric: the direction of `test_metric`, None where the program did not say.

    Raises:
        ConfigError: nothing says it.
    """
    if stated is None and column == "test_metric":
        stated = metric
    if stated is not None:
        return stated == "low"
    if column.endswith("_accuracy"):
        return False
    if column.endswith("_loss"):
        return True
    wrapped = ", or pass metric=fedlib.Metric(f, better='high')" if column == "test_metric" else ""
    raise ConfigError(
        f"nothing says whether high or low values of {column} are good: pass better='high' or 'low'{wrapped}."
    )
