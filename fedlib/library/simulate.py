"""`fedlib.simulate`: compare methods on a program's own model and data."""

from __future__ import annotations

import dis
import os
import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fedlib.data.partition import Partition
from fedlib.errors import ConfigError, SamplerError
from fedlib.library.callbacks import Callback, Keep, Running, Watcher, kept
from fedlib.library.data import Clients, Samples, samples_of
from fedlib.library.methods import methods_of
from fedlib.library.model import Given, model_of, with_values
from fedlib.library.result import Result
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, cores
from fedlib.runs.progress import Progress
from fedlib.runs.results import MEASURES
from fedlib.runs.sealed import is_state
from fedlib.runs.store import Store, pack
from fedlib.samplers import find
from fedlib.samplers.registry import REVISIONS
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.identity import digest_of_value, names_read
from fedlib.settings.params import build, seeds_of
from fedlib.settings.schema import OWN, Evaluate, Local, Run, address_of_run
from fedlib.simulation.evaluation import segment_means, weights_of
from fedlib.simulation.live import Live
from fedlib.training.contract import Executor
from fedlib.training.executors import Own, make_executor
from fedlib.training.objective import Function
from fedlib.training.randomness import made, seeded

CHECKPOINT_SECONDS = 10.0


class Handed:
    """A program's own samples, clients and model, as the supply of a group of runs.

    key: stands for what cannot be identified. stored: whether that is needed, because runs are kept.
    """

    def __init__(
        self,
        samples: Samples,
        clients: Clients,
        model: Given,
        device: str,
        key: Any = None,
        stored: bool = True,
    ) -> None:
        self.data, self.clients, self.model, self.device = samples.data, clients, model, device
        self.key, self.skip = key, key is not None or not stored
        self._executor: Executor | None = None
        self._samplers: dict[type, str] = {}

    def address(self, run: Run) -> str:
        return self._address(run.model_dump(mode="json"), run)

    def lineage(self, run: Run) -> str | None:
        """Where the state after round T is kept for runs with a larger T; None if its sampler knows T."""
        if knows_T(find(run.method.sampler)):
            return None
        return self._address(run.model_dump(mode="json") | {"T": None}, run)

    def _address(self, settings: dict[str, Any], run: Run) -> str:
        code, name = code_of(settings), run.method.sampler
        if name not in REVISIONS:
            code |= {f"sampler {name}": self._digest(find(name))}
        return address_of_run(settings, NUMERICS, self.data.digest, code)

    def _digest(self, sampler: type) -> str:
        """Identifies a sampler that is not shipped."""
        if sampler not in self._samplers:
            values = [digest_of_value(sampler, f"the sampler {sampler.__name__}", self.skip), self.key]
            self._samplers[sampler] = digest_of_value(values, "key")
        return self._samplers[sampler]

    def executor(self, run: Run, threads: int) -> Executor:
        if self._executor is None:
            by_torch = run.local.by_torch
            use = Own(self.model.make) if by_torch and isinstance(self.model.use, str) else self.model.use
            self._executor = make_executor(use, self.data.tensors(), self.device, threads, by_torch)
        return self._executor

    def partition(self, run: Run) -> Partition:
        return self.clients.partition(run.seed)

    def about(self, run: Run) -> dict[str, str]:
        return {"name": run.dataset, "provenance": "handed over by a program", "digest": self.data.digest}

    def module(self, flat: Tensor) -> nn.Module:
        """A module with these values, in evaluation mode."""
        return with_values(made(self.model.make, 0), flat.cpu()).eval()

    def measure(self, live: Live) -> dict[str, np.ndarray]:
        """Of the global model: each client's loss on its training part, and loss and score on its test part, (N,)."""
        if len(live.models) > 1:
            return {}
        out = {}
        for split, parts in (("train", live.partition.train), ("test", live.partition.test)):
            if parts is None:
                continue
            rows, sizes = np.concatenate(parts), [len(part) for part in parts]
            losses, scores = live.executor.evaluate(live.models, split, [rows])
            out[f"{split}_loss"] = segment_means(losses[0], sizes, weights_of(live.executor, split, rows))
            if split == "test" and live.executor.measures:
                objective = getattr(live.executor, "objective", None)
                if objective is not None and objective.metric_kind == "together":
                    each = live.executor.evaluate(live.models.expand(len(parts), -1), split, parts)[1]
                    out[live.executor.measures] = np.array([score[0] for score in each])
                else:
                    out[live.executor.measures] = segment_means(scores[0], sizes)
        return out


