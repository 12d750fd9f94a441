"""HiCS-FL's claims on what updates tell: gradients and partitions (Figures 6 and 7), estimated entropies (9 to 12)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedlib.measure import spearman
from workspace.analysis.claim import PRINT, Arm, Cell, Claim, Kind, Measurement, versus
from workspace.analysis.readings import Where
from workspace.papers.hics_fl.estimates import QUANTILES, envelope, estimated, h_s, separation
from workspace.papers.hics_fl.printed import ENVELOPES, NAMES, claim

# -- Figures 6 and 7: gradients and partitions


def in_study(study: str, data: str, setting: str = "", column: str = "") -> Where:
    """The rows of one data set in a study."""
    return Where(study, setting, data, column)


def correlation(rows: pd.DataFrame) -> float:
    """Spearman's correlation of a client's label entropy and its mean squared gradient difference, reversed."""
    mean = rows.groupby("client")[["entropy", "difference"]].mean()
    return -spearman(mean["entropy"], mean["difference"])


def bend(side: str, shape: bool) -> Callable[[pd.DataFrame], float]:
    """beta of a fitted envelope, or rho / kappa."""

    def of_curve(rows: pd.DataFrame) -> float:
        mean = rows.groupby("client")[["entropy", "difference"]].mean()
        H, y = mean["entropy"].to_numpy(), mean["difference"].to_numpy()
        beta, rho, kappa = envelope(H, y, QUANTILES[side], H.max())
        return beta if shape else max(rho / kappa, 1e-9)

    return of_curve


def envelopes(shape: bool) -> list[Cell]:
    cells = []
    for data, curves in ENVELOPES.items():
        for side, (_, rho, kappa) in curves.items():
            arm = Arm(in_study("hics_assumption", data), printed=None if shape else rho / kappa)
            measure = Measurement("data", bend(side, shape), "" if shape else "times", log=not shape)
            cells.append(Cell(f"{data}, {side} curve", (arm,), NAMES.get(data, data), measure=measure))
    return cells


def heterogeneity(rows: pd.DataFrame) -> float:
    return h_s(rows, 1.0)


def more_even(data: str, setting: str, compared: str) -> Cell:
    even, skewed = (in_study("hics_partitions", data, s) for s in (setting, compared))
    return versus(f"{data}, {setting} - {compared}", even, skewed, data=NAMES.get(data, data))


OF_GRADIENTS = [
    claim("F6.a", "Gradients of clients with a higher label entropy are closer to the global one "
          "(Spearman's correlation, reversed; at least 0.5, bound ours).", "supporting",
          Measurement("data", correlation, "correlation"),
          [Cell(data, (Arm(in_study("hics_assumption", data)),), NAMES.get(data, data)) for data in ENVELOPES],
          margin=0.5),
    claim("F6.b", "Curves kappa - rho exp(beta (H - H_0)) below and above 95 % of the points bend as "
          "Assumption 1 asks (beta > 0).", "supporting", Measurement("data", bend("upper", True)), envelopes(True)),
    claim("F6.c", "rho / kappa of these curves is as printed (within a factor 1.5).",
          "supporting", Measurement("data", bend("upper", False), "times", log=True), envelopes(False), PRINT, 1.5),
    claim("H.a", "H_S falls from setting (1) to (3) on Fashion-MNIST, and is largest in (1) on "
          "CIFAR-10 and CIFAR-100 (beta = 1).", "construction", Measurement("data", heterogeneity),
          [more_even("FMNIST", "(1)", "(2)"), more_even("FMNIST", "(2)", "(3)"), more_even("CIFAR-10", "(1)", "(2)"),
           more_even("CIFAR-10", "(1)", "(3)"), more_even("CIFAR-100", "(1)", "(2)")], page="figure_7"),
]  # fmt: skip

# -- Figures 9 to 12: the estimated entropy


def at_temperature(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Estimates (n,) at the end of the warm-up; column: what they are taken from, and T_s if not the experiment's."""
    layer, _, T_s = column.partition(", T_s = ")
    return estimated(rows, float(T_s) if T_s else None, layer)


def after_warm_up(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["when"] == "warm-up"]


def separates(rows: pd.DataFrame, column: str) -> float:
    """AUC for the most balanced group against the three most skewed, above chance."""
    rows = after_warm_up(rows)
    return separation(rows, at_temperature(rows, column))[0] - 0.5


def orders(rows: pd.DataFrame, column: str) -> float:
    """Kendall's tau of estimated and true entropies."""
    rows = after_warm_up(rows)
    return separation(rows, at_temperature(rows, column))[1]


def error(rows: pd.DataFrame, column: str) -> float:
    """Mean absolute difference of estimated and true entropies."""
    rows = after_warm_up(rows)
    return float(np.abs(at_temperature(rows, column) - rows["entropy"].to_numpy()).mean())


AUC, TAU, ERROR = (
    Measurement("data", f, unit, of_column=True)
    for f, unit in ((separates, "AUC - 0.5"), (orders, "tau"), (error, "nats"))
)


def case(name: str, weight: float = 1.0) -> Cell:
    data = "CIFAR-10" if name.startswith("CIFAR-10") else "Fashion-MNIST"
    setting = "(2)" if "(2)" in name else "(1)"
    return Cell(name, (Arm(in_study("hics_entropy", name, setting, "bias"), weight),), data)


def with_sgd(setting: str) -> Cell:
    sgd, adam = (
        in_study("hics_entropy", f"CIFAR-10 {setting}, {o}", setting, "bias") for o in ("SGD", "Adam")
    )
    return versus(f"CIFAR-10 {setting}", sgd, adam, data="CIFAR-10", partition=setting)


def of_estimates(number: int, names: tuple[str, ...], words: str, kind: Kind) -> list[Claim]:
    cells = [case(name) for name in names]
    return [
        claim(f"F{number}.a", f"{words} the estimated entropy separates balanced from skewed clients (AUC of "
              "at least 0.9, bound ours).", kind, AUC, cells, margin=0.4),
        claim(f"F{number}.c", f"{words} the estimated entropy keeps the order of the clients (tau of at least "
              "0.6, bound ours).", kind, TAU, cells, margin=0.6),
    ]  # fmt: skip


OF_ESTIMATES = [
    *of_estimates(9, ("FMNIST (a)", "FMNIST (b)"), "On Fashion-MNIST", "core"),
    claim("F9.b", "With SGD the estimate is close to the true entropy (mean error, reversed; at most 0.3 "
          "nats, bound ours).", "supporting", ERROR, [case("FMNIST (b)", -1.0)], margin=-0.3),
    claim("F10.a", "With Adam the estimated entropy keeps the clients' order less well than with SGD.",
          "supporting", TAU, [with_sgd(setting) for setting in ("(1)", "(2)")]),
    *of_estimates(11, ("CIFAR-10 (1), SGD", "CIFAR-10 (1), Adam"), "On CIFAR-10 (1)", "supporting"),
    *of_estimates(12, ("CIFAR-10 (2), SGD", "CIFAR-10 (2), Adam"), "On CIFAR-10 (2)", "supporting"),
]  # fmt: skip
