"""Mini-ImageNet: a mirror's folders of images, resized as HiCS-FL's code does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Found, Kind, register
from fedlib.data.sources.reading import decode
from fedlib.errors import DataError


@register("mini_imagenet", Kind(50_000, 10_000, (3, 84, 84), 100, "imagenet", title="Mini-ImageNet"))
def read_mini_imagenet(name: str, kind: Kind, folder: Path) -> Found:
    """One folder of 600 images per class: 500 for training, 100 for testing, drawn with seed 42 (the papers name none).

    Each image is resized to a shorter side of 84 and cropped to its centre, as HiCS-FL's code does.
    """
    names = sorted(child.name for child in folder.iterdir() if child.is_dir())
    if len(names) != kind.n_classes:
        raise DataError(
            f"{name}/ holds {len(names)} class folders, expected {kind.n_classes}; see data/README.md."
        )
    n_train, n_test = kind.n_train // kind.n_classes, kind.n_test // kind.n_classes
    rng = np.random.default_rng(42)
    arrays = {}
    for part, n in (("train", n_train), ("test", n_test)):
        arrays[f"x_{part}"] = np.empty((kind.n_classes * n, *kind.shape), np.uint8)
        arrays[f"y_{part}"] = np.repeat(np.arange(kind.n_classes, dtype=np.int64), n)
    for label, class_name in enumerate(names):
        files = sorted(
            p for p in (folder / class_name).iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png")
        )
        if len(files) != n_train + n_test:
            raise DataError(
                f"{name}/{class_name} holds {len(files)} images, expected {n_train + n_test}; see data/README.md."
            )
        shuffled = rng.permutation(len(files))
        for part, chosen in (("train", shuffled[:n_train]), ("test", shuffled[n_train:])):
            for i, j in enumerate(np.sort(chosen)):
                image = decode(f"{name}/{class_name}/{files[j].name}", files[j].read_bytes(), kind.shape[1])
                arrays[f"x_{part}"][label * len(chosen) + i] = image.transpose(2, 0, 1)
    return Found(
        arrays,
        tuple(names),
        "Mini-ImageNet from the mirror's images (84x84, 500 + 100 a class), not verified",
    )
