from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.checks import InputError
from flanders.data import PARTITIONS, Dirichlet, DirichletEqual, FlowerPartition, Iid, Shards

VARIANTS = [
    Iid(),
    Dirichlet(),
    Dirichlet(alpha=1e-6),
    Dirichlet(alpha=1e6),
    DirichletEqual(),
    DirichletEqual(alpha=1e-6),
    DirichletEqual(samples_per_client=1),
    Shards(),
    Shards(shards_per_client=1),
    FlowerPartition("IidPartitioner"),
]
needs_flower_datasets = pytest.mark.skipif(
    importlib.util.find_spec("flwr_datasets") is None, reason="Flower Datasets is not installed"
)
every_partition = pytest.mark.parametrize(
    "partition",
    [pytest.param(p, marks=[needs_flower_datasets] * isinstance(p, FlowerPartition), id=str(p)) for p in VARIANTS],
)


def split(partition, labels, num_clients, seed=0):
    return partition.split(np.asarray(labels), num_clients, np.random.default_rng(seed))


def test_every_registered_partition_is_tested():
    assert {type(partition) for partition in VARIANTS} == set(PARTITIONS.values())


@every_partition
@given(data=st.data())
def test_every_client_has_an_example_and_no_example_has_two_clients(partition, data):
    num_clients = data.draw(st.integers(1, 30))
    shards = getattr(partition, "shards_per_client", 1)
    labels = data.draw(st.lists(st.sampled_from([0, 1, 2, 7]), min_size=num_clients * shards, max_size=150))
    seed = data.draw(st.integers(0, 5))
    rows = split(partition, labels, num_clients, seed)
    assert len(rows) == num_clients
    assert all(r.size >= 1 and r.dtype == np.int64 for r in rows)
    given_away = np.concatenate(rows)
    assert np.unique(given_away).size == given_away.size
    assert given_away.min() >= 0
    assert given_away.max() < len(labels)
    if not isinstance(partition, DirichletEqual):
        assert given_away.size == len(labels)
    again = split(partition, labels, num_clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(rows, again, strict=True))


@every_partition
def test_another_seed_gives_another_split(partition):
    labels = np.arange(400) % 10
    assert not np.array_equal(
        np.concatenate(split(partition, labels, 10, 1)), np.concatenate(split(partition, labels, 10, 2))
    )


@every_partition
def test_a_clients_examples_come_in_random_order(partition):
    labels = np.repeat(np.arange(10), 100)
    for rows in split(partition, labels, 2):
        assert rows.size < 3 or np.any(np.diff(rows) < 0)


@every_partition
def test_a_clients_classes_do_not_come_one_after_the_other(partition):
    labels = np.random.default_rng(3).integers(0, 4, 4000)
    for rows in split(partition, labels, 20):
        own = labels[rows]
        if own.size < 50:
            continue
        shares = np.bincount(own, minlength=4) / own.size
        changes = np.mean(np.diff(own) != 0)
        assert changes > 0.7 * (1 - np.sum(shares**2)) - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("partition", [p for p in VARIANTS if not isinstance(p, FlowerPartition)], ids=str)
def test_ten_thousand_clients_take_less_than_two_seconds(partition):
    labels = np.random.default_rng(0).integers(0, 100, 60_000)
    start = time.process_time()
    assert len(split(partition, labels, 10_000)) == 10_000
    assert time.process_time() - start < 2


@every_partition
def test_more_clients_than_examples_are_refused(partition):
    with pytest.raises(InputError, match=r"num_clients|Lower"):
        split(partition, [0, 1, 2], 4)


@pytest.mark.parametrize("labels", [[0.5, 1.0], [[0, 1]], ["a", "b"]])
def test_labels_that_are_no_classes_are_refused(labels):
    with pytest.raises(InputError, match="whole numbers"):
        split(Iid(), labels, 1)


@pytest.mark.parametrize("num_clients", [0, -1, 2.0, True])
def test_a_number_of_clients_must_be_one(num_clients):
    with pytest.raises(InputError, match="num_clients"):
        split(Iid(), [0, 1, 2], num_clients)