def knows_T(sampler: type) -> bool:
    """Whether a sampler may read the number of rounds, `fed.T`. Of code that is not ours, any attribute T counts."""
    methods = [
        part for base in sampler.__mro__ for part in vars(base).values() if isinstance(part, FunctionType)
    ]
    steps = [[step.argval for step in dis.get_instructions(method)] for method in methods]
    return "T" in names_read(sampler) or any(("fed", "T") in pairwise(names) for names in steps)


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
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
    keep: Keep | None = None,
    store: str | Path | None = None,
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
    evaluate: what is measured, and how often. None: every round.
    callbacks: called after every round of every run; they may end a run.
    keep: the weights that `Result.model` gives: of the last round, or of the best.
    store: a folder that keeps finished and half-finished runs, addressed by what made them; a second call continues
        from there, also with a larger T. None: nothing is kept. key: any text or numbers that stand for parts of your
        code that cannot be identified (an open file, a generator); change it whenever they change.
    device: "cpu" or "cuda". threads: cores to use, None for all. tell: receives a progress line from time to time.

    Raises:
        ConfigError: an argument cannot be used. SamplerError: every run failed. One sentence says why.
    """
    with plain_torch():
        samples = samples_of(x, y, clients, test, client_test, negative=loss is not None)
        data = samples.data if not isinstance(model, str) else samples.data.real()
        samples = replace(samples, data=data)
        owners = Clients(clients, samples, N, holdout)
        if loss is None and data.y_train.dtype != np.int64:
            raise ConfigError(
                f"y holds {data.y_train.dtype}: give classes as whole numbers, y.astype(int), or pass loss=, a "
                "function of output and y."
            )
        given = model_of(model, samples, loss, metric, key, store is not None)
        tested = len(data.x_test) > 0
        if evaluate is None:
            accuracy = data.labels and metric is None
            evaluate = Evaluate(test=tested, train=not tested, clients=client_test is not None and accuracy)
        if evaluate.test and not tested:
            raise ConfigError("evaluate.test is true, but there is no test data; give test=(x_test, y_test).")
        shared = {
            "dataset": f"{OWN}{data.digest[:12]}",
            "partition": owners.spec,
            "holdout": holdout,
            "model": given.name,
            "N": owners.N,
            "m": m,
            "T": T,
            "local": local,
            "evaluate": evaluate,
        }
        labelled = [
            (label, build({**shared, "method": method}, seed, "simulate"))
            for label, method in methods_of(methods).items()
            for seed in seeds_of({"seeds": seeds if isinstance(seeds, int) else list(seeds)}, "simulate")
        ]
        supply = Handed(samples, owners, given, device, key, store is not None)
        check(supply, [run for _, run in labelled], metric)
        with tempfile.TemporaryDirectory() if store is None else nullcontext(os.fspath(store)) as folder:
            place = Place(runs=Path(folder), device=device, checkpoint_seconds=CHECKPOINT_SECONDS)
            return train(labelled, place, supply, callbacks, keep, threads or cores(), tell)


@contextmanager
def plain_torch() -> Generator[None]:
    """In this context, torch computes as usual, whatever the program set."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(before)


