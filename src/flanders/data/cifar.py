"""The datasets CIFAR-10 and CIFAR-100, read from their original files.

These files come in two versions, binary and python. The loaders read both versions. The files of the python version
are pickle files, which can contain code. `flanders.data.unpickling` reads them without running code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flanders.checks import InputError
from flanders.data.dataset import Dataset, Loader, as_images, normalise
from flanders.data.sources import Labelled, Source, check_md5, download, find_files, read_bytes
from flanders.data.unpickling import unpickle

PIXELS = 3 * 32 * 32
"""The number of bytes of an image: one byte for each of 3 colours and each of 32 x 32 pixels."""


@dataclass(frozen=True)
class CifarLoader(Loader):
    """The base class of `Cifar10` and `Cifar100`. It reads the binary or the python version of the files."""

    normalise_test: bool = True
    verify: bool = True
    """Whether to check the MD5 sums of the files."""
    source: ClassVar[Source]
    mean: ClassVar[tuple[float, ...]]
    """The mean of each colour over the training images, whose pixels are from 0 to 1."""
    std: ClassVar[tuple[float, ...]]
    """The standard deviation of each colour over the training images."""
    binary: ClassVar[Mapping[str, str]]
    """The MD5 sum of each file of the binary version. The test file comes last."""
    python: ClassVar[Mapping[str, str]]
    """The MD5 sum of each file of the python version. The test file comes last."""
    label_bytes: ClassVar[int]
    """In a file of the binary version, this many bytes come before the pixels of each image. The last of these
    bytes is the class."""
    label_key: ClassVar[str]
    """The key of the classes in a file of the python version."""
    num_classes: ClassVar[int]

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Read the files, or download them. The official division into training and test examples is kept."""
        train, test = self.read_all(data_dir)
        x_train, x_test = as_images(train[0]), as_images(test[0])
        normalise(x_train, self.mean, self.std)
        if self.normalise_test:
            normalise(x_test, self.mean, self.std)
        y_train, y_test = train[1].astype(np.int64), test[1].astype(np.int64)
        return Dataset(self.source.name, x_train, y_train, x_test, y_test, self.num_classes)

    def read_all(self, data_dir: Path | str | None) -> tuple[Labelled, Labelled]:
        """Return the training set and the test set.

        If there are files of the binary version, they are read. Otherwise the files of the python version are read.
        If there are none of these either, the dataset is downloaded.
        """
        binary = find_files(self.source, {file: (file,) for file in self.binary}, data_dir)
        if binary is not None:
            parts = [self.read_binary(binary[file], expected) for file, expected in self.binary.items()]
        else:
            python = find_files(self.source, {file: (file,) for file in self.python}, data_dir)
            if python is None:
                return download(self.source, data_dir)
            parts = [self.read_python(python[file], expected) for file, expected in self.python.items()]
        images, labels = zip(*parts, strict=True)
        return (list(images[:-1]), np.concatenate(labels[:-1])), ([images[-1]], labels[-1])

    def read_binary(self, path: Path, expected: str) -> tuple[NDArray[np.uint8], NDArray[np.generic]]:
        """Return the images and classes of one file of the binary version."""
        content = read_bytes(path)
        width = self.label_bytes + PIXELS
        if self.verify:
            check_md5(path, content, expected)
        if not content or len(content) % width:
            raise InputError(
                f"{path} must consist of records of {width:,} bytes, but it has {len(content):,} bytes. "
                "Get the file again."
            )
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
        return records[:, self.label_bytes :].reshape(-1, 3, 32, 32), records[:, self.label_bytes - 1]

    def read_python(self, path: Path, expected: str) -> tuple[NDArray[np.uint8], NDArray[np.generic]]:
        """Return the images and classes of one file of the python version."""
        content = read_bytes(path)
        if self.verify:
            check_md5(path, content, expected)
        batch = unpickle(path, content)
        images, labels = batch.get("data"), batch.get(self.label_key)
        if (
            not isinstance(images, np.ndarray)
            or images.shape[1:] != (PIXELS,)
            or not isinstance(labels, list)
            or len(labels) != len(images)
            or not all(isinstance(label, int) and 0 <= label < self.num_classes for label in labels)
        ):
            raise InputError(
                f"{path} must hold an array 'data' of shape (n, {PIXELS}), and a list {self.label_key!r} of n "
                f"classes from 0 to {self.num_classes - 1}. Get the file again."
            )
        return images.reshape(-1, 3, 32, 32), np.array(labels)


def places(name: str, *unpacked: str) -> tuple[str, ...]:
    """Return the folders to look in, relative to the data directory.

    There are two parent folders: the data directory itself, and its folder `name`. The folders to look in are the
    parents and the folders `unpacked` in each parent.
    """
    return tuple(f"{parent}{folder}" for parent in ("", f"{name}/") for folder in (*unpacked, ""))


@dataclass(frozen=True)
class Cifar10(CifarLoader):
    """CIFAR-10: 50,000 training and 10,000 test photographs of 10 kinds of things, 32 x 32 pixels in colour.

    The FLANDERS paper says that all images were shuffled and split 80/20. The paper's code uses the official
    training and test sets instead, and so does this loader. The loader reads the unpacked folder of the binary
    version (`cifar-10-batches-bin/`) or of the python version (`cifar-10-batches-py/`). The folder must be in the
    data directory, or in the folder `cifar10/` of the data directory. The MD5 sums are checked unless
    `verify=False`.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images", 2009 (please cite when using the data).
    """

    source: ClassVar = Source(
        "cifar10",
        places("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"),
        "the unpacked folder cifar-10-batches-bin/ or cifar-10-batches-py/ in a directory",
        "uoft-cs/cifar10",
        ("img", "label"),
    )
    mean: ClassVar = (0.4914, 0.4822, 0.4465)
    std: ClassVar = (0.2470, 0.2435, 0.2616)
    binary: ClassVar = {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    }
    python: ClassVar = {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    }
    label_bytes: ClassVar = 1
    label_key: ClassVar = "labels"
    num_classes: ClassVar = 10


@dataclass(frozen=True)
class Cifar100(CifarLoader):
    """CIFAR-100: 50,000 training and 10,000 test photographs of 100 kinds of things, 32 x 32 pixels in colour.

    The classes are the 100 fine labels, not the 20 coarse ones. The files are read as those of `Cifar10` are, from
    the folders `cifar-100-binary/`, `cifar-100-python/` and `cifar100/`. The authors publish MD5 sums for the
    python version only. The sums for the binary version were computed for this package, from the images and
    classes of the python version.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images", 2009 (please cite when using the data).
    """

    source: ClassVar = Source(
        "cifar100",
        places("cifar100", "cifar-100-binary", "cifar-100-python"),
        "the unpacked folder cifar-100-binary/ or cifar-100-python/ in a directory",
        "uoft-cs/cifar100",
        ("img", "fine_label"),
    )
    mean: ClassVar = (0.5071, 0.4865, 0.4409)
    std: ClassVar = (0.2673, 0.2564, 0.2762)
    binary: ClassVar = {
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    }
    python: ClassVar = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
    label_bytes: ClassVar = 2
    label_key: ClassVar = "fine_labels"
    num_classes: ClassVar = 100