def test_iid_clients_are_equal_in_size_and_alike_in_classes():
    labels = np.repeat(np.arange(10), 1000)
    rows = split(Iid(), labels, 10)
    assert [r.size for r in rows] == [1000] * 10
    assert all(np.all(np.abs(np.bincount(labels[r], minlength=10) - 100) < 50) for r in rows)


def top_share(labels, rows):
    return np.mean([np.bincount(labels[r]).max() / r.size for r in rows])


@pytest.mark.parametrize("kind", [Dirichlet, DirichletEqual])
def test_alpha_goes_from_one_class_a_client_to_all_alike(kind):
    labels = np.random.default_rng(3).permutation(np.arange(6000) % 10)
    shares = [top_share(labels, split(kind(alpha=alpha), labels, 20)) for alpha in (1e-4, 0.5, 10.0, 1e5)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[-1] < 0.16


def test_dirichlet_mixes_have_the_variance_of_a_concentration_of_alpha_in_all():
    labels = np.random.default_rng(3).permutation(np.arange(200_000) % 4)
    rows = split(Dirichlet(alpha=3.0), labels, 1000)
    q = np.array([np.bincount(labels[r], minlength=4) / r.size for r in rows])
    assert np.allclose(q.mean(axis=0), 0.25, atol=0.02)
    assert np.allclose(q.var(axis=0), 0.25 * 0.75 / (1 + 3.0), rtol=0.15)


def test_dirichlet_sizes_are_uneven_and_equal_ones_are_not():
    labels = np.arange(6000) % 10
    assert len({r.size for r in split(Dirichlet(), labels, 20)}) > 5
    assert {r.size for r in split(DirichletEqual(), labels, 20)} == {300}


def test_dirichlet_follows_the_shares_of_the_classes():
    labels = np.repeat([0, 1], [900, 100])
    rows = split(Dirichlet(alpha=1e6), labels, 10)
    assert all(abs((labels[r] == 1).sum() - 10) <= 1 for r in rows)


def test_dirichlet_gives_everyone_the_least_there_must_be():
    labels = np.arange(120) % 3
    sizes = [r.size for r in split(Dirichlet(alpha=0.01, min_samples=4), labels, 30)]
    assert sizes == [4] * 30
    sizes = [r.size for r in split(Dirichlet(alpha=0.01, min_samples=3), labels, 30)]
    assert min(sizes) == 3
    assert sum(sizes) == 120


def test_dirichlet_with_too_much_asked_of_it_says_what_it_can():
    with pytest.raises(InputError, match=r"`min_samples` to at most 3"):
        split(Dirichlet(min_samples=4), np.arange(10) % 2, 3)


def test_equal_clients_use_no_more_than_they_may():
    labels = np.arange(1000) % 10
    rows = split(DirichletEqual(samples_per_client=30), labels, 20)
    assert [r.size for r in rows] == [30] * 20
    with pytest.raises(InputError, match="at most 50"):
        split(DirichletEqual(samples_per_client=51), labels, 20)


def test_equal_clients_take_other_classes_when_theirs_run_out():
    labels = np.repeat([0, 1], [5, 95])
    rows = split(DirichletEqual(alpha=1e-6), labels, 10)
    assert [r.size for r in rows] == [10] * 10


def test_two_shards_mean_two_classes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    rows = split(Shards(), labels, 100)
    assert [r.size for r in rows] == [60] * 100
    assert max(np.unique(labels[r]).size for r in rows) == 2


def test_more_shards_than_examples_are_refused():
    with pytest.raises(InputError, match="at most 2"):
        split(Shards(shards_per_client=3), np.arange(8) % 2, 4)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("dirichlet", {"alpha": 0}),
        ("dirichlet", {"min_samples": 0}),
        ("dirichlet-equal", {"alpha": float("nan")}),
        ("dirichlet-equal", {"samples_per_client": 0}),
        ("shards", {"shards_per_client": 1.5}),
    ],
)
def test_parameters_out_of_range_are_refused(name, parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        PARTITIONS.make(name, **parameters)