def check(supply: Handed, runs: Sequence[Run], metric: Function | None) -> None:
    """What the arguments say together, before anything is trained.

    Raises:
        ConfigError: clients have no test parts to measure, or training will meet a batch that the model cannot take.
    """
    run = runs[0]
    partitions = {run.seed: supply.partition(run) for run in runs}
    if run.evaluate.clients:
        if not supply.data.labels or metric is not None:
            raise ConfigError(
                "evaluate.clients measures accuracy, which needs labels and no metric=; set it to false."
            )
        if any(part.test is None for part in partitions.values()):
            raise ConfigError(
                "evaluate.clients is true, but the clients have no test samples; give client_test."
            )
    if isinstance(supply.model.use, str) or takes_one(supply):
        return
    batch, steps = run.local.batch, run.local.steps
    for part in partitions.values():
        for k, mine in enumerate(part.train):
            left = min(batch, len(mine)) if steps else len(mine) % batch or batch
            if run.local.drop_last and len(mine) > batch:
                left = batch
            if left == 1:
                raise ConfigError(
                    f"model: training fails on a batch of one sample, which {supply.clients.name(k)} would have "
                    f"({len(mine)} samples in batches of {batch}); set drop_last=True in Local, or another batch."
                )


def takes_one(supply: Handed) -> bool:
    """Whether the model can be trained on a batch of one sample. Batch normalisation cannot."""
    use = supply.model.use
    assert not isinstance(use, str)
    net, x = made(use.make, 0).train(), supply.data.tensors().x_train[:2]
    with seeded(0), torch.no_grad():
        try:
            net(x)
        except Exception:
            return True  # it fails anyhow; the executor says why
        try:
            net(x[:1])
        except ValueError:
            return False
        except Exception:
            return True
    return True


def train(
    labelled: Sequence[tuple[str, Run]],
    place: Place,
    supply: Handed,
    callbacks: Sequence[Callback],
    keep: Keep | None,
    threads: int,
    tell: Callable[[str], None],
) -> Result:
    """Train what is not finished, and gather the results."""
    store = Store(place.runs)
    runs = {supply.address(run): run for _, run in labelled}
    labels: dict[str, list[Running]] = {}
    for label, run in labelled:
        labels.setdefault(supply.address(run), []).append(Running(label, run.seed, run.T, run))
    lineage = {
        a: None if supply.skip and supply.key is None else supply.lineage(run) for a, run in runs.items()
    }
    watch = Watcher(labels, lineage, callbacks, keep, store, supply.measure, supply.module)
    for a in list(runs):
        if store.finished(a):
            if keep is None or f"weights_{keep}" in (kept(store.folder(a)) or {}):
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
        with Progress(place.runs, sum(run.T for run in lacking.values()), tell, "simulate") as progress:
            for group in groups_of(list(lacking.values()), 1):
                train_group(group, place, threads, progress.folder, supply, watch)
    failures = {a: why["reason"] for a in lacking if (why := store.failure(a))}
    if len(failures) == len(runs):
        raise SamplerError(" ".join(failures.values()))
    for a in lacking:
        if a not in failures and a not in watch.ended and not store.finished(a):
            raise ConfigError(f"store: {store.holder(a)} trains into {place.runs} now; wait for it to end.")
    rows, ends, why = {}, {}, {}
    for label, run in labelled:
        a, name = supply.address(run), (label, run.seed)
        if a in failures:
            why[name] = failures[a]
            warnings.warn(f"method {label!r}: {failures[a]} The other runs are in the result.", stacklevel=3)
            continue
        rows[name] = pd.DataFrame(watch.ended[a]) if a in watch.ended else store.read(a)[0]
        end = kept(store.folder(a)) or {}
        weights = {"weights": end[f"weights_{keep}"]} if f"weights_{keep}" in end else {}
        ends[name] = {what: values for what, values in end.items() if "weights" not in what} | weights
    sizes = {run.seed: supply.partition(run).sizes for _, run in labelled}
    return Result(table(rows), supply.clients.names, ends, sizes, why, supply.model.make)


def table(rows: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """The tidy table of ARCHITECTURE.md, from the rounds of each (method, seed)."""
    frames = []
    for (method, seed), rounds in rows.items():
        labels = {"experiment": "", "setting": "", "method": method, "seed": seed}
        frames.append(pd.DataFrame(labels, index=rounds.index).join(rounds))
    whole = pd.concat(frames, ignore_index=True)
    for column in MEASURES:
        if column not in whole:
            whole[column] = float("nan")
    return whole
