"""Tables of all attacks, filters, aggregators and pre-aggregators by name. Such a table is called a registry.

Specs (TOML files that describe experiments) and the command line find a class by its name in these tables. To add
an attack, for example, write a file in `attacks/` and add a line to `ATTACKS`.
"""

from __future__ import annotations

from typing import Any

from flanders.aggregators import (
    Aggregator,
    Arc,
    Bucketing,
    Bulyan,
    Caf,
    CenteredClipping,
    ClippingAndNoise,
    Crfl,
    DnC,
    FedAvg,
    Flame,
    FLTrust,
    FoolsGold,
    GeometricMedian,
    HistoryClipping,
    Krum,
    Lasa,
    MeanAroundMedian,
    Median,
    MinimumDiameter,
    MinimumSpread,
    MultiKrum,
    Nnm,
    NormClipping,
    PreAggregator,
    RobustLearningRate,
    SparseFed,
    TrimmedMean,
    ZenoPlusPlus,
)
from flanders.attacks import (
    AgrMinMax,
    AgrMinSum,
    AgrTailored,
    Attack,
    BelowTheSplit,
    BlindSpot,
    Budget,
    ByzMean,
    DeltaFreeRider,
    Gauss,
    GrowingCamp,
    Ipm,
    KeptSignature,
    LayerwisePoison,
    Lie,
    Mar,
    Mimic,
    ModelReplacement,
    Neurotoxin,
    NoisyClones,
    OnOff,
    Opt,
    OptimalIpm,
    OptimalLie,
    OptTrimmedMean,
    OwnPull,
    PoisonedFL,
    Rearranged,
    SignFlip,
    SlowDrift,
    Static,
)
from flanders.filters import (
    Afa,
    Camps,
    DeepSight,
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
    Look,
    MultiMetrics,
    Oracle,
    Persistence,
    Rflbat,
    Sample,
    SignGuard,
    Sketch,
    SkyMask,
    Zeno,
)
from flanders.published.aggregators import BulyanReference, MultiKrumReference
from flanders.published.attacks import AgrMinMaxReference, LieReference, OptReference
from flanders.published.flanders import FlandersReference
from flanders.published.fldetector import FLDetectorLagged
from flanders.registry import Registry

ATTACKS: Registry[Attack] = Registry.grouped(
    "attack",
    {
        "Simple": {"gauss": Gauss, "sign-flip": SignFlip, "mimic": Mimic, "delta-free-rider": DeltaFreeRider},
        "Hidden in the spread of the honest updates": {
            "lie": Lie,
            "ipm": Ipm,
            "agr-min-max": AgrMinMax,
            "agr-min-sum": AgrMinSum,
            "byz-mean": ByzMean,
            "rearranged": Rearranged,
        },
        "Against one aggregator": {"opt": Opt, "opt-trmean": OptTrimmedMean, "agr-tailored": AgrTailored},
        "Against whatever the server does": {"optimal-lie": OptimalLie, "optimal-ipm": OptimalIpm},
        "Over many rounds": {
            "poisoned-fl": PoisonedFL,
            "slow-drift": SlowDrift,
            "on-off": OnOff,
            "static": Static,
            "growing-camp": GrowingCamp,
        },
        "For backdoors, with a data poison": {
            "model-replacement": ModelReplacement,
            "neurotoxin": Neurotoxin,
            "layerwise": LayerwisePoison,
        },
        "Against the filters of this package": {
            "own-pull": OwnPull,
            "below-the-split": BelowTheSplit,
            "kept-signature": KeptSignature,
            "noisy-clones": NoisyClones,
            "mar": Mar,
            "blind-spot": BlindSpot,
            "budget": Budget,
        },
        "As the code published with the FLANDERS paper has them": {
            "lie-reference": LieReference,
            "opt-reference": OptReference,
            "agr-min-max-reference": AgrMinMaxReference,
        },
    },
)
FILTERS: Registry[Filter[Any]] = Registry.grouped(
    "filter",
    {
        "Of this package": {"guard": Guard, "camps": Camps, "fingerprint": Fingerprint, "flanders": Flanders},
        "By the updates of one round": {
            "flame": FlameFilter,
            "signguard": SignGuard,
            "rflbat": Rflbat,
            "deepsight": DeepSight,
            "multi-metrics": MultiMetrics,
            "dnc": DnCFilter,
            "kmeans": KMeans,
            "krum": KrumFilter,
        },
        "By the history of each client": {"fldetector": FLDetector, "afa": Afa},
        "With examples of the server": {"skymask": SkyMask, "zeno": Zeno},
        "To compare with": {
            "keep-all": KeepAll,
            "oracle": Oracle,
            "distance-to-global": DistanceToGlobal,
            "persistence": Persistence,
        },
        "As published code has them": {
            "flanders-reference": FlandersReference,
            "fldetector-lagged": FLDetectorLagged,
        },
    },
)
AGGREGATORS: Registry[Aggregator] = Registry.grouped(
    "aggregator",
    {
        "Averages and medians": {
            "fedavg": FedAvg,
            "median": Median,
            "trimmed-mean": TrimmedMean,
            "mean-around-median": MeanAroundMedian,
            "geometric-median": GeometricMedian,
            "robust-learning-rate": RobustLearningRate,
        },
        "Of a chosen part of the clients": {
            "krum": Krum,
            "multi-krum": MultiKrum,
            "bulyan": Bulyan,
            "dnc": DnC,
            "minimum-diameter": MinimumDiameter,
            "minimum-spread": MinimumSpread,
            "caf": Caf,
            "lasa": Lasa,
        },
        "With clipping and noise": {
            "centered-clipping": CenteredClipping,
            "centered-clipping-history": HistoryClipping,
            "clipping-and-noise": ClippingAndNoise,
            "crfl": Crfl,
            "flame": Flame,
            "sparsefed": SparseFed,
        },
        "By the history of each client": {"foolsgold": FoolsGold},
        "With examples of the server": {"fltrust": FLTrust, "zeno++": ZenoPlusPlus},
        "As the code published with the FLANDERS paper has them": {
            "multi-krum-reference": MultiKrumReference,
            "bulyan-reference": BulyanReference,
        },
    },
)
PREAGGREGATORS: Registry[PreAggregator] = Registry(
    "pre-aggregator", {"nnm": Nnm, "bucketing": Bucketing, "norm-clipping": NormClipping, "arc": Arc}
)
LOOKS: Registry[Look] = Registry("look", {"everything": Everything, "sample": Sample, "sketch": Sketch})
"""The classes for the field `look` of `Flanders`. A look says which numbers of the updates this filter compares."""
