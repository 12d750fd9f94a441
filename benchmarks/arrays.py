"""The data of a workload as plain files, already split into clients, for candidates without `fedlib`.

`python -m benchmarks.arrays W2 FOLDER` writes them for a candidate that you run by hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.protocol import WORKLOADS, Workload
from fedlib.data import datasets, partition
from fedlib.data.schemes import IID


def write(workload: Workload, folder: Path) -> None:
    """Write x_train, y_train (by client), x_test, y_test (uint8 pixels) and their scaling to `folder`."""
    datasets.prepare(workload.dataset)
    dataset = datasets.load(workload.dataset)
    clients = np.stack(split(workload, dataset).train)
    folder.mkdir(parents=True, exist_ok=True)
    mean, std = datasets.SCALINGS[workload.scaling]
    arrays = {
        "x_train": dataset.x_train[clients],
        "y_train": dataset.y_train[clients],
        "x_test": dataset.x_test,
        "y_test": dataset.y_test,
        "scaling": np.array([mean, std], np.float32).reshape(2, -1, 1, 1),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def split(workload: Workload, dataset: datasets.Dataset) -> partition.Partition:
    """N clients with n random samples each."""
    return partition.make(IID(scheme="iid"), dataset, workload.N, seed=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    write(WORKLOADS[given.workload], given.folder)
