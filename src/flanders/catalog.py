"""The names of attacks, filters, aggregators, pre-aggregators and looks.

A new one is one file and one line here. Other packages register theirs as entry points, e.g. of the group
`flanders.attacks`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Any

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
from flanders.attacks import (
    AgrMinMax,
    AgrMinSum,
    AgrTailored,
    Attack,
    BlindSpot,
    Budget,
    Gauss,
    Ipm,
    KeptSignature,
    Lie,
    Mar,
    Mimic,
    NoisyClones,
    OnOff,
    Opt,
    OptTrimmedMean,
    SignFlip,
    SlowDrift,
    Static,
)
from flanders.checks import InputError, did_you_mean
from flanders.filters import (
    DistanceToGlobal,
    DnCFilter,
    Everything,
    Filter,
    Fingerprint,
    Flanders,
    FLDetector,
    KeepAll,
    KMeans,
    KrumFilter,
    Look,
    Oracle,
    Persistence,
    Sample,
    Sketch,
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
        "fingerprint": Fingerprint,
        "flanders": Flanders,
        "fldetector": FLDetector,
        "dnc": DnCFilter,
        "kmeans": KMeans,
        "krum": KrumFilter,
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
        "fltrust": FLTrust,
        "multi-krum-reference": MultiKrumReference,
        "bulyan-reference": BulyanReference,
    },
)
PREAGGREGATORS: Registry[PreAggregator] = Registry(
    "pre-aggregator", {"nnm": Nnm, "bucketing": Bucketing, "norm-clipping": NormClipping}
)
LOOKS: Registry[Look] = Registry("look", {"everything": Everything, "sample": Sample, "sketch": Sketch})
"""Which parameters `Flanders` looks at."""
_REGISTRIES = {
    "attacks": ("flanders.catalog", "ATTACKS"),
    "poisons": ("flanders.simulation", "DATA_POISONS"),
    "filters": ("flanders.catalog", "FILTERS"),
    "aggregators": ("flanders.catalog", "AGGREGATORS"),
    "preaggregators": ("flanders.catalog", "PREAGGREGATORS"),
    "datasets": ("flanders.data", "DATASETS"),
    "partitions": ("flanders.data", "PARTITIONS"),
    "models": ("flanders.models", "MODELS"),
}
KINDS: Sequence[str] = tuple(_REGISTRIES)
NOT_IN_SPECS = {
    "fltrust": "fltrust needs the server's own update of each round, which runs have not; pass it in Python."
}
"""What is registered but cannot be run from a spec, and why."""


def registry(kind: str) -> Registry[Any]:
    """Return the registry of one of `KINDS`."""
    if kind not in _REGISTRIES:
        raise InputError(f"There is no list of {kind!r}.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    module, name = _REGISTRIES[kind]
    found: Registry[Any] = getattr(need(module), name)
    if not (own := _plugins(kind)):
        return found
    if twice := [name for name in own if name in found]:
        raise InputError(f"{twice[0]!r} is one of flanders' own {kind}. Give the installed one another name.")
    return Registry(found.kind, {**found, **own})


@cache
def _plugins(kind: str) -> dict[str, type[Any]]:
    """Return what other packages have registered as entry points of the group `flanders.<kind>`."""
    found = {}
    for entry in metadata.entry_points(group=f"flanders.{kind}"):
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(f"{entry.name!r}, installed as {entry.value}, cannot be loaded: {error}.") from error
        if not dataclasses.is_dataclass(found[entry.name]):
            raise InputError(f"{entry.name!r}, installed as {entry.value}, must be a dataclass.")
    return found


def need(module: str) -> Any:
    """Import a module of this package, or say which extra brings what it lacks."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "flanders"):
            raise
        extra = "report" if module.startswith("flanders.report") else "sim"
        raise InputError(
            f"This needs {missing}, which is not installed. Install it with: pip install 'flanders-fl[{extra}]'."
        ) from error
