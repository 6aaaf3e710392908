"""The datasets of the simulator, and the partitions, which divide the training examples of a dataset among clients.

This package contains no data. `digits` and `breast-cancer` come with scikit-learn. `synthetic` and `characters` are
drawn at random. The other datasets are read from files in their original formats; see `flanders.data.sources`.
"""

from flanders.data.characters import Characters
from flanders.data.cifar import Cifar10, Cifar100
from flanders.data.dataset import Dataset, Loader, from_arrays, from_clients, stratified_split
from flanders.data.digits import Digits
from flanders.data.dirichlet import Dirichlet, DirichletEqual
from flanders.data.flower_partition import FlowerPartition
from flanders.data.mnist import FashionMnist, FashionMnistReference, Mnist, MnistReference
from flanders.data.partition import Iid, Partition, Shards
from flanders.data.synthetic import Synthetic
from flanders.data.tables import BreastCancer
from flanders.registry import Registry

DATASETS: Registry[Loader] = Registry(
    "dataset",
    {
        "digits": Digits,
        "synthetic": Synthetic,
        "breast-cancer": BreastCancer,
        "characters": Characters,
        "mnist": Mnist,
        "fashion-mnist": FashionMnist,
        "cifar10": Cifar10,
        "cifar100": Cifar100,
        "mnist-reference": MnistReference,
        "fashion-mnist-reference": FashionMnistReference,
    },
)

PARTITIONS: Registry[Partition] = Registry(
    "partition",
    {
        "iid": Iid,
        "dirichlet": Dirichlet,
        "dirichlet-equal": DirichletEqual,
        "shards": Shards,
        "flower": FlowerPartition,
    },
)

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "BreastCancer",
    "Characters",
    "Cifar10",
    "Cifar100",
    "Dataset",
    "Digits",
    "Dirichlet",
    "DirichletEqual",
    "FashionMnist",
    "FashionMnistReference",
    "FlowerPartition",
    "Iid",
    "Loader",
    "Mnist",
    "MnistReference",
    "Partition",
    "Shards",
    "Synthetic",
    "from_arrays",
    "from_clients",
    "stratified_split",
]
