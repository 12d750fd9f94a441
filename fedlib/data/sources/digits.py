"""scikit-learn's digits, which need neither a mirror nor a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Found, Kind, register

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
KIND = Kind(1437, 360, (1, 8, 8), DIGITS, "unit", title="scikit-learn's digits", embedded="scikit-learn")


@register("digits", KIND)
def read_digits(name: str, kind: Kind, folder: Path) -> Found:
    """scikit-learn's digits, 8 x 8, grey levels 0 to 16 stretched to 0 to 255, with a fixed stratified split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x = np.round(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    train, test = map(np.sort, train_test_split(np.arange(len(y)), test_size=360, stratify=y, random_state=0))
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return Found(
        arrays,
        DIGITS,
        "scikit-learn's digits: 8x8 images, 1,437 for training and 360 for testing (stratified)",
    )
