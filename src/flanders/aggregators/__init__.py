"""Aggregators, and the pre-aggregators that can stand in front of them."""

from flanders.aggregators.aggregator import Aggregator, Chain, PreAggregator
from flanders.aggregators.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from flanders.aggregators.dnc import DnC
from flanders.aggregators.geometric import CenteredClipping, FLTrust, GeometricMedian
from flanders.aggregators.krum import Bulyan, Krum, MultiKrum
from flanders.aggregators.mean import FedAvg
from flanders.aggregators.preaggregators import Bucketing, Nnm, NormClipping

__all__ = [
    "Aggregator",
    "Bucketing",
    "Bulyan",
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
    "Nnm",
    "NormClipping",
    "PreAggregator",
    "TrimmedMean",
]
