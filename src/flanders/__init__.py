"""Keep federated learning safe from poisoned clients.

One data shape, `(m, d)`: a row per client. Four concepts: a `Round` of local models, an `Attack` that
poisons some of them, a `Filter` that decides whom to keep, a rule that aggregates who is kept.
"""

from flanders.aggregators import (
    AGGREGATORS,
    PREAGGREGATORS,
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
    Rule,
    TrimmedMean,
)
from flanders.attacks import ATTACKS, Attack, View
from flanders.defense import Defense, Outcome, defend
from flanders.filters import (
    FILTERS,
    DistanceToGlobal,
    DnCFilter,
    Filter,
    Flanders,
    FLDetector,
    FLDetectorLagged,
    KeepAll,
    KMeans,
    KrumFilter,
    Oracle,
    Persistence,
    Scores,
)
from flanders.state import load_state, save_state
from flanders.types import InputError, Round

__version__ = "0.1.0"

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "FILTERS",
    "PREAGGREGATORS",
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
    "Rule",
    "Scores",
    "TrimmedMean",
    "View",
    "defend",
    "load_state",
    "save_state",
]
