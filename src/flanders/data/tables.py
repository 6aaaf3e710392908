"""The dataset `breast-cancer`: a table of measurements that comes with scikit-learn, so no files are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.data.dataset import Dataset, Loader, stratified_split
from flanders.extras import needing


@dataclass(frozen=True)
class BreastCancer(Loader):
    """Breast cancer: 456 training and 113 test rows of 30 measurements. The classes are malignant and benign cells.

    The table comes with scikit-learn. Each column is scaled to mean 0 and standard deviation 1 over the training
    rows. The test rows are scaled with the same numbers. The test set is a fifth of each class, and is the same in
    every run.

    Examples
    --------
    >>> data = BreastCancer().load()
    >>> data.x_train.shape, data.x_test.shape, data.num_classes
    ((456, 30), (113, 30), 2)

    References
    ----------
    Wolberg et al., "Breast cancer Wisconsin (diagnostic)", UCI machine learning repository 1995. Licence of the
    data: CC BY 4.0.
    """

    normalise_test: bool = True

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Return the table that comes with scikit-learn. `data_dir` is not used."""
        with needing("sim"):
            from sklearn.datasets import load_breast_cancer
        x, y = load_breast_cancer(return_X_y=True)
        rows, classes = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)
        train, test = stratified_split(classes, 0.2, np.random.default_rng(0))
        mean, std = rows[train].mean(axis=0), rows[train].std(axis=0)
        x_train, x_test = (rows[train] - mean) / std, rows[test]
        if self.normalise_test:
            x_test = (x_test - mean) / std
        return Dataset(
            "breast-cancer",
            x_train.astype(np.float32),
            classes[train],
            x_test.astype(np.float32),
            classes[test],
            num_classes=2,
        )
