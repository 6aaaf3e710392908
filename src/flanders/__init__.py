"""Keep federated learning safe from poisoned clients.

One data shape, `(m, d)`: a row per client. Four concepts: a `Round` of local models, an `Attack` that
poisons some of them, a `Filter` that decides whom to keep, a rule that aggregates who is kept.
"""

from flanders.aggregators import (
    Aggregator,
    Bucketing,
    Bulyan,
    CenteredClipping,
    DnC,
    FedAvg,
    FLTrust,
    GeometricMedian,
    Krum,
    MeanAroundMedian,
    Median,
    MultiKrum,
    Nnm,
    NormClipping,
    PreAggregator,
    TrimmedMean,
)
from flanders.attacks import Attack, View
from flanders.catalog import AGGREGATORS, ATTACKS, FILTERS, PREAGGREGATORS
from flanders.checks import InputError
from flanders.defense import Defense, Outcome, defend
from flanders.filters import (
    DistanceToGlobal,
    DnCFilter,
    Filter,
    Fingerprint,
    Flanders,
    FLDetector,
    KeepAll,
    KMeans,
    KrumFilter,
    Oracle,
    Persistence,
    Scores,
)
from flanders.published.fldetector import FLDetectorLagged
from flanders.round import Round
from flanders.state import load_state, save_state

__version__ = "0.1.0"

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "FILTERS",
    "PREAGGREGATORS",
    "Aggregator",
    "Attack",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "Defense",
    "DistanceToGlobal",
    "DnC",
    "DnCFilter",
    "FLDetector",
    "FLDetectorLagged",
    "FLTrust",
    "FedAvg",
    "Filter",
    "Fingerprint",
    "Flanders",
    "GeometricMedian",
    "InputError",
    "KMeans",
    "KeepAll",
    "Krum",
    "KrumFilter",
    "MeanAroundMedian",
    "Median",
    "MultiKrum",
    "Nnm",
    "NormClipping",
    "Oracle",
    "Outcome",
    "Persistence",
    "PreAggregator",
    "Round",
    "Scores",
    "TrimmedMean",
    "View",
    "defend",
    "load_state",
    "save_state",
]
