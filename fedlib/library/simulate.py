"""`fedlib.simulate`: compare methods on a program's own model and data."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlib.errors import ConfigError, SamplerError
from fedlib.library.arguments import Arguments
from fedlib.library.callbacks import Callback, EndAfter, Keep, Running, Watcher, ends_of
from fedlib.library.checks import check
from fedlib.library.data import Clients, samples_of
from fedlib.library.handed import Handed
from fedlib.library.methods import methods_of
from fedlib.library.model import model_of
from fedlib.library.recheck import recheck
from fedlib.library.result import Result
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, cores
from fedlib.runs.progress import Progress
from fedlib.runs.results import MEASURES
from fedlib.runs.sealed import is_state
from fedlib.runs.store import Store, pack
from fedlib.settings.params import build, seeds_of
from fedlib.settings.schema import OWN, Evaluate, Local, Run
from fedlib.training.objective import Function

CHECKPOINT_SECONDS = 10.0
SAMPLES = ("x", "y", "clients", "test", "client_test")  # arguments that `Arguments` does not hold


def simulate(
    x: Any = None,
    y: Any = None,
    clients: Any = None,
    *,
    test: Any = None,
    client_test: Any = None,
    model: str | Callable[[], Any],
    methods: Mapping[str, Any],
    m: int,
    T: int,
    local: Local,
    seeds: int | Sequence[int] = 1,
    N: int | None = None,
    loss: Function | None = None,
    metric: Function | None = None,
    holdout: float = 0.0,
    world: Mapping[str, Any] | None = None,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
    keep: Keep | None = None,
    store: str | Path | None = None,
    recheck: int | None = None,
    key: Any = None,
    device: str = "cpu",
    threads: int | None = None,
    tell: Callable[[str], None] = print,
) -> Result:
    """Train every method for every seed, all in lockstep, and return the measures.

    x, y: training samples (n, ...) and targets (n,) or (n, ...), as arrays or tensors: floats, whole numbers (tokens),
        or bytes, which are pixels and become floats in [0, 1]. A tuple or mapping of arrays is handed to the model as
        its arguments. Or x is a dataset of pairs (x, y), as in torch; no y.
    clients: (n,) the owner of each sample, named by any values; or a partition; or a scheme such as
        `fedlib.DirichletPrior`, which makes N new clients for each seed. Or, without x and y, each client's own
        (x, y) or dataset of pairs: a mapping name -> dataset, or a list. N: number of clients, for a scheme only.
    test: (x, y) or a dataset of pairs, on which the global model is measured. None: the training loss is measured.
    client_test: the clients' own test samples, for `Result.per_client`: a share of each client's samples, which it
        does not train on; or the owner of each sample of `test`; or each client's own (x, y) or dataset. The global
        model is then measured on all of them together.
    model: a function that makes a `torch.nn.Module`, or the name of a shipped model.
    methods: label -> sampler: its name, its class, an instance with parameters, or a whole `fedlib.Method`.
    m: clients per round. T: rounds. local: what a client does in a round. seeds: how many, or which.
    loss, metric: functions of the model's output and y. A loss returns one value per sample, or their mean, sum or
        weighted mean; a metric may be any number. None: cross-entropy of labels, and accuracy.
    holdout: share of each client's samples that it does not train on, but uses to measure losses that samplers ask for.
    world: when clients are there, how fast they are and when a round ends: the settings of `docs/world.md`, as a
        mapping. None: everyone is always there.
    evaluate: what is measured, and how often. None: every round.
    callbacks: called after every round of every run; they may end a run.
    keep: the weights that `Result.model` gives: of the last round, or of the best (of equal ones, the first).
    store: a folder that keeps finished and half-finished runs, addressed by what made them; a second call continues
        from there, also with a larger T. None: nothing is kept. key: any text or numbers that stand for parts of your
        code that cannot be identified (an open file, a generator); change it whenever they change. recheck: how many of
        the stored runs are trained again and compared, because no digest sees, for example, that an installed package
        was changed; None for the first rounds of one, a second at most.
    device: "cpu" or "cuda". threads: cores to use, None for all. tell: receives a progress line from time to time.

    Raises:
        ConfigError: an argument cannot be used. SamplerError: every run failed. One sentence says why.
    """
    arguments = Arguments.of(**{name: value for name, value in locals().items() if name not in SAMPLES})
    with plain_torch():
        samples = samples_of(x, y, clients, test, client_test, negative=loss is not None)
        if isinstance(model, str):
            samples = replace(samples, data=samples.data.real())
        data = samples.data
        owners = Clients(clients, samples, arguments.N, arguments.holdout)
        if loss is None and data.y_train.dtype != np.int64:
            raise ConfigError(
                f"y holds {data.y_train.dtype}: give classes as whole numbers, y.astype(int), or pass loss=, a "
                "function of output and y."
            )
        if loss is None and data.ids:
            labels = np.unique(data.y_train)
            raise ConfigError(
                f"y holds {len(labels):,} different labels up to {labels[-1]:,}, for {labels[-1] + 1:,} scores: number "
                "the classes from 0, as np.unique(y, return_inverse=True)[1] does."
            )
        skip = key is not None or arguments.store is None  # what cannot be identified
        module = model_of(model, samples, loss, metric, key, skip)
        tested, evaluate = len(data.x_test) > 0, arguments.evaluate
        if evaluate is None:
            accuracy = data.labels and metric is None
            evaluate = Evaluate(test=tested, train=not tested, clients=client_test is not None and accuracy)
        if evaluate.test and not tested:
            raise ConfigError("evaluate.test is true, but there is no test data; give test=(x_test, y_test).")
        shared = {
            "dataset": f"{OWN}{data.digest[:12]}",
            "partition": owners.spec,
            "holdout": arguments.holdout,
            "model": module.name,
            "N": owners.N,
            "m": arguments.m,
            "T": arguments.T,
            "local": local,
            "evaluate": evaluate,
        } | ({"world": arguments.world} if arguments.world else {})
        labelled = [
            (label, build({**shared, "method": method}, seed, "simulate"))
            for label, method in methods_of(methods).items()
            for seed in seeds_of({"seeds": arguments.seeds}, "simulate")
        ]
        supply = Handed(samples, owners, module, device, key, skip)
        check(supply, [run for _, run in labelled], metric, arguments.threads or cores(), arguments.tell)
        with (
            tempfile.TemporaryDirectory()
            if arguments.store is None
            else nullcontext(arguments.store) as folder
        ):
            place = Place(runs=Path(folder), device=device, checkpoint_seconds=CHECKPOINT_SECONDS)
            return train(labelled, place, supply, arguments)


@contextmanager
def plain_torch() -> Generator[None]:
    """In this context, torch computes as usual, whatever the program set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


