"""Aggregators turn the models of a round into one model. Pre-aggregators prepare the models for an aggregator."""

from flanders.aggregators.aggregator import Aggregator, Chain, PreAggregator, Remembering
from flanders.aggregators.clipping import ClippingAndNoise, Crfl, Flame
from flanders.aggregators.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from flanders.aggregators.dnc import DnC
from flanders.aggregators.foolsgold import FoolsGold
from flanders.aggregators.geometric import CenteredClipping, FLTrust, GeometricMedian
from flanders.aggregators.history import HistoryClipping, SparseFed
from flanders.aggregators.krum import Bulyan, Krum, MultiKrum
from flanders.aggregators.lasa import Lasa
from flanders.aggregators.mean import FedAvg
from flanders.aggregators.preaggregators import Arc, Bucketing, Nnm, NormClipping
from flanders.aggregators.robust_rate import RobustLearningRate
from flanders.aggregators.subsets import Caf, MinimumDiameter, MinimumSpread
from flanders.aggregators.zeno import ZenoPlusPlus

__all__ = [
    "Aggregator",
    "Arc",
    "Bucketing",
    "Bulyan",
    "Caf",
    "CenteredClipping",
    "Chain",
    "ClippingAndNoise",
    "Crfl",
    "DnC",
    "FLTrust",
    "FedAvg",
    "Flame",
    "FoolsGold",
    "GeometricMedian",
    "HistoryClipping",
    "Krum",
    "Lasa",
    "MeanAroundMedian",
    "Median",
    "MinimumDiameter",
    "MinimumSpread",
    "MultiKrum",
    "Nnm",
    "NormClipping",
    "PreAggregator",
    "Remembering",
    "RobustLearningRate",
    "SparseFed",
    "TrimmedMean",
    "ZenoPlusPlus",
]
