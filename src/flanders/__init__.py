"""Keep federated learning safe from poisoned clients.

A `Round` holds the models that m clients have trained: an array of shape `(m, d)`, a row per client and a column
per parameter. An `Attack` poisons some of the models. A `Filter` decides which clients to keep. An `Aggregator`
turns the kept models into one. A `Defense` has a filter and an aggregator, and protects one round after the other.
"""

from flanders.aggregators import (
    Aggregator,
    Bucketing,
    Bulyan,
    CenteredClipping,
    ClippingAndNoise,
    DnC,
    FedAvg,
    Flame,
    FLTrust,
    FoolsGold,
    GeometricMedian,
    Krum,
    MeanAroundMedian,
    Median,
    MultiKrum,
    Nnm,
    NormClipping,
    PreAggregator,
    Remembering,
    TrimmedMean,
    ZenoPlusPlus,
)
from flanders.attacks import Attack, View
from flanders.catalog import AGGREGATORS, ATTACKS, FILTERS, LOOKS, PREAGGREGATORS
from flanders.checks import InputError
from flanders.defense import Defense, Outcome, defend
from flanders.filters import (
    Als,
    Camps,
    DistanceToGlobal,
    DnCFilter,
    Everything,
    Filter,
    Fingerprint,
    FlameFilter,
    Flanders,
    FLDetector,
    Guard,
    KeepAll,
    KMeans,
    KrumFilter,
    Oracle,
    Persistence,
    Sample,
    Scores,
    Sketch,
    SkyMask,
)
from flanders.published.flanders import FlandersReference
from flanders.published.fldetector import FLDetectorLagged
from flanders.round import Round
from flanders.state import load_state, save_state, state_from_bytes, state_to_bytes

__version__ = "0.1.0"

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "FILTERS",
    "LOOKS",
    "PREAGGREGATORS",
    "Aggregator",
    "Als",
    "Attack",
    "Bucketing",
    "Bulyan",
    "Camps",
    "CenteredClipping",
    "ClippingAndNoise",
    "Defense",
    "DistanceToGlobal",
    "DnC",
    "DnCFilter",
    "Everything",
    "FLDetector",
    "FLDetectorLagged",
    "FLTrust",
    "FedAvg",
    "Filter",
    "Fingerprint",
    "Flame",
    "FlameFilter",
    "Flanders",
    "FlandersReference",
    "FoolsGold",
    "GeometricMedian",
    "Guard",
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
    "Remembering",
    "Round",
    "Sample",
    "Scores",
    "Sketch",
    "SkyMask",
    "TrimmedMean",
    "View",
    "ZenoPlusPlus",
    "defend",
    "load_state",
    "save_state",
    "state_from_bytes",
    "state_to_bytes",
]
