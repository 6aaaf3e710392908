"""The table `DATA_POISONS`: all data poisons, by the names that specs use.

A data poison changes the examples that malicious clients train on. Some data poisons give these examples wrong
labels. Other data poisons teach the model a backdoor: it then assigns certain examples to the class that the
attacker has chosen. These are examples with a trigger (a patch or a pattern), or, if the backdoor has no trigger,
rare examples of one class.
"""

from __future__ import annotations

from flanders.registry import Registry
from flanders.simulation.data_poison import DataPoison, Poisoner, Scope
from flanders.simulation.labels import LabelFlip, LabelPairs, RandomLabels, TargetedFlip
from flanders.simulation.learning import A3fl, DynamicFlip
from flanders.simulation.natural import EdgeCaseBackdoor, SemanticBackdoor
from flanders.simulation.triggers import Backdoor, BlendedBackdoor, Dba

__all__ = [
    "DATA_POISONS",
    "A3fl",
    "Backdoor",
    "BlendedBackdoor",
    "DataPoison",
    "Dba",
    "DynamicFlip",
    "EdgeCaseBackdoor",
    "LabelFlip",
    "LabelPairs",
    "Poisoner",
    "RandomLabels",
    "Scope",
    "SemanticBackdoor",
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
            "dynamic-flip": DynamicFlip,
        },
        "Backdoors with a trigger": {
            "backdoor": Backdoor,
            "dba": Dba,
            "blended-backdoor": BlendedBackdoor,
            "a3fl": A3fl,
        },
        "Backdoors without a trigger": {"edge-case": EdgeCaseBackdoor, "semantic": SemanticBackdoor},
    },
)
