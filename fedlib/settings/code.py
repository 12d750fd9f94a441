"""The version of the code that made a run, as part of its address: changed code never brings back old numbers.

A shipped sampler, algorithm or model has a revision. Whoever changes what it computes raises the revision
(`tests/test_pins.py` says when). Code that is not shipped is identified by a digest of its source.
"""

from __future__ import annotations

from typing import Any

from fedlib import algorithms, samplers
from fedlib.data import schemes
from fedlib.digests import HOUSE, digest_of_file

NUMERICS = 2  # part of every run's address: raise it when a change alters a number by more than rounding
MODELS = {  # their revisions; those of all else stand where it is registered
    "logistic": 0,
    "mlp": 0,
    "fedcor_mlp": 0,
    "cs_cnn": 0,
    "fedcor_cnn": 0,
    "hics_fmnist_cnn": 0,
    "hics_cifar10_cnn": 0,
    "hics_cifar_cnn": 0,
    "resnet18_head": 0,
}

Code = dict[str, int | str]


def _version_of_model(name: str) -> int | str:
    if name in MODELS:
        return MODELS[name]
    source = HOUSE / "training" / "models" / f"{name}.py"
    return digest_of_file(source) if source.exists() else 0


VERSIONS = {
    "sampler": samplers.version_of,
    "scheme": schemes.version_of,
    "algorithm": algorithms.version_of,
    "model": _version_of_model,
}


def code_of(settings: Any) -> Code:
    """The revisions and digests of all samplers, schemes, algorithms and models named in the settings.

    Revision 0 is left out, so runs made before there were revisions keep their addresses.
    """
    if isinstance(settings, list):
        settings = dict(enumerate(settings))
    if not isinstance(settings, dict):
        return {}
    versions: Code = {}
    for key, value in settings.items():
        if key in VERSIONS and isinstance(value, str):
            version = VERSIONS[key](value)
            versions |= {f"{key} {value}": version} if version else {}
        elif key != "labels":  # the labels of a study's unit do not affect any number
            versions |= code_of(value)
    return versions
