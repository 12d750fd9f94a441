"""HiCS-FL, Figure 1: the last two layers of a network, with the values of a trained model for one image.

The paper draws a diagram. This study has the features z, the output layer's weight W and bias b, and the logits q for
the first image of the test set, from the model after `rounds` rounds of the experiment's first run. It also has the
gradient of the image's loss by b (equation 4), which is negative only at the image's own class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch.func import functional_call

from fedlib.data import datasets
from fedlib.runs.measuring import Halfway, follow
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit, units_of
from fedlib.samplers.base import Count
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Run, Scale
from fedlib.settings.sections import Study
from fedlib.training.models import build


class LastLayerKeys(Study):
    """rounds: number of rounds of the run."""

    rounds: Count


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    yield next(units_of(settings, experiments, scale, "rounds"))


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row: label, z (L,), W (K L, row by row), b (K,), q (K,), gradient (K,)."""
    run = Run(**unit["run"])
    for lockstep in follow(unit["run"], place, halfway, min(unit["rounds"], run.T), {}):
        live = lockstep.live[0]
    tensors = datasets.tensors(datasets.load(run.dataset, place.datasets), run.scaling)
    image, label = tensors.x_test[:1], int(tensors.y_test[0])
    net = build(run.model, tuple(image.shape[1:]), live.fed.K).eval()
    flat = live.models[0].cpu()
    with torch.inference_mode():
        q, z = functional_call(net, lockstep.executor.layout.views(flat), (image,))
    gradient = q[0].softmax(0) - torch.eye(live.fed.K)[label]
    return pd.DataFrame(
        {
            "label": [label],
            "z": [z[0].tolist()],
            "W": [flat[live.fed.output_weight].tolist()],
            "b": [flat[live.fed.output_bias].tolist()],
            "q": [q[0].tolist()],
            "gradient": [gradient.tolist()],
        }
    )
