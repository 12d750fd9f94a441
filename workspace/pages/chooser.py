"""The data of the chooser ("Which sampler should I use?"): what each run of the arena reached for what it cost.

`site/static/chooser.js` filters the settings and ranks the samplers by the rule of `ranking.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fedlib import algorithms
from fedlib.drawing.style import NAMES
from fedlib.measure import RUN, Missing, comparable, cumulative_cost
from fedlib.samplers import SAMPLERS, Sampler, sees
from fedlib.settings.params import Labelled
from fedlib.settings.schema import ROOT, Run
from workspace.analysis import arena
from workspace.analysis.submission import Rules
from workspace.pages import front, ranking

NOTHING, LOSSES, UPDATES = ASKED = (
    "nothing beyond their training",
    "other clients' losses, too",
    "other clients' updates, too",
)
ONE, TWO, MORE = HELD = "one label each, or nearly", "two labels each", "several labels each, or mixed"
POINTS = 40  # checkpoints of a run
COSTS = ("round", "megabytes", "client_steps", "server_seconds")
LABELS = "their labels"
LEVELS = {NOTHING: 0, LOSSES: 1, UPDATES: 2, LABELS: 3}
SOURCES = {  # sampler, or algorithm of the server -> who published it, for tables
    "uniform": "McMahan et al. 2017",
    "md": "Li et al. 2020",
    "clustered_size": "Fraboni et al. 2021",
    "clustered_similarity": "Fraboni et al. 2021",
    "target": "Fraboni et al. 2021",
    "importance": "Chen et al. 2022",
    "hcsfed": "Song et al. 2023",
    "afl": "Goetz et al. 2019",
    "power_of_choice": "Cho et al. 2022",
    "fedcor": "Tang et al. 2022",
    "divfl": "Balakrishnan et al. 2022",
    "hics_fl": "Chen and Vikalo",
    "oracle": "Chen and Vikalo, program",
    "oort": "Lai et al. 2021",
    "SCAFFOLD": "Karimireddy et al. 2020",
    "FedDyn": "Acar et al. 2021",
    "IFCA": "Ghosh et al. 2020",
    "FedProx": "Li et al. 2020",
}
REFERENCES = ("full", "target", "oracle")  # samplers to compare with, not to choose: they see or train more


def asks(sampler: type[Sampler]) -> str:
    """What a sampler asks of clients beside the training of those it chose (one of `ASKED`)."""
    if sampler.asks is None:
        return UPDATES
    reveals = {question.reveals for question in sampler.asks}
    return UPDATES if "updates" in reveals else LOSSES if "losses" in reveals else NOTHING


def holds(run: Run) -> str:
    """Which labels a client holds in a run's partition (one of `HELD`)."""
    if run.partition.mostly_one_label:
        return ONE
    return TWO if run.partition.model_dump().get("shards") == 2 else MORE


def kind_of(run: Run) -> ranking.Kind:
    """Whether a method is a sampler, a reference, or another algorithm of the server with random selection."""
    if run.method.sampler in REFERENCES:
        return "reference"
    plain = run.method.algorithm == "fedavg" and not run.local.mu and run.method.aggregation is None
    return "sampler" if plain else "server"


def clients_in_words(run: Run) -> str:
    """What clients hold in a run's partition: "each client holds one label"."""
    scheme = run.partition.model_dump()
    nearly = ", nearly one label each" if run.partition.mostly_one_label else ""
    match scheme["scheme"]:
        case "one_class":
            return "each client holds one label"
        case "shards":
            return "each client holds " + (
                "one label" if scheme["shards"] == 1 else f"{scheme['shards']} labels"
            )
        case "dirichlet_clients":
            return f"label shares from Dir({scheme['alpha']:g}){nearly}"
        case "dirichlet_prior":
            return f"shares and sizes from Dir({scheme['alpha']:g}){nearly}"
        case "dirichlet_classes":
            return f"{len(scheme['alphas'])} groups of clients{nearly or ', the last one mixed'}"
    return holds(run)


