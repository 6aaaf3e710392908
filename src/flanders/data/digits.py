"""The dataset `digits`: handwritten digits that come with scikit-learn, so that no files are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.data.dataset import Dataset, Loader, normalise, stratified_split
from flanders.extras import needing

MEAN, STD = 0.3055, 0.3761
"""The mean and the standard deviation of the pixels of the training images. Pixels are from 0 to 1."""


@dataclass(frozen=True)
class Digits(Loader):
    """Digits: 1,438 training and 359 test images of handwritten digits, 8 x 8 pixels, which come with scikit-learn.

    The test set is a fifth of each class, and is the same in every run.

    References
    ----------
    Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI machine learning repository 1998.
    Licence of the data: CC BY 4.0.
    """

    normalise_test: bool = True

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Return the images that come with scikit-learn. `data_dir` is not used."""
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
