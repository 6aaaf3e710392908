"""The handwritten digits that come with scikit-learn: a dataset that needs no files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.data.dataset import Dataset, Loader, normalise, stratified_split
from flanders.extras import needing

MEAN, STD = 0.3055, 0.3761


@dataclass(frozen=True)
class Digits(Loader):
    """Digits: 1,438 training and 359 test images of handwritten digits, 8 x 8 pixels, which come with scikit-learn.

    A fifth of each class is the test set. It is always the same.

    References
    ----------
    Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI machine learning repository 1998.
    Licence of the data: CC BY 4.0.
    """

    normalise_test: bool = True

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Take the images out of scikit-learn; `data_dir` is not needed."""
        with needing("sim"):
            from sklearn.datasets import load_digits
        x, y = load_digits(return_X_y=True)
        images = np.asarray(x, dtype=np.float32).reshape(-1, 1, 8, 8) / np.float32(16)
        classes = np.asarray(y, dtype=np.int64)
        train, test = stratified_split(classes, 0.2, np.random.default_rng(0))
        x_train, x_test = images[train], images[test]
        normalise(x_train, [MEAN], [STD])
        if self.normalise_test:
            normalise(x_test, [MEAN], [STD])
        return Dataset("digits", x_train, classes[train], x_test, classes[test], num_classes=10)
