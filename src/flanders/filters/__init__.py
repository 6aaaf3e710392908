"""Filters: they decide whose models are used, before any aggregation rule runs."""

from typing import Any

from flanders.filters.controls import DistanceToGlobal, KeepAll, Oracle, Persistence
from flanders.filters.dnc import DnCFilter
from flanders.filters.filter import Filter, Scores
from flanders.filters.flanders import Flanders
from flanders.filters.fldetector import FLDetector
from flanders.filters.kmeans import KMeans
from flanders.filters.krum import KrumFilter
from flanders.filters.lagged import FLDetectorLagged
from flanders.registry import Registry

FILTERS: Registry[Filter[Any]] = Registry(
    "filter",
    {
        "flanders": Flanders,
        "fldetector": FLDetector,
        "dnc": DnCFilter,
        "kmeans": KMeans,
        "krum": KrumFilter,
        "keep-all": KeepAll,
        "oracle": Oracle,
        "distance-to-global": DistanceToGlobal,
        "persistence": Persistence,
        "fldetector-lagged": FLDetectorLagged,
    },
)

__all__ = [
    "FILTERS",
    "DistanceToGlobal",
    "DnCFilter",
    "FLDetector",
    "FLDetectorLagged",
    "Filter",
    "Flanders",
    "KMeans",
    "KeepAll",
    "KrumFilter",
    "Oracle",
    "Persistence",
    "Scores",
]
