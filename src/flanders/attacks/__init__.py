"""Attacks: ways for b clients of a round to poison the model, from what they may know (`View`)."""

from flanders.attacks.adaptive import BlindSpot, Budget
from flanders.attacks.agr import AgrMinMax, AgrMinSum, AgrTailored
from flanders.attacks.attack import Attack, View
from flanders.attacks.disguise import KeptSignature, NoisyClones, OnOff, SlowDrift
from flanders.attacks.fang import Opt, OptTrimmedMean
from flanders.attacks.forecasting import Mar
from flanders.attacks.mimicry import Mimic, Static
from flanders.attacks.noise import Gauss, SignFlip
from flanders.attacks.reference import AgrMinMaxReference, LieReference, OptReference
from flanders.attacks.statistical import Ipm, Lie
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

__all__ = [
    "ATTACKS",
    "AgrMinMax",
    "AgrMinMaxReference",
    "AgrMinSum",
    "AgrTailored",
    "Attack",
    "BlindSpot",
    "Budget",
    "Gauss",
    "Ipm",
    "KeptSignature",
    "Lie",
    "LieReference",
    "Mar",
    "Mimic",
    "NoisyClones",
    "OnOff",
    "Opt",
    "OptReference",
    "OptTrimmedMean",
    "SignFlip",
    "SlowDrift",
    "Static",
    "View",
]