def train(
    labelled: Sequence[tuple[str, Run]],
    place: Place,
    supply: Handed,
    arguments: Arguments,
) -> Result:
    """Train what is not finished, and gather the results."""
    store, keep, threads, tell = (
        Store(place.runs),
        arguments.keep,
        arguments.threads or cores(),
        arguments.tell,
    )
    runs = {supply.address(run): run for _, run in labelled}
    labels: dict[str, list[Running]] = {}
    for label, run in labelled:
        labels.setdefault(supply.address(run), []).append(
            Running(label, run.seed, run.T, run, arguments.better)
        )
    lineage = {
        a: None if supply.skip and supply.key is None else supply.lineage(run) for a, run in runs.items()
    }
    watch = Watcher(labels, lineage, arguments.callbacks, keep, store, supply.measure, supply.module)
    stored = {a: (labels[a][0], run) for a, run in runs.items() if store.finished(a)}
    recheck(stored, arguments.recheck, place, supply, threads, tell)
    for a in list(runs):
        if a in stored:
            if keep is None or "weights" in ends_of(store.folder(a), keep):
                watch.replay(a, store.read(a)[0])
                continue
            store.forget(a)
        elif keep != "best" and (further := lineage[a]) and not (store.folder(a) / "checkpoint.pt").exists():
            state = store.load_checkpoint(further, partial(is_state, T=runs[a].T))
            if state is not None:
                store.save_checkpoint(a, pack(state))
    lacking = {a: run for a, run in runs.items() if not store.finished(a)}
    for a in lacking:
        store.try_again(a)
    if lacking:
        total = sum(run.T for run in lacking.values())
        with Progress(place.runs, total, tell, "simulate", more=watch.latest) as progress:
            for group in groups_of(list(lacking.values()), 1):
                train_group(group, place, threads, progress.folder, supply, watch)
    failures = {a: why["reason"] for a in lacking if (why := store.failure(a))}
    if len(failures) == len(runs):
        raise SamplerError(" ".join(failures.values()))
    for a in lacking:
        if a not in failures and a not in watch.ended and not store.finished(a):
            raise ConfigError(f"store: {store.holder(a)} trains into {place.runs} now; wait for it to end.")
    shortened = ends_again(watch, runs, place, supply, arguments) if watch.cut else {}
    rows, ends, why = {}, {}, {}
    for label, run in labelled:
        a, name = supply.address(run), (label, run.seed)
        if a in failures:
            why[name] = failures[a]
            warnings.warn(f"method {label!r}: {failures[a]} The other runs are in the result.", stacklevel=3)
            continue
        rows[name] = pd.DataFrame(watch.ended[a]) if a in watch.ended else store.read(a)[0]
        ends[name] = shortened[a] if a in shortened else ends_of(store.folder(a), keep)
    sizes = {run.seed: supply.partition(run).sizes for _, run in labelled}
    return Result(table(rows), supply.clients.names, ends, sizes, why, supply.model.make, arguments.better)


def ends_again(
    watch: Watcher, runs: Mapping[str, Run], place: Place, supply: Handed, arguments: Arguments
) -> dict[str, dict[str, np.ndarray]]:
    """What is kept of runs that a callback ended in a round before the one whose model the store has, by address.

    They are trained again up to that round.
    """
    arguments.tell(f"simulate: {len(watch.cut)} stored runs end earlier now; their models are trained again")
    labels = {a: watch.labels[a] for a in watch.cut}
    until = EndAfter({(run.method, run.seed): watch.cut[a] for a in labels for run in labels[a]})
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        shorter = Watcher(labels, {}, [until], arguments.keep, store, watch.measure, watch.make)
        for group in groups_of([runs[a] for a in labels], 1):
            train_group(
                group, replace(place, runs=store.root), arguments.threads or cores(), None, supply, shorter
            )
        return {a: ends_of(store.folder(a), arguments.keep) for a in labels}


def table(rows: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """The tidy table of ARCHITECTURE.md, from the rounds of each (method, seed)."""
    frames = []
    for (method, seed), rounds in rows.items():
        labels = {"experiment": "", "setting": "", "method": method, "seed": seed}
        frames.append(pd.DataFrame(labels, index=rounds.index).join(rounds))
    whole = pd.concat(frames, ignore_index=True)
    return whole.reindex(columns=[*whole, *(column for column in MEASURES if column not in whole)])
