"""The registries of attacks, filters, aggregators and pre-aggregators, and of what `Flanders` can look at.

A new attack, for example, is a file in `attacks/` and one line in `ATTACKS`.
"""

from __future__ import annotations

from typing import Any

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
    Gauss,
    GrowingCamp,
    Ipm,
    KeptSignature,
    Lie,
    Mar,
    Mimic,
    NoisyClones,
    OnOff,
    Opt,
    OptTrimmedMean,
    OwnPull,
    SignFlip,
    SlowDrift,
    Static,
)
from flanders.filters import (
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
    Look,
    Oracle,
    Persistence,
    Sample,
    Sketch,
    SkyMask,
)
from flanders.published.aggregators import BulyanReference, MultiKrumReference
from flanders.published.attacks import AgrMinMaxReference, LieReference, OptReference
from flanders.published.flanders import FlandersReference
from flanders.published.fldetector import FLDetectorLagged
from flanders.registry import Registry

ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "gauss": Gauss,
        "sign-flip": SignFlip,
        "lie": Lie,
        "ipm": Ipm,
        "opt": Opt,
        "opt-trmean": OptTrimmedMean,
        "agr-min-max": AgrMinMax,
        "agr-min-sum": AgrMinSum,
        "agr-tailored": AgrTailored,
        "mimic": Mimic,
        "kept-signature": KeptSignature,
        "noisy-clones": NoisyClones,
        "own-pull": OwnPull,
        "below-the-split": BelowTheSplit,
        "growing-camp": GrowingCamp,
        "slow-drift": SlowDrift,
        "on-off": OnOff,
        "mar": Mar,
        "blind-spot": BlindSpot,
        "static": Static,
        "budget": Budget,
        "lie-reference": LieReference,
        "opt-reference": OptReference,
        "agr-min-max-reference": AgrMinMaxReference,
    },
)
FILTERS: Registry[Filter[Any]] = Registry(
    "filter",
    {
        "guard": Guard,
        "camps": Camps,
        "fingerprint": Fingerprint,
        "flanders": Flanders,
        "fldetector": FLDetector,
        "dnc": DnCFilter,
        "kmeans": KMeans,
        "krum": KrumFilter,
        "flame": FlameFilter,
        "skymask": SkyMask,
        "keep-all": KeepAll,
        "oracle": Oracle,
        "distance-to-global": DistanceToGlobal,
        "persistence": Persistence,
        "flanders-reference": FlandersReference,
        "fldetector-lagged": FLDetectorLagged,
    },
)
AGGREGATORS: Registry[Aggregator] = Registry(
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
        "clipping-and-noise": ClippingAndNoise,
        "flame": Flame,
        "foolsgold": FoolsGold,
        "fltrust": FLTrust,
        "zeno++": ZenoPlusPlus,
        "multi-krum-reference": MultiKrumReference,
        "bulyan-reference": BulyanReference,
    },
)
PREAGGREGATORS: Registry[PreAggregator] = Registry(
    "pre-aggregator", {"nnm": Nnm, "bucketing": Bucketing, "norm-clipping": NormClipping}
)
LOOKS: Registry[Look] = Registry("look", {"everything": Everything, "sample": Sample, "sketch": Sketch})
"""Which parameters of the updates the filter `Flanders` looks at."""
