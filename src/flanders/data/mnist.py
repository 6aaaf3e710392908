"""The datasets MNIST and Fashion-MNIST, read from their original files in the IDX format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flanders.checks import InputError
from flanders.data.dataset import Dataset, Loader, as_images, normalise
from flanders.data.sources import Labelled, Source, check_md5, download, find_files, read_bytes

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SPELLINGS = {
    file: tuple(name + end for name in (file, file.replace("-idx", ".idx")) for end in ("", ".gz"))
    for file in FILES
}
"""The names that each file may have: with "-idx" or ".idx", compressed or not."""


@dataclass(frozen=True)
class IdxLoader(Loader):
    """The base class of the loaders in this module. It reads four IDX files, compressed or not."""

    normalise_test: bool = True
    verify: bool = True
    """Whether to check the MD5 sums of the files."""
    source: ClassVar[Source]
    mean: ClassVar[float]
    """The number that is subtracted from the pixels, whose values are from 0 to 1."""
    std: ClassVar[float]
    """The number by which the pixels are then divided."""
    md5: ClassVar[tuple[str, ...]]
    """The MD5 sums of the four files after decompression, in the order of `FILES`."""

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Read the four files, or download them. The official division into training and test examples is kept."""
        paths = find_files(self.source, SPELLINGS, data_dir)
        if paths is None:
            train, test = download(self.source, data_dir)
        else:
            content = [self.read(paths[file], md5) for file, md5 in zip(FILES, self.md5, strict=True)]
            train, test = labelled(*content[:2]), labelled(*content[2:])
        x_train, x_test = as_images(train[0]), as_images(test[0])
        normalise(x_train, [self.mean], [self.std])
        if self.normalise_test:
            normalise(x_test, [self.mean], [self.std])
        return Dataset(
            self.source.name, x_train, train[1].astype(np.int64), x_test, test[1].astype(np.int64), num_classes=10
        )

    def read(self, path: Path, md5: str) -> NDArray[np.uint8]:
        """Return one file as an array. Its content is checked if `verify` is true."""
        content = read_bytes(path)
        if self.verify:
            check_md5(path, content, md5, KNOWN)
        return parse_idx(path, content)


def parse_idx(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Return the array in an IDX file.

    An IDX file begins with two zero bytes, a byte for the type of the values (8 for bytes), and a byte for the
    number of axes. Then come the length of each axis, four bytes each, and the values.
    """
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist() if len(content) >= start else []
    if content[:3] != b"\0\0\x08" or not shape or len(content) != start + math.prod(shape):
        raise InputError(
            f"{path} is not an IDX file of bytes, or has a wrong length ({len(content):,} bytes). Get it again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def labelled(images: NDArray[np.uint8], labels: NDArray[np.generic]) -> Labelled:
    """Return the images and their classes. The images get an axis for their one channel."""
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise InputError(
            f"The image and label files do not belong together: {images.shape} and {labels.shape}. Get them again."
        )
    return [images[:, None]], labels


@dataclass(frozen=True)
class Mnist(IdxLoader):
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 28 x 28 pixels.

    The FLANDERS paper says that all images were shuffled and split 80/20. The paper's code uses the official
    training and test sets instead, and so does this loader. The loader reads the four original IDX files,
    compressed or not. In the data directory they can be in `mnist/`, in `MNIST/raw/` (as torchvision stores them),
    or in the directory itself. Their MD5 sums are checked unless `verify=False`.

    References
    ----------
    LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the IEEE 1998.
    Licence of the data: CC BY-SA 3.0.
    """

    source: ClassVar = Source(
        "mnist",
        ("mnist", "MNIST/raw", "."),
        "the four original files (train-images-idx3-ubyte.gz, ...) in the folder mnist/ of a directory",
        "ylecun/mnist",
        ("image", "label"),
    )
    mean: ClassVar = 0.1307
    std: ClassVar = 0.3081
    md5: ClassVar = (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    )


@dataclass(frozen=True)
class FashionMnist(IdxLoader):
    """Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28 x 28 pixels.

    The loader reads the four original IDX files, compressed or not. In the data directory they can be in
    `fashion-mnist/`, in `FashionMNIST/raw/` (as torchvision stores them), or in the directory itself. The files of
    the Debian and Ubuntu package `dataset-fashion-mnist` are found, too. The MD5 sums are checked unless
    `verify=False`.

    References
    ----------
    Xiao et al., "Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", 2017.
    Licence of the data: MIT.
    """

    source: ClassVar = Source(
        "fashion-mnist",
        ("fashion-mnist", "FashionMNIST/raw", ".", "/usr/share/datasets/fashion-mnist"),
        "the four original files (train-images-idx3-ubyte.gz, ...) in the folder fashion-mnist/ of a directory",
        "zalando-datasets/fashion_mnist",
        ("image", "label"),
    )
    mean: ClassVar = 0.2860
    std: ClassVar = 0.3530
    md5: ClassVar = (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    )


@dataclass(frozen=True)
class MnistReference(Mnist):
    """MNIST as the code published with the FLANDERS paper prepares it, to repeat the paper's numbers.

    The pixels of the training images are scaled to values from -1 (black) to 1 (white). The published code does not
    scale the server's test images: their pixels are from 0 to 1. So the black background of a test image has the
    value 0, which means grey in a training image. Pass `normalise_test=False` to leave the test images unscaled.
    """

    mean: ClassVar = 0.5
    std: ClassVar = 0.5


@dataclass(frozen=True)
class FashionMnistReference(FashionMnist):
    """Fashion-MNIST as the code published with the FLANDERS paper prepares it; see `MnistReference`."""

    mean: ClassVar = 0.5
    std: ClassVar = 0.5


KNOWN = {
    md5: f"{file} of {loader.source.name}"
    for loader in (Mnist, FashionMnist)
    for file, md5 in zip(FILES, loader.md5, strict=True)
}
"""The name of each file, by the file's MD5 sum. If a file has the content of another file, the error names the
other file."""
