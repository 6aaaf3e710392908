"""MNIST and Fashion-MNIST, on tiny files in their format."""

from __future__ import annotations

import gzip
import hashlib
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data import FashionMnist, FashionMnistReference, Mnist, MnistReference, sources
from flanders.data.mnist import FILES


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def contents():
    rng = np.random.default_rng(0)
    arrays = []
    for n in (12, 5):
        arrays += [rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8)]
    return arrays


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    """No data directory of the developer's, and no downloads."""
    monkeypatch.delenv("FLANDERS_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)


def write(folder, contents, pack=lambda content: content, end=""):
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(FILES, contents, strict=True):
        (folder / (file + end)).write_bytes(pack(idx(array)))


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize(("pack", "end"), [(bytes, ""), (gzip.compress, ".gz")])
def test_the_files_are_read_where_they_may_be(tmp_path, contents, folder, pack, end):
    write(tmp_path / folder, contents, pack, end)
    data = Mnist(verify=False).load(tmp_path)
    assert data.x_train.shape == (12, 1, 28, 28)
    assert np.allclose(data.x_train[:, 0], (contents[0] / 255 - 0.1307) / 0.3081, atol=1e-5)
    assert np.allclose(data.x_test[:, 0], (contents[2] / 255 - 0.1307) / 0.3081, atol=1e-5)
    assert data.y_train.tolist() == contents[1].tolist()
    assert data.y_test.tolist() == contents[3].tolist()


def test_each_dataset_has_its_own_folder_and_constants(tmp_path, contents):
    write(tmp_path / "mnist", contents)
    write(tmp_path / "fashion-mnist", [255 - contents[0], *contents[1:]])
    data = FashionMnist(verify=False).load(tmp_path)
    assert np.allclose(data.x_train[:, 0], (1 - contents[0] / 255 - 0.2860) / 0.3530, atol=1e-5)
    assert (data.name, data.num_classes) == ("fashion-mnist", 10)


def test_the_environment_names_the_directory_unless_the_caller_does(tmp_path, contents, monkeypatch):
    write(tmp_path / "a" / "mnist", contents)
    write(tmp_path / "b" / "mnist", [255 - contents[0], *contents[1:]])
    monkeypatch.setenv("FLANDERS_DATA", str(tmp_path / "a"))
    from_environment, given = Mnist(verify=False).load(), Mnist(verify=False).load(str(tmp_path / "b"))
    assert not np.array_equal(from_environment.x_train, given.x_train)


def test_test_images_may_stay_as_they_are(tmp_path, contents):
    write(tmp_path, contents)
    data = Mnist(verify=False, normalise_test=False).load(tmp_path)
    assert np.allclose(data.x_test[:, 0], contents[2] / 255, atol=1e-6)
    assert np.allclose(data.x_train[:, 0], (contents[0] / 255 - 0.1307) / 0.3081, atol=1e-5)


def test_what_is_checked_is_the_content_however_it_was_compressed(tmp_path, contents, monkeypatch):
    sums = tuple(hashlib.md5(idx(array)).hexdigest() for array in contents)
    monkeypatch.setattr(Mnist, "md5", sums)
    for level in (1, 9):
        write(tmp_path, contents, lambda content, level=level: gzip.compress(content, level), ".gz")
        assert len(Mnist().load(tmp_path).x_train) == 12


def test_another_content_is_refused_with_file_and_sums(tmp_path, contents):
    write(tmp_path, contents)
    with pytest.raises(InputError) as caught:
        Mnist().load(tmp_path)
    message = str(caught.value)
    for part in (FILES[0], hashlib.md5(idx(contents[0])).hexdigest(), Mnist.md5[0], "verify=False"):
        assert part in message


def test_files_of_the_other_dataset_are_recognised(tmp_path, contents, monkeypatch):
    monkeypatch.setitem(
        sys.modules["flanders.data.mnist"].KNOWN, hashlib.md5(idx(contents[0])).hexdigest(), "that of mnist"
    )
    write(tmp_path, contents)
    with pytest.raises(InputError, match="It is that of mnist"):
        FashionMnist().load(tmp_path)


def test_a_missing_dataset_is_answered_with_every_way_to_get_it(tmp_path):
    with pytest.raises(InputError) as caught:
        Mnist().load(tmp_path)
    for part in (
        "mnist/",
        "data_dir",
        "--data-dir",
        "FLANDERS_DATA",
        "pip install",
        "flanders-fl[download]",
        "digits",
    ):
        assert part in str(caught.value)


def test_missing_files_are_named(tmp_path, contents):
    write(tmp_path / "mnist", contents)
    (tmp_path / "mnist" / FILES[2]).unlink()
    with pytest.raises(InputError, match=FILES[2]):
        Mnist(verify=False).load(tmp_path)


def test_a_directory_that_does_not_exist_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="does not exist"):
        Mnist().load(tmp_path / "nowhere")
    monkeypatch.setenv("FLANDERS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="FLANDERS_DATA"):
        Mnist().load()


@pytest.mark.parametrize("broken", [b"", b"\0\0", b"\0\0\x08\x03\0\0", b"not an idx file at all", b"\0\0\x08\0"])
def test_a_broken_file_is_an_error_that_names_it(tmp_path, contents, broken):
    write(tmp_path, contents)
    (tmp_path / FILES[0]).write_bytes(broken)
    with pytest.raises(InputError, match=FILES[0]):
        Mnist(verify=False).load(tmp_path)


def test_a_file_cut_short_is_an_error(tmp_path, contents):
    write(tmp_path, contents, gzip.compress, ".gz")
    path = tmp_path / f"{FILES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError, match=FILES[0]):
        Mnist(verify=False).load(tmp_path)


def test_a_small_file_that_unpacks_without_end_is_refused_in_bounded_memory(tmp_path, contents, monkeypatch):
    write(tmp_path, contents, gzip.compress, ".gz")
    monkeypatch.setattr(sources, "LARGEST_FILE", 2**20)
    (tmp_path / f"{FILES[0]}.gz").write_bytes(gzip.compress(bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"holds more than 1,048,576 bytes"):
            Mnist(verify=False).load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_images_without_their_labels_are_an_error(tmp_path, contents):
    write(tmp_path, [contents[0], contents[3], *contents[2:]])
    with pytest.raises(InputError, match="belong together"):
        Mnist(verify=False).load(tmp_path)


@pytest.mark.parametrize(
    ("loader", "folder"), [(MnistReference, "mnist"), (FashionMnistReference, "fashion-mnist")]
)
def test_the_papers_code_scales_from_minus_one_to_one_and_may_leave_the_test_images_alone(
    tmp_path, contents, loader, folder
):
    write(tmp_path / folder, contents)
    data = loader(verify=False, normalise_test=False).load(tmp_path)
    assert np.allclose(data.x_train[:, 0], contents[0] / 127.5 - 1, atol=1e-5)
    assert np.allclose(data.x_test[:, 0], contents[2] / 255, atol=1e-6)
    assert np.allclose(loader(verify=False).load(tmp_path).x_test[:, 0], contents[2] / 127.5 - 1, atol=1e-5)
