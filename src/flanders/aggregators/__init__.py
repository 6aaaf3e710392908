"""Aggregation rules, and the pre-aggregators that can stand in front of them."""

from flanders.aggregators.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from flanders.aggregators.geometric import CenteredClipping, FLTrust, GeometricMedian
from flanders.aggregators.krum import Bulyan, Krum, MultiKrum
from flanders.aggregators.mean import FedAvg
from flanders.aggregators.preaggregators import Bucketing, Nnm, NormClipping
from flanders.aggregators.reference import BulyanReference, MultiKrumReference
from flanders.aggregators.rule import Chain, PreAggregator, Rule
from flanders.aggregators.spectral import DnC
from flanders.registry import Registry

AGGREGATORS: Registry[Rule] = Registry(
    "aggregator",
    {
        "fedavg": FedAvg,
        "median": Median,
        "trimmed-mean": TrimmedMean,
        "mean-around-median": MeanAroundMedian,
        "krum": Krum,
        "multi-krum": MultiKrum,
        "bulyan": Bulyan,
        "dnc": DnC,
        "geometric-median": GeometricMedian,
        "centered-clipping": CenteredClipping,
        "fltrust": FLTrust,
        "multi-krum-reference": MultiKrumReference,
        "bulyan-reference": BulyanReference,
    },
)

PREAGGREGATORS: Registry[PreAggregator] = Registry(
    "pre-aggregator", {"nnm": Nnm, "bucketing": Bucketing, "norm-clipping": NormClipping}
)

__all__ = [
    "AGGREGATORS",
    "PREAGGREGATORS",
    "Bucketing",
    "Bulyan",
    "BulyanReference",
    "CenteredClipping",
    "Chain",
    "DnC",
    "FLTrust",
    "FedAvg",
    "GeometricMedian",
    "Krum",
    "MeanAroundMedian",
    "Median",
    "MultiKrum",
    "MultiKrumReference",
    "Nnm",
    "NormClipping",
    "PreAggregator",
    "Rule",
    "TrimmedMean",
]
