"""The target `datasets`: hostile files of datasets."""

from __future__ import annotations

import contextlib
import gzip
import io
import pickle
import shutil
from pathlib import Path

import numpy as np

from flanders.checks import InputError
from flanders.data import DATASETS
from hardening.choices import Choices, damaged
from hardening.targets.target import Target

BOMB = 600 * 2**20
"""How many bytes a small compressed file unpacks to."""
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


class Datasets(Target):
    """Files in the formats of MNIST and CIFAR, one of which is hostile."""

    name = "datasets"

    def prepare(self, folder: Path) -> None:
        """Make small datasets, which the cases damage."""
        super().prepare(folder)
        rng = np.random.default_rng(0)
        images, labels = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8), (np.arange(20) % 10).astype(np.uint8)
        content = [idx(images), idx(labels), idx(images), idx(labels)]
        batch = {b"data": rng.integers(0, 256, (5, 3072), dtype=np.uint8), b"labels": [0, 1, 2, 3, 4]}
        pickled, binary = pickle.dumps(batch, 2), bytes(rng.integers(0, 10, 5 * 3073, dtype=np.uint8))
        names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
        self.sets = {
            ("mnist", "mnist"): dict(zip(IDX, content, strict=True)),
            ("mnist", "mnist "): {
                f"{name}.gz": gzip.compress(data) for name, data in zip(IDX, content, strict=True)
            },
            ("cifar10", "cifar-10-batches-py"): dict.fromkeys(names, pickled),
            ("cifar10", "cifar-10-batches-bin"): {f"{name}.bin": binary for name in names},
        }

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Load a dataset with one hostile file."""
        dataset, place = choices.pick(list(self.sets))
        files = dict(self.sets[dataset, place])
        name = choices.pick(list(files))
        files[name] = hostile_file(choices, name, files[name]) if replay is None else replay
        folder = self.folder / "data"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / place.strip()).mkdir(parents=True)
        for each, data in files.items():
            (folder / place.strip() / each).write_bytes(data)
        with contextlib.suppress(InputError):
            DATASETS.make(dataset, verify=False).load(folder)
        return 1


def idx(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Return an array in IDX, the file format of MNIST."""
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes() + values.tobytes()


def hostile_file(choices: Choices, name: str, data: bytes) -> bytes:
    """Return a hostile file in place of a good one."""
    if name.endswith(".gz"):
        inner = gzip.decompress(data)
        kind = choices.below(4)
        if kind == 0:
            return damaged(data, choices)
        if kind == 1 and choices.chance(2):
            return gzip.compress(inner[:16] + bytes(BOMB), 1)
        return gzip.compress(damaged_idx(choices, inner))
    if name.endswith(("ubyte", ".bin")):
        return damaged_idx(choices, data)
    return hostile_pickle(choices, data)


def damaged_idx(choices: Choices, data: bytes) -> bytes:
    """Return a damaged IDX file, e.g. with a wrong header or length."""
    out = bytearray(data)
    kind = choices.below(4)
    if kind == 0:
        out[3] = choices.pick((0, 1, 2, 4, 255))
    elif kind == 1:
        out[4:8] = choices.pick((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x01", b"\x7f\xff\xff\xff"))
    elif kind == 2:
        return bytes(out[: choices.below(40)])
    return damaged(bytes(out), choices)


def hostile_pickle(choices: Choices, data: bytes) -> bytes:
    """Return a pickle that is damaged, dangerous, or has wrong content."""
    kind = choices.below(5)
    if kind == 0:
        return damaged(data, choices)
    if kind == 1:
        return choices.pick(
            (
                b"cos\nsystem\n(S'true'\ntR.",
                b"cbuiltins\neval\n(S'1'\ntR.",
                b"\x80\x04" + b"(" * 10_000 + b".",
                b"]" + b"]a" * 5000 + b".",
                b"cnumpy\nndarray\n.",
                b"\x80\x02}q\x00(X\x04\x00\x00\x00dataq\x01cnumpy\ndtype\nq\x02u.",
            )
        )
    batch: dict[bytes, object] = {
        b"data": np.zeros(choices.pick(((5, 3072), (0, 3072), (5, 1), (5,))), np.uint8),
        b"labels": [0] * 5,
    }
    batch[choices.pick((b"data", b"labels"))] = choices.value()
    file = io.BytesIO()
    try:
        pickle.Pickler(file, 2).dump(batch)
    except RecursionError:
        return data
    return file.getvalue()
