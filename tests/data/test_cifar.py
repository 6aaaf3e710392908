"""CIFAR-10 and CIFAR-100, on tiny files in their formats."""

from __future__ import annotations

import hashlib
import pickle
import struct
import sys
import types

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data import Cifar10, Cifar100

FORMS = ["binary", "python 2", "python 3"]


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    monkeypatch.delenv("FLANDERS_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (4, 3072), dtype=np.uint8), rng.integers(0, 10, 4)) for _ in range(6)]


def python2_pickle(key, images, labels):
    """What Python 2 wrote for {'data': array, key: labels}: protocol 2, strings without encoding."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    n, d = images.shape
    raw = images.tobytes()
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\0K\x01\x87R(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    shape = b"J" + struct.pack("<i", n) + b"J" + struct.pack("<i", d) + b"\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\0\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + dtype + b"\x89" + b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key.encode()) + numbers + b"u."


def write(folder, form, files, batches, key, label_bytes):
    folder.mkdir(parents=True, exist_ok=True)
    for file, (images, labels) in zip(files, batches, strict=True):
        if form == "binary":
            front = np.repeat(labels[:, None], label_bytes, axis=1).astype(np.uint8)
            front[:, :-1] = 77  # the coarse class, which must not be taken for the fine one
            content = np.concatenate([front, images], axis=1).tobytes()
        elif form == "python 2":
            content = python2_pickle(key, images, labels)
        else:
            content = pickle.dumps({"data": images, key: labels.tolist(), "extra": b"bytes"}, protocol=2)
        (folder / file).write_bytes(content)


def write_cifar10(root, form, batches, folder=None):
    files = Cifar10.binary if form == "binary" else Cifar10.python
    folder = folder or ("cifar-10-batches-bin" if form == "binary" else "cifar-10-batches-py")
    write(root / folder, form, files, batches, "labels", 1)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_cifar10_gives_the_same_images(tmp_path, batches, form):
    write_cifar10(tmp_path, form, batches)
    data = Cifar10(verify=False).load(tmp_path)
    pixels = np.concatenate([images for images, _ in batches[:5]]).reshape(20, 3, 32, 32) / 255
    mean, std = (np.array(c).reshape(3, 1, 1) for c in (Cifar10.mean, Cifar10.std))
    assert np.allclose(data.x_train, (pixels - mean) / std, atol=1e-5)
    assert data.y_train.tolist() == np.concatenate([labels for _, labels in batches[:5]]).tolist()
    assert data.y_test.tolist() == batches[5][1].tolist()
    assert (data.name, data.num_classes) == ("cifar10", 10)


@pytest.mark.parametrize("folder", [".", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_is_found_where_it_may_be(tmp_path, batches, folder):
    write_cifar10(tmp_path, "binary", batches, folder)
    assert len(Cifar10(verify=False).load(tmp_path).x_train) == 20


@pytest.mark.parametrize("form", FORMS)
def test_cifar100_has_the_fine_classes(tmp_path, batches, form):
    two = [(images, labels + 90) for images, labels in batches[:2]]
    files = Cifar100.binary if form == "binary" else Cifar100.python
    folder = "cifar-100-binary" if form == "binary" else "cifar-100-python"
    write(tmp_path / folder, form, files, two, "fine_labels", 2)
    data = Cifar100(verify=False).load(tmp_path)
    assert data.y_train.tolist() == two[0][1].tolist()
    assert data.y_test.tolist() == two[1][1].tolist()
    assert data.num_classes == 100


def test_a_part_of_cifar100_is_refused_unless_it_is_asked_for(tmp_path, batches):
    write(tmp_path / "cifar-100-binary", "binary", Cifar100.binary, batches[:2], "fine_labels", 2)
    with pytest.raises(InputError, match=r"train.bin is not the published file.*verify=False"):
        Cifar100().load(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_sums_are_checked(tmp_path, batches, monkeypatch, form):
    write_cifar10(tmp_path, form, batches)
    field = "binary" if form == "binary" else "python"
    with pytest.raises(InputError, match=r"data_batch_1.*MD5"):
        Cifar10().load(tmp_path)
    folder = next(tmp_path.iterdir())
    sums = {file: hashlib.md5((folder / file).read_bytes()).hexdigest() for file in getattr(Cifar10, field)}
    monkeypatch.setattr(Cifar10, field, sums)
    assert len(Cifar10().load(tmp_path).x_test) == 4


@pytest.mark.parametrize("content", [b"", b"12345"])
def test_records_of_another_length_are_refused(tmp_path, batches, content):
    write_cifar10(tmp_path, "binary", batches)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(content)
    with pytest.raises(InputError, match="3,073 bytes"):
        Cifar10(verify=False).load(tmp_path)


@pytest.mark.parametrize(
    "found",
    [
        {"data": np.zeros((4, 10), np.uint8), "labels": [0] * 4},
        {"data": np.zeros((4, 3072), np.uint8), "labels": [0] * 3},
        {"data": np.zeros((4, 3072), np.uint8), "labels": [10] * 4},
        {"data": np.zeros((4, 3072), np.uint8), "labels": ["a"] * 4},
        {"data": [1, 2], "labels": [0, 0]},
        {},
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, batches, found):
    write_cifar10(tmp_path, "python 3", batches)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(found, protocol=2))
    with pytest.raises(InputError, match="data_batch_3"):
        Cifar10(verify=False).load(tmp_path)


class FakeSplit:
    """As much of a Hugging Face dataset as is used."""

    def __init__(self, images, labels):
        self.columns = {"img": list(images), "fine_label": list(labels)}

    def __getitem__(self, column):
        return self.columns[column]

    def iter(self, batch_size):
        for start in range(0, len(self.columns["img"]), batch_size):
            yield {name: values[start : start + batch_size] for name, values in self.columns.items()}


def test_what_is_not_there_is_downloaded_with_flower_datasets(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
    asked = []

    class FederatedDataset:
        def __init__(self, *, dataset, partitioners, shuffle):
            asked.append((dataset, partitioners, shuffle))

        def load_split(self, split):
            part = images[:5] if split == "train" else images[5:]
            return FakeSplit(part, range(len(part)))

    monkeypatch.setitem(sys.modules, "flwr_datasets", types.SimpleNamespace(FederatedDataset=FederatedDataset))
    data = Cifar100(normalise_test=False).load()
    assert asked == [("uoft-cs/cifar100", {}, False)]
    assert np.allclose(data.x_test, images[5:].transpose(0, 3, 1, 2) / 255, atol=1e-6)
    assert data.y_train.tolist() == [0, 1, 2, 3, 4]


def test_a_download_that_fails_says_why_and_what_else_to_do(monkeypatch):
    def offline(**_):
        raise ConnectionError("no route to host")

    monkeypatch.setitem(sys.modules, "flwr_datasets", types.SimpleNamespace(FederatedDataset=offline))
    with pytest.raises(InputError, match=r"no route to host.*cifar-10-batches-bin.*FLANDERS_DATA"):
        Cifar10().load()
