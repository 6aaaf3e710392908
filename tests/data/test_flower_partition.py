"""The partitioners of Flower Datasets: the real ones where they are installed, and small ones in their place."""

from __future__ import annotations

import sys
import tomllib
import types
from abc import ABC, abstractmethod

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data import FlowerPartition
from flanders.experiments import parse_spec

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 300))


def split(partitioner, options="", labels=LABELS, num_clients=10, seed=0):
    return FlowerPartition(partitioner, options).split(labels, num_clients, np.random.default_rng(seed))


def classes(rows):
    return [np.unique(LABELS[r]).size for r in rows]


@pytest.fixture
def real():
    return pytest.importorskip("flwr_datasets", reason="Flower Datasets is not installed")


@pytest.mark.usefixtures("real")
def test_the_pathological_partitioner_gives_two_classes_where_two_are_asked_for():
    rows = split(
        "PathologicalPartitioner", "num_classes_per_partition = 2, class_assignment_mode = 'deterministic'"
    )
    assert classes(rows) == [2] * 10
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(3000))


@pytest.mark.usefixtures("real")
def test_the_dirichlet_partitioner_is_the_more_even_the_larger_alpha():
    def top_share(rows):
        return np.mean([np.bincount(LABELS[r]).max() / r.size for r in rows])

    shares = [top_share(split("DirichletPartitioner", f"alpha = {alpha}")) for alpha in (0.3, 3, 1000.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.3
    assert shares[-1] < 0.15


@pytest.mark.usefixtures("real")
@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")  # between datasets and pyarrow
def test_the_shard_partitioner_gives_equal_parts_of_few_classes():
    rows = split("ShardPartitioner", "num_shards_per_partition = 2")
    assert [r.size for r in rows] == [300] * 10
    assert max(classes(rows)) <= 4


@pytest.mark.usefixtures("real")
def test_sizes_grow_as_the_partitioner_says():
    assert [r.size for r in split("LinearPartitioner", num_clients=3)] == [500, 1000, 1500]
    sizes = [r.size for r in split("SizePartitioner", "partition_sizes = [10, 20, 2970]", num_clients=3)]
    assert sizes == [10, 20, 2970]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("partitioner", "options"),
    [
        ("PathologicalPartitioner", "num_classes_per_partition = 5, class_assignment_mode = 'first-deterministic'"),
        ("DirichletPartitioner", "alpha = 1.0"),
        ("ContinuousPartitioner", "strictness = 0.5"),
        ("SquarePartitioner", ""),
    ],
)
def test_the_seed_and_nothing_else_decides(partitioner, options):
    np.random.seed(1)  # noqa: NPY002 (NumPy's global state must not matter)
    first = split(partitioner, options, seed=3)
    np.random.seed(2)  # noqa: NPY002
    again, other = (split(partitioner, options, seed=seed) for seed in (3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(np.concatenate(first)[:1000], np.concatenate(other)[:1000])


@pytest.mark.usefixtures("real")
def test_what_the_partitioner_itself_refuses_is_passed_on():
    with pytest.raises(InputError, match=r"3000 examples of 10 classes among 10 clients \(ValueError: .*=11"):
        split("PathologicalPartitioner", "num_classes_per_partition = 11")


@pytest.mark.usefixtures("real")
def test_every_client_must_have_an_example_from_flower_too():
    with pytest.raises(InputError, match=r"of 10 clients without examples"):
        split("DirichletPartitioner", "alpha = 0.001, min_partition_size = 0")


@pytest.mark.usefixtures("real")
def test_every_partitioner_that_does_not_fit_is_one_of_flowers():
    from flwr_datasets import partitioner

    from flanders.data.flower_partition import UNFIT

    assert all(hasattr(partitioner, name) for name in UNFIT)


class Table:
    """As much of `datasets.Dataset` as a partitioner needs."""

    def __init__(self, columns):
        self.columns = columns

    @classmethod
    def from_dict(cls, columns):
        return cls({name: np.asarray(values) for name, values in columns.items()})

    def __getitem__(self, name):
        return self.columns[name]

    def select(self, rows):
        return Table({name: values[rows] for name, values in self.columns.items()})


class Partitioner(ABC):
    dataset: Table

    @property
    @abstractmethod
    def num_partitions(self): ...

    @abstractmethod
    def load_partition(self, partition_id): ...


class GivenPartitioner(Partitioner):
    """Gives each partition the rows it is told to, and remembers what else it was told."""

    asked: list

    def __init__(self, num_partitions, partition_by, rows, limit=None, seed=42):
        self.asked.append((num_partitions, partition_by, limit, seed))
        self.rows = rows

    @property
    def num_partitions(self):
        return len(self.rows)

    def load_partition(self, partition_id):
        return self.dataset.select(np.array(self.rows[partition_id], dtype=np.int64))


class BarePartitioner(GivenPartitioner):
    """Deals the rows out in turn; needs nothing but the number of partitions."""

    def __init__(self, num_partitions):
        self.count = num_partitions

    @property
    def rows(self):
        return [np.arange(i, self.dataset["row"].size, self.count) for i in range(self.count)]


@pytest.fixture
def fake(monkeypatch):
    """A Flower Datasets with two partitioners; returns what the first was asked for."""
    GivenPartitioner.asked = []
    kinds = {kind.__name__: kind for kind in (Partitioner, GivenPartitioner, BarePartitioner)}
    package = types.SimpleNamespace(partitioner=types.SimpleNamespace(Table=Table, **kinds))
    monkeypatch.setitem(sys.modules, "flwr_datasets", package)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=Table))
    return GivenPartitioner.asked


def test_rows_come_back_as_numbers_of_the_callers_examples(fake):
    labels = np.array([7, 7, 3, 3, 3, 9])
    rows = split("BarePartitioner", labels=labels, num_clients=2)
    assert sorted(np.concatenate(rows)) == list(range(6))
    assert [r.size for r in rows] == [3, 3]
    assert all(r.dtype == np.int64 for r in rows)


def test_what_the_partitioner_leaves_out_goes_to_nobody(fake):
    rows = split("GivenPartitioner", "rows = [[0], [5, 2]]", labels=np.arange(6), num_clients=2)
    assert [r.size for r in rows] == [1, 2]


def test_the_number_the_column_and_a_seed_of_the_run_are_filled_in(fake):
    for seed in (0, 0, 1):
        split("GivenPartitioner", "rows = [[0], [1]], limit = 1.5", num_clients=2, seed=seed)
    first, again, other = fake
    assert first[:3] == (2, "label", 1.5)
    assert first == again
    assert first[3] != other[3]


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(InputError, match=r'pip install "flanders-fl\[download\]"'):
        split("DirichletPartitioner", "alpha = 1.0")


def test_a_misspelt_partitioner_gets_a_guess_and_the_list(fake):
    with pytest.raises(InputError) as caught:
        split("GivnPartitioner")
    assert str(caught.value) == (
        "Flower Datasets has no partitioner 'GivnPartitioner'. Did you mean 'GivenPartitioner'? "
        "Known: GivenPartitioner, BarePartitioner."
    )


@pytest.mark.parametrize(
    ("partitioner", "why"),
    [
        ("VerticalEvenPartitioner", "divides columns"),
        ("IdToSizeFncPartitioner", "needs a function"),
        ("DistributionPartitioner", "needs an array"),
    ],
)
def test_a_partitioner_that_does_not_fit_says_why(fake, partitioner, why):
    with pytest.raises(InputError, match=f"^{partitioner} {why}.* Known: GivenPartitioner"):
        split(partitioner)


@pytest.mark.parametrize(
    ("partitioner", "options", "message"),
    [
        ("GivenPartitioner", "row = [[0]]", r"no option 'row'. Did you mean 'rows'\? It has: rows, limit\."),
        ("BarePartitioner", "alpha = 1", r"no option 'alpha'. It has none\."),
        ("GivenPartitioner", "limit = 1", r'needs a value for rows\. .*options = "rows = \.\.\."'),
        ("GivenPartitioner", "rows = 3", r"3000 examples of 10 classes among 10 clients \(TypeError: .*int"),
        ("GivenPartitioner", "rows = [[0], [1]]", r"divides these data into 2 parts, but there are 10 clients"),
    ],
)
def test_options_that_do_not_work_say_what_would(fake, partitioner, options, message):
    with pytest.raises(InputError, match=message):
        split(partitioner, options)


def test_clients_without_examples_are_counted_and_named(fake):
    with pytest.raises(InputError, match=r"leaves 2 of 3 clients without examples \(0, 2\)\. Change the options"):
        split("GivenPartitioner", "rows = [[], [1], []]", num_clients=3)
    with pytest.raises(InputError, match=r"leaves 9 of 10 .* \(1, 2, 3, 4, 5, \.\.\.\)"):
        split("GivenPartitioner", f"rows = {[[0]] + [[]] * 9}")


def test_an_example_for_two_clients_is_refused(fake):
    with pytest.raises(InputError, match="several clients"):
        split("GivenPartitioner", "rows = [[0, 1], [1, 2]]", num_clients=2)


@pytest.mark.parametrize(
    "options", ["alpha", "alpha = ", "mode = random", "alpha = 1; beta = 2", {"alpha": 1}, None]
)
def test_options_that_cannot_be_read_are_refused_at_once(options):
    with pytest.raises(InputError, match=r"`options` .* must be a string as in"):
        FlowerPartition("DirichletPartitioner", options)


@pytest.mark.parametrize("name", ["num_partitions", "partition_by", "seed"])
def test_what_is_filled_in_cannot_be_set(name):
    with pytest.raises(InputError, match=f"cannot set {name}"):
        FlowerPartition("DirichletPartitioner", f"alpha = 1.0, {name} = 3")


def test_a_partitioner_is_given_by_name():
    with pytest.raises(InputError, match="name of a class"):
        FlowerPartition(GivenPartitioner)


def test_a_spec_chooses_the_partitioner_and_a_list_of_options_is_an_axis():
    text = """
    [data]
    partition = "flower"
    partitioner = "DirichletPartitioner"
    options = ["alpha = 0.1", "alpha = 1, self_balancing = true"]
    """
    runs = parse_spec(tomllib.loads(text), (), "mine.toml")
    assert [run.setting.data.partition for run in runs] == [
        FlowerPartition("DirichletPartitioner", "alpha = 0.1"),
        FlowerPartition("DirichletPartitioner", "alpha = 1, self_balancing = true"),
    ]


def test_a_spec_without_a_partitioner_asks_for_one():
    with pytest.raises(InputError, match=r"data\.partition: a value is needed for partitioner"):
        parse_spec({"data": {"partition": "flower"}}, (), "mine.toml")
