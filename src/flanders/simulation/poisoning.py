"""Clients that poison their own data: flipped labels and backdoors, by name."""

from __future__ import annotations

from flanders.registry import Registry
from flanders.simulation.data_poison import DataPoison, Poisoner, Scope
from flanders.simulation.labels import LabelFlip, LabelPairs, RandomLabels, TargetedFlip
from flanders.simulation.triggers import Backdoor, BlendedBackdoor, Dba

__all__ = [
    "DATA_POISONS",
    "Backdoor",
    "BlendedBackdoor",
    "DataPoison",
    "Dba",
    "LabelFlip",
    "LabelPairs",
    "Poisoner",
    "RandomLabels",
    "Scope",
    "TargetedFlip",
]

DATA_POISONS: Registry[DataPoison] = Registry.grouped(
    "data poison",
    {
        "Wrong labels": {
            "label-flip": LabelFlip,
            "label-pairs": LabelPairs,
            "random-labels": RandomLabels,
            "targeted-flip": TargetedFlip,
        },
        "Backdoors": {"backdoor": Backdoor, "dba": Dba, "blended-backdoor": BlendedBackdoor},
    },
)
