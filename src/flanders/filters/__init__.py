"""Filters: they decide whose models are used, before any aggregation rule runs."""

from flanders.filters.controls import DistanceToGlobal, KeepAll, Oracle, Persistence
from flanders.filters.dnc import DnCFilter
from flanders.filters.filter import Filter, Scores
from flanders.filters.fingerprint.filter import Fingerprint
from flanders.filters.fldetector import FLDetector
from flanders.filters.forecast.flanders import Flanders
from flanders.filters.kmeans import KMeans
from flanders.filters.krum import KrumFilter

__all__ = [
    "DistanceToGlobal",
    "DnCFilter",
    "FLDetector",
    "Filter",
    "Fingerprint",
    "Flanders",
    "KMeans",
    "KeepAll",
    "KrumFilter",
    "Oracle",
    "Persistence",
    "Scores",
]
