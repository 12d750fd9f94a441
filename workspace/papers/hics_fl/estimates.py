"""HiCS-FL's gradients, label entropies and their estimates (Figures 6, 7, 9 to 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from fedlib.measure import Missing, kendall
from fedlib.samplers.hics_fl import estimated_entropy
from workspace.papers.hics_fl.printed import ENVELOPES, TEMPERATURES

# -- Figure 6: Assumption 1

QUANTILES = {"upper": 0.975, "lower": 0.025}  # of the points that lie below each curve


def envelope(
    entropy: np.ndarray, difference: np.ndarray, quantile: float, top: float
) -> tuple[float, float, float]:
    """beta, rho, kappa of the curve kappa - rho exp(beta (H - top)) with a share `quantile` of the points below it.

    Quantile regression: the pinball loss is minimised from several initial shapes, with both signs of beta and rho,
    because points that bend upwards require negative ones. entropy, difference: (n,); top: ln K.
    """
    scale = difference.mean()

    def loss(point: np.ndarray) -> float:
        residual = difference / scale - (point[2] - point[1] * np.exp(point[0] * (entropy - top)))
        return float(np.maximum(quantile * residual, (quantile - 1) * residual).mean())

    starts = [np.array([beta, 1.0, 1.5]) for beta in (0.3, 1.0, 2.0, 4.0)]
    starts += [np.array([beta, -0.3, 0.1]) for beta in (-0.3, -1.0, -2.0)]
    fits = [minimize(loss, x0, method="Nelder-Mead", options={"maxiter": 4000}) for x0 in starts]
    beta, rho, kappa = min(fits, key=lambda fit: fit.fun).x
    return float(beta), float(rho * scale), float(kappa * scale)


Curve = Callable[[np.ndarray], np.ndarray]


def fitted_envelopes(
    points: Mapping[str, tuple[np.ndarray, np.ndarray]], quantiles: Mapping[str, float] = QUANTILES
) -> tuple[dict[str, dict[str, Curve]], pd.DataFrame]:
    """Figure 6's fitted curves by dataset, and their parameters next to the printed ones.

    points: dataset -> entropies (n,), differences (n,). quantiles: share of the points that lie below each curve.
    """
    curves, rows = {}, []
    for data, (H, y) in points.items():
        curves[data] = {}
        for side, quantile in quantiles.items():
            beta, rho, kappa = envelope(H, y, quantile, H.max())
            curves[data][f"{side} curve"] = partial(exponential, beta, rho, kappa, H.max())
            printed = ENVELOPES[data][side]
            ratios = {"rho/kappa": rho / kappa, "rho/kappa, paper": printed[1] / printed[2]}
            parameters = {"beta": beta, "rho": rho, "kappa": kappa, **ratios, "beta, paper": printed[0]}
            rows.append(
                {"data": data, "curve": side, **{k: float(f"{v:.3g}") for k, v in parameters.items()}}
            )
    return curves, pd.DataFrame(rows)


def exponential(beta: float, rho: float, kappa: float, top: float, H: np.ndarray) -> np.ndarray:
    """Assumption 1's bound kappa - rho exp(beta (H - top))."""
    return kappa - rho * np.exp(beta * (H - top))


# -- Figures 9 to 12: the estimated entropy


def estimated(table: pd.DataFrame, T_s: float | None = None, source: str = "bias") -> np.ndarray:
    """(n,) entropies in nats, estimated from the clients' updates; T_s: None for that of the experiment."""
    T_s = float(table["T_s"].iloc[0]) if T_s is None else T_s
    return estimated_entropy(np.stack(table[source].to_list()), T_s)


def separation(table: pd.DataFrame, H: np.ndarray) -> tuple[float, float]:
    """AUC of estimates (n,) for the most balanced group against the three most skewed; Kendall's tau with the truth.

    Tau is taken over clients whose true entropy differs from that of all others.
    """
    group, truth = table["group"].to_numpy(), table["entropy"].to_numpy()
    used = (group == group.max()) | (group <= 2)
    distinct = ~pd.Series(truth.round(9)).duplicated(keep=False).to_numpy()
    auc = (
        float(roc_auc_score(group[used] == group.max(), H[used]))
        if 0 < (group[used] == group.max()).mean() < 1
        else np.nan
    )
    return auc, kendall(truth[distinct], H[distinct])


def separations(table: pd.DataFrame, T_s: float | None = None, source: str = "bias") -> tuple[float, float]:
    """`separation` of the estimates (`estimated`), mean over seeds, each with its own models and partition."""
    pairs = [separation(clients, estimated(clients, T_s, source)) for _, clients in table.groupby("seed")]
    return tuple(np.mean(pairs, axis=0))


def compared(updates: pd.DataFrame, cases: list[str]) -> pd.DataFrame:
    """AUC, tau and error of every estimator, temperature and start of the cases, mean over seeds."""
    rows = []
    for (case, when), table in updates[updates["data"].isin(cases)].groupby(["data", "when"], sort=False):
        for source, T_s in product(("bias", "weight"), temperatures(table)):
            error = np.abs(estimated(table, T_s, source) - table["entropy"].to_numpy()).mean()
            rows.append((case, when, source, T_s, *np.round((*separations(table, T_s, source), error), 3)))
    return pd.DataFrame(rows, columns=["case", "when", "estimate from", "T_s", "AUC", "tau", "error (nats)"])


def temperatures(table: pd.DataFrame) -> list[float]:
    """The temperatures to compare: that of the experiment and those that the paper and the code name."""
    return sorted({*TEMPERATURES, float(table["T_s"].iloc[0])})


# -- The partitions


def h_s(owners: pd.DataFrame, beta: float) -> float:
    """H_S = sum_k p_k exp(beta (H(D_k) - ln K)) with rho = 1, mean over seeds (Theorem 2's sampling-free term)."""
    values = []
    for _, clients in owners.groupby("seed"):
        p, top = clients["size"] / clients["size"].sum(), np.log(len(clients["counts"].iloc[0]))
        values.append(float((p * np.exp(beta * (clients["entropy"] - top))).sum()))
    return float(np.mean(values))


def owned(owners: pd.DataFrame, data: str) -> dict[str, np.ndarray]:
    """(N, K) samples by client and label for each setting of a dataset, first seed.

    Raises:
        Missing: the dataset is not available.
    """
    if not (owners["data"] == data).any():
        raise Missing(f"it needs {data}")
    table = owners[(owners["data"] == data) & (owners["seed"] == owners["seed"].min())].sort_values("client")
    return {f"{data} {s}": np.stack(t["counts"].to_list()) for s, t in table.groupby("setting", sort=False)}


def groups(owners: pd.DataFrame, data: str | None = None) -> pd.DataFrame:
    """Mean label entropy (nats) of each group of clients, and H_S at beta = 1, by setting, over all seeds."""
    rows = []
    partitions: list[tuple[Any, pd.DataFrame]] = list(owners.groupby(["data", "setting"], sort=False))
    for (name, setting), table in partitions:
        if data in (None, name):
            entropy = table.groupby("group")["entropy"].mean().round(2)
            means = {f"group {g + 1}": value for g, value in entropy.items()}
            rows.append({"data": name, "setting": setting, **means, "H_S": round(h_s(table, 1.0), 3)})
    return pd.DataFrame(rows)
