"""`fedlib.simulate`: compare methods on a program's own model and data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError, SamplerError
from fedlib.library.data import Clients, Data, data_of
from fedlib.library.methods import methods_of
from fedlib.library.model import model_of
from fedlib.library.result import Result
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, cores
from fedlib.runs.progress import Progress
from fedlib.runs.results import MEASURES
from fedlib.runs.store import Store
from fedlib.samplers import find
from fedlib.samplers.registry import REVISIONS
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.identity import digest_of_value
from fedlib.settings.params import build, seeds_of
from fedlib.settings.schema import OWN, Evaluate, Local, Run, address_of_run
from fedlib.training.contract import Executor
from fedlib.training.executors import Own, make_executor
from fedlib.training.objective import Function

CHECKPOINT_SECONDS = 10.0


class Handed:
    """A program's own data, clients and model, as the supply of a group of runs.

    key: stands for what cannot be identified. stored: whether that is needed, because runs are kept.
    """

    def __init__(
        self,
        data: Data,
        clients: Clients,
        model: str | Own,
        device: str,
        key: Any = None,
        stored: bool = True,
    ) -> None:
        self.data, self.clients, self.model, self.device = data, clients, model, device
        self.key, self.skip = key, key is not None or not stored
        self._executor: Executor | None = None
        self._samplers: dict[type, str] = {}

    def address(self, run: Run) -> str:
        settings = run.model_dump(mode="json")
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
            self._executor = make_executor(self.model, self.data.tensors(), self.device, threads)
        return self._executor

    def partition(self, run: Run) -> Any:
        return self.clients.partition(run.seed)

    def about(self, run: Run) -> dict[str, str]:
        return {"name": run.dataset, "provenance": "handed over by a program", "digest": self.data.digest}


def simulate(
    x: Any,
    y: Any = None,
    clients: Any = None,
    *,
    test: Any = None,
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
    store: str | Path | None = None,
    key: Any = None,
    device: str = "cpu",
    threads: int | None = None,
    tell: Callable[[str], None] = print,
) -> Result:
    """Train every method for every seed, all in lockstep, and return the measures.

    x, y: training samples (n, ...) and targets (n,) or (n, ...), as arrays or tensors: floats, whole numbers (tokens),
        or bytes, which are pixels and become floats in [0, 1]. Or x is a dataset of pairs (x, y), as in torch; no y.
    clients: (n,) the owner of each sample, named by any values; or a partition; or a scheme such as
        `fedlib.DirichletPrior`, which makes N new clients for each seed. N: number of clients, for a scheme only.
    test: (x, y) or a dataset of pairs, on which the global model is measured. None: the training loss is measured.
    model: a function that makes a `torch.nn.Module`, or the name of a shipped model.
    methods: label -> sampler: its name, its class, an instance with parameters, or a whole `fedlib.Method`.
    m: clients per round. T: rounds. local: what a client does in a round. seeds: how many, or which.
    loss, metric: functions of the model's output and y that return one value per sample or their mean. None:
        cross-entropy of labels, and accuracy.
    holdout: share of each client's samples that it does not train on, but uses to measure losses that samplers ask for.
    evaluate: what is measured, and how often. None: every round.
    store: a folder that keeps finished and half-finished runs, addressed by what made them; a second call continues
        from there. None: nothing is kept. key: any text or numbers that stand for parts of your code that cannot be
        identified (an open file, a generator); change it whenever they change.
    device: "cpu" or "cuda". threads: cores to use, None for all. tell: receives a progress line from time to time.

    Raises:
        ConfigError, SamplerError: an argument cannot be used; one sentence says why.
    """
    data = data_of(x, y, test, negative=loss is not None)
    owners = Clients(clients, data, N, holdout)
    classes = int(data.y_train.max()) + 1 if data.labels else 1
    name, own = model_of(model, data.x_train.shape[1:], classes, loss, metric, key, store is not None)
    if evaluate is None:
        evaluate = Evaluate(test=test is not None, train=test is None)
    if evaluate.test and test is None:
        raise ConfigError("evaluate.test is true, but there is no test data; give test=(x_test, y_test).")
    shared = {
        "dataset": f"{OWN}{data.digest[:12]}",
        "partition": owners.spec,
        "holdout": holdout,
        "model": name,
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
    supply = Handed(data, owners, own, device, key, store is not None)
    with tempfile.TemporaryDirectory() if store is None else nullcontext(os.fspath(store)) as folder:
        place = Place(runs=Path(folder), device=device, checkpoint_seconds=CHECKPOINT_SECONDS)
        train([run for _, run in labelled], place, supply, threads or cores(), tell)
        return Result(table(labelled, Store(place.runs), supply), owners.names)


def train(
    runs: Sequence[Run], place: Place, supply: Handed, threads: int, tell: Callable[[str], None]
) -> None:
    """Train what is not finished."""
    store = Store(place.runs)
    lacking = [run for run in runs if not store.finished(supply.address(run))]
    if not lacking:
        return
    for run in lacking:
        store.try_again(supply.address(run))
    with Progress(place.runs, sum(run.T for run in lacking), tell, "simulate") as progress:
        for group in groups_of(lacking, 1):
            train_group(group, place, threads, progress.folder, supply)
    failures = [why["reason"] for run in lacking if (why := store.failure(supply.address(run)))]
    if failures:
        raise SamplerError(" ".join(failures))
    for run in lacking:
        if not store.finished(supply.address(run)):
            holder = store.holder(supply.address(run))
            raise ConfigError(f"store: {holder} trains into {place.runs} now; wait for it to end.")


def table(labelled: Sequence[tuple[str, Run]], store: Store, supply: Handed) -> pd.DataFrame:
    """The tidy table of ARCHITECTURE.md."""
    frames = []
    for label, run in labelled:
        rounds, _ = store.read(supply.address(run))
        labels = {"experiment": "", "setting": "", "method": label, "seed": run.seed}
        frames.append(pd.DataFrame(labels, index=rounds.index).join(rounds))
    whole = pd.concat(frames, ignore_index=True)
    for column in MEASURES:
        if column not in whole:
            whole[column] = float("nan")
    return whole
