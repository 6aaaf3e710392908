"""Filters: they decide which clients of a round are kept. An aggregator then combines the kept models."""

from flanders.filters.afa import Afa
from flanders.filters.camps.camps import Camps
from flanders.filters.camps.guard import Guard
from flanders.filters.controls import DistanceToGlobal, KeepAll, Oracle, Persistence
from flanders.filters.deepsight import DeepSight
from flanders.filters.dnc import DnCFilter
from flanders.filters.filter import Filter, Scores
from flanders.filters.fingerprint.fingerprint import Fingerprint
from flanders.filters.flame import FlameFilter
from flanders.filters.fldetector import FLDetector
from flanders.filters.forecast.flanders import Flanders
from flanders.filters.forecast.look import Everything, Look, Sample, Sketch
from flanders.filters.forecast.solver import Als
from flanders.filters.kmeans import KMeans
from flanders.filters.krum import KrumFilter
from flanders.filters.multimetrics import MultiMetrics
from flanders.filters.rflbat import Rflbat
from flanders.filters.signguard import SignGuard
from flanders.filters.skymask import SkyMask
from flanders.filters.zeno import Zeno

__all__ = [
    "Afa",
    "Als",
    "Camps",
    "DeepSight",
    "DistanceToGlobal",
    "DnCFilter",
    "Everything",
    "FLDetector",
    "Filter",
    "Fingerprint",
    "FlameFilter",
    "Flanders",
    "Guard",
    "KMeans",
    "KeepAll",
    "KrumFilter",
    "Look",
    "MultiMetrics",
    "Oracle",
    "Persistence",
    "Rflbat",
    "Sample",
    "Scores",
    "SignGuard",
    "Sketch",
    "SkyMask",
    "Zeno",
]
