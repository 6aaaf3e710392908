"""The dataset `synthetic`, which is drawn at random and can have any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_number
from flanders.data.dataset import Dataset, Images, Loader


@dataclass(frozen=True)
class Synthetic(Loader):
    """Synthetic: one Gaussian cloud of points per class, drawn from `seed`.

    Each cloud has variance 1 in every feature. The distance between the centres of two clouds is about
    `separation`. The classes have equal sizes. At the end the values are normalised: the mean of all training
    values is subtracted, and the result is divided by their standard deviation. For many clients, raise
    `num_samples`. For 10,000 clients with 20 examples of 32 features each, the examples take 26 MB.

    Examples
    --------
    >>> Synthetic(num_classes=3, num_features=5, num_samples=60).load().x_train.shape
    (60, 5)
    """

    num_classes: int = 10
    num_features: int = 32
    num_samples: int = 20_000
    num_test: int = 2_000
    separation: float = 5.0
    seed: int = 0
    normalise_test: bool = True

    def __post_init__(self) -> None:
        check_number("Synthetic", "num_classes", self.num_classes, 2, whole=True)
        check_number("Synthetic", "num_features", self.num_features, 1, whole=True)
        check_number("Synthetic", "num_samples", self.num_samples, 1, whole=True)
        check_number("Synthetic", "num_test", self.num_test, 1, whole=True)
        check_number("Synthetic", "separation", self.separation, 0, 1e6)
        check_number("Synthetic", "seed", self.seed, 0, whole=True)

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Draw the examples. `data_dir` is not used."""
        rng = np.random.default_rng(self.seed)
        centres = rng.standard_normal((self.num_classes, self.num_features), dtype=np.float32)
        centres *= np.float32(self.separation / np.sqrt(2 * self.num_features))
        x_train, y_train = self.draw(self.num_samples, centres, rng)
        x_test, y_test = self.draw(self.num_test, centres, rng)
        mean, std = x_train.mean(dtype=np.float64), max(float(x_train.std(dtype=np.float64)), 1e-6)
        for x in (x_train, x_test) if self.normalise_test else (x_train,):
            x -= np.float32(mean)
            x /= np.float32(std)
        return Dataset("synthetic", x_train, y_train, x_test, y_test, self.num_classes)

    def draw(self, count: int, centres: Images, rng: np.random.Generator) -> tuple[Images, IntVector]:
        """Return `count` examples and their classes, in random order. Class sizes differ by at most one."""
        y = rng.permutation(np.arange(count, dtype=np.int64) % self.num_classes)
        x = rng.standard_normal((count, self.num_features), dtype=np.float32)
        x += centres[y]
        return x, y
