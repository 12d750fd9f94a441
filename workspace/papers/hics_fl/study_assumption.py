"""HiCS-FL, Figure 6: the distance of a client's gradient from the global one, against its label entropy.

There are `clients` clients of `n` samples each. Client k has label shares ~ Dir(alpha_k), with alpha_k on a logarithmic
grid over `alphas`. All take part in every round of plain FedAvg (with `run`'s local work). Every `every` rounds the
gradient of each local loss at the global model is computed over all samples of the client, with the model in evaluation
mode: without dropout, normalised by its running statistics. The global gradient is therefore that of the pooled data.
Values are lr^2 ||grad F_k - grad F||^2. The paper states neither the clients' size nor the probed rounds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib.data import datasets
from fedlib.data.partition import Partition
from fedlib.data.schemes.base import by_label, collect
from fedlib.runs.measuring import Halfway
from fedlib.runs.place import Place, Prepared
from fedlib.runs.studies import Unit, units_of
from fedlib.samplers.base import Count, Positive
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Run, Scale
from fedlib.settings.sections import Study
from fedlib.streams import stream
from fedlib.training.contract import Job
from fedlib.training.layout import Layout


class AssumptionKeys(Study):
    """n: samples per client. alphas: [lowest, highest]."""

    clients: Count
    n: Count
    alphas: Annotated[list[Positive], Field(min_length=2, max_length=2)]
    rounds: Count
    every: Count


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """settings: `clients`, `n`, `alphas` [lowest, highest], `rounds`, `every`, in addition to the experiments."""
    for unit in units_of(settings, experiments, scale, "clients", "n", "alphas", "rounds", "every"):
        yield unit | {"labels": unit["labels"] | {"setting": ""}, "gradients": "as measured"}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per (round, client): round, client, alpha, entropy (nats), difference."""
    run = Run(**unit["run"])
    lr, supply = run.local.lr, Prepared(place)
    assert not callable(lr)  # a study has a constant
    dataset, work = supply.dataset(run), supply.executor(run)
    tensors = datasets.tensors(dataset, run.scaling)
    alphas = np.geomspace(*unit["alphas"], unit["clients"])
    parts = split(dataset.y_train, alphas, unit["n"], stream(run.seed, "partition"))
    so_far = halfway.state or {"t": 0, "model": work.initial(stream(run.seed, "init", 0))[None], "rows": []}
    model, rows = so_far["model"].to(place.device), so_far["rows"]
    for t in range(so_far["t"] + 1, unit["rounds"] + 1):
        halfway.reached(t - 1, unit["rounds"], {"t": t - 1, "model": model.cpu(), "rows": rows})
        if (t - 1) % unit["every"] == 0:
            difference = lr**2 * distances(work.net, tensors, parts, model)
            rows.append({"round": t, "client": np.arange(len(alphas)), "difference": difference})
        jobs = [Job(0, part, stream(run.seed, "local", t, k, 0)) for k, part in enumerate(parts.train)]
        model = model + work.train(jobs, model, run.local, run.local.lr_at(t)).updates.mean(0, keepdim=True)
    table = pd.concat([pd.DataFrame(row) for row in rows], ignore_index=True)
    clients = table["client"].to_numpy()
    return table.assign(alpha=alphas[clients], entropy=parts.label_entropy[clients])


def split(y: np.ndarray, alphas: np.ndarray, n: int, rng: np.random.Generator) -> Partition:
    """One client of n samples per entry of `alphas` (N,), drawn with replacement from the label pools."""
    K = int(y.max()) + 1
    shares = np.stack([rng.dirichlet(np.full(K, alpha)) for alpha in alphas])
    counts = np.stack([rng.multinomial(n, share) for share in shares])
    pools = [rng.choice(pool, counts[:, k].sum()) for k, pool in enumerate(by_label(y, K))]
    return Partition(collect(pools, counts), None, None, counts)


def distances(
    net: torch.nn.Module, samples: datasets.Tensors, parts: Partition, model: torch.Tensor
) -> np.ndarray:
    """(N,) squared distance of each client's full gradient at the model (1, d) from the data-weighted mean of all."""
    net, layout, device = copy.deepcopy(net).to(model.device).eval(), Layout.of(net), model.device
    tensors = layout.views(model[0])
    weights = {name: tensors[name].clone().requires_grad_() for name, _ in net.named_parameters()}
    gradients = torch.empty(len(parts.train), layout.n_trainable, device=device)
    for k, part in enumerate(parts.train):
        rows = torch.from_numpy(part)
        x, y = (t[rows].to(device) for t in (samples.x_train, samples.y_train))
        loss = cross_entropy(functional_call(net, tensors | weights, (x,))[0], y)
        gradients[k] = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(weights.values()))])
    mean = torch.as_tensor(parts.p, dtype=gradients.dtype, device=device) @ gradients
    return ((gradients - mean) ** 2).sum(1).cpu().numpy().astype(float)