def points(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every run at its checkpoints: experiment, setting, method, seed, `COSTS` so far, and accuracy in percent.

    tables: experiment -> tidy table of the arena. Methods of a setting share their seeds and rounds. The accuracy is
    the mean over the measurements since the checkpoint before.
    """
    parts = []
    for experiment, table in tables.items():
        spent = cumulative_cost(comparable(table))
        spent = spent.assign(
            client_steps=spent["work"],
            server_seconds=spent.groupby(RUN, sort=False)["server_seconds"].cumsum(),
            last=spent.groupby(RUN, sort=False)["round"].transform("max"),
        )
        spent = spent[spent["round"] > 0]
        # each round lies in one of a run's POINTS parts, 1 to POINTS; a checkpoint is the last round of a part
        part = (spent["round"] - 1) * POINTS // spent["last"] + 1
        ends = -(-part * spent["last"] // POINTS)
        grouped = spent.drop(columns="round").groupby([*RUN, ends], sort=False)
        checkpoints = grouped[list(COSTS[1:])].last().assign(accuracy=100 * grouped["test_accuracy"].mean())
        parts.append(
            checkpoints.dropna().rename_axis([*RUN, "round"]).reset_index().assign(experiment=experiment)
        )
    columns = ["experiment", *RUN, *COSTS, "accuracy"]
    return pd.concat(parts)[columns].reset_index(drop=True) if parts else pd.DataFrame(columns=columns)


def level_asked(sampler: type[Sampler]) -> int:
    """What a sampler asks beside training (an index into `LEVELS`)."""
    return 3 if "labels" in sampler.needs else LEVELS[asks(sampler)]


def expenses(runs: pd.DataFrame) -> pd.DataFrame:
    """How many times Random's bytes and client steps a run needs: by method, the median over settings and seeds.

    runs: `points`.

    Raises:
        Missing: Random has not been run.
    """
    if ranking.BASE not in set(runs["method"]):
        raise Missing(f"{ranking.BASE} has not been run")
    keys = ["experiment", "setting", "seed"]
    totals = runs.groupby([*keys, "method"])[["megabytes", "client_steps"]].last()
    times = pd.DataFrame(totals / totals.xs(ranking.BASE, level="method"))
    return times.groupby("method").median()


def settings_of(runs: pd.DataFrame, planned: Iterable[tuple[str, Labelled]]) -> list[dict[str, Any]]:
    """The settings that have runs, in the words of the page's filters (`described`)."""
    plan = {(experiment, labelled.setting): labelled.run for experiment, labelled in planned}
    ran = runs[["experiment", "setting"]].drop_duplicates().itertuples(index=False, name=None)
    return [described(*setting, plan[setting]) for setting in ran if setting in plan]


def methods_of(runs: pd.DataFrame, planned: Iterable[tuple[str, Labelled]]) -> list[dict[str, Any]]:
    """The methods that have runs: what they are, ask and need, who published them, and where their code is."""
    plan: dict[str, Run] = {}
    for _, labelled in planned:
        plan.setdefault(NAMES.get(labelled.method, labelled.method), labelled.run)
    needs = expenses(runs)
    rows = []
    for name in dict.fromkeys(runs["method"]):
        if (run := plan.get(name)) is None:
            continue
        sampler, kind = SAMPLERS[run.method.sampler], kind_of(run)
        file = sampler.__module__ if kind != "server" else algorithms.find(run.method.algorithm).__module__
        rows.append(
            {
                "name": name,
                "kind": kind,
                "asks": level_asked(sampler),
                "sees": ", ".join(sorted(sees(sampler))) or "nothing",
                "paper": SOURCES.get(name if kind == "server" else run.method.sampler, ""),
                "file": f"{file.replace('.', '/')}.py",
                "page": "" if kind == "server" else f"samplers.html#{run.method.sampler.replace('_', '-')}",
                "bytes": f"{needs.loc[name, 'megabytes']:.2g}",
                "steps": f"{needs.loc[name, 'client_steps']:.2g}",
            }
        )
    return rows


def data(runs: pd.DataFrame, planned: Iterable[tuple[str, Labelled]]) -> dict[str, Any]:
    """What the page's script reads, without numbers that it could compute.

    runs: `points`. planned: (experiment, run) of the arena.
    """
    planned, runs = list(planned), runs.assign(method=runs["method"].replace(NAMES))
    settings, methods = settings_of(runs, planned), methods_of(runs, planned)
    names = [method["name"] for method in methods]
    place = {(setting["experiment"], setting["setting"]): k for k, setting in enumerate(settings)}
    grouped: Any = runs.groupby(["experiment", "setting", "method", "seed"], sort=False)
    return {
        "asks": list(LEVELS),
        "settings": settings,
        "methods": methods,
        "runs": [
            {
                "s": place[experiment, setting],
                "m": names.index(method),
                "seed": int(seed),
                "at": {cost: short(run[cost]) for cost in COSTS},
                "accuracy": short(run["accuracy"]),
            }
            for (experiment, setting, method, seed), run in grouped
            if (experiment, setting) in place and method in names
        ],
    }


def short(values: pd.Series) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def described(experiment: str, setting: str, run: Run) -> dict[str, Any]:
    """A setting in the words of the page's filters."""
    sizes = run.partition.model_dump().get("sizes")
    unequal = bool(sizes and len({size for _, size in sizes}) > 1)
    unequal |= run.partition.scheme == "dirichlet_prior"
    data = front.title(run.dataset)
    return {
        "experiment": experiment,
        "setting": setting,
        "name": f"{data}, {clients_in_words(run)}, {run.T} rounds",
        "data": data,
        "labels": holds(run),
        "sizes": "of different size" if unequal else "of one size",
        "share": f"{100 * run.m / run.N:g} % of {run.N}",
        "T": run.T,
    }


COLUMNS = (
    *("rank", "sampler", "points above Random", "95 % interval", "against Random", "settings", "sees"),
    *("asks clients for", "bytes, × Random", "steps, × Random", "paper", "file"),
)
SHOWN = (*COLUMNS[:4], *COLUMNS[6:10])  # on a page's first table; `SOURCES_OF` are below it
SOURCES_OF = ("sampler", "paper", "file")
RANKS = {"sampler": "not in all settings", "reference": "reference", "server": "other algorithm"}


def table(ranked: ranking.Ranking, methods: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The ranking as a table: samplers in order, those that lack settings, then references and other algorithms."""
    by_name = {method["name"]: method for method in methods}
    rows = []
    for row in ranked.rows:
        method = by_name[row.method]
        values = (
            *(str(row.rank or RANKS[row.kind]), row.method, *in_words(row.gain, len(ranked.settings))),
            *(method["sees"], list(LEVELS)[method["asks"]], method["bytes"], method["steps"]),
            *(method["paper"], method["file"]),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, columns=COLUMNS)


def in_words(gain: ranking.Gain, settings: int) -> tuple[str, str, str, str]:
    """A gain, its interval, what it says, and in how many of the settings."""
    n = len(gain.settings)
    part = str(n) if n == settings else f"{n} of {settings}"
    return ranking.signed(gain.value), ranking.interval(gain), gain.verdict, part


def gains_and_costs(ranked: ranking.Ranking, table: pd.DataFrame) -> pd.DataFrame:
    """The ranking as numbers, for a figure: name, kind, value, low, high, bytes and steps. table: that of `ranked`."""
    costs = table.set_index("sampler")
    return pd.DataFrame(
        {
            "name": row.method,
            "kind": row.kind if row.rank or row.kind != "sampler" else "not in all settings",
            "value": row.gain.value,
            "low": row.gain.low,
            "high": row.gain.high,
            "bytes": float(costs.loc[row.method, "bytes, × Random"]),
            "steps": float(costs.loc[row.method, "steps, × Random"]),
        }
        for row in ranked.rows
    )


def ranked_over_all(
    runs: pd.DataFrame, planned: Iterable[tuple[str, Labelled]]
) -> tuple[ranking.Ranking, pd.DataFrame]:
    """The ranking over all settings, as the chooser shows it first, and its `table`.

    runs: `points`.

    Raises:
        Missing: Random has not been run.
    """
    planned, runs = list(planned), runs.assign(method=runs["method"].replace(NAMES))
    methods, settings = methods_of(runs, planned), settings_of(runs, planned)
    kinds: dict[str, ranking.Kind] = {
        method["name"]: method["kind"] for method in methods if method["name"] != ranking.BASE
    }
    places = [(setting["experiment"], setting["setting"]) for setting in settings]
    ranked = ranking.ranking(ranking.at_budget(runs), kinds, places)
    return ranked, table(ranked, methods)


def submissions(tasks: pd.DataFrame, board: arena.Board, rules: Rules, settings: int) -> pd.DataFrame:
    """The arena's submissions that were checked, as rows of `table`, compared with Random in the arena's tasks.

    tasks: the table of the rules' experiment. settings: in which the other rows are compared.
    """
    rows = []
    for entry, mine in board.accepted:
        name = entry.description.name
        tables = pd.concat(
            [tasks[tasks["method"] == rules.baseline], mine[mine["method"] == name]], ignore_index=True
        )
        runs = points({rules.experiment: tables})
        places = dict.fromkeys(zip(runs["experiment"], runs["setting"], strict=True))
        gain = ranking.gain(ranking.at_budget(runs), name, rules.baseline, places)
        if gain:
            described_by = {"rank": "submission", "sampler": name, "paper": entry.description.paper}
            described_by["sees"] = ", ".join(entry.description.information)
            for cost in ("bytes", "steps"):
                described_by[f"{cost}, × Random"] = f"{board.table.loc[name, cost]:.2g}"
            described_by["file"] = str(entry.code.relative_to(ROOT))
            rows.append(dict(zip(COLUMNS[2:6], in_words(gain, settings), strict=True)) | described_by)
    return pd.DataFrame(rows, columns=COLUMNS)
