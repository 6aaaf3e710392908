"""Attacks: what malicious clients send instead of the models that they have trained.

An attack computes the models that the malicious clients send in a round. It may use only what the attacker knows in
this round (`View`).
"""

from flanders.attacks.adaptive import BlindSpot, Budget
from flanders.attacks.agr import AgrMinMax, AgrMinSum, AgrTailored
from flanders.attacks.attack import Attack, View
from flanders.attacks.backdoor import ModelReplacement, Neurotoxin
from flanders.attacks.consistent import PoisonedFL
from flanders.attacks.disguise import KeptSignature, NoisyClones, OnOff, SlowDrift
from flanders.attacks.fang import Opt, OptTrimmedMean
from flanders.attacks.forecasting import Mar
from flanders.attacks.idle import DeltaFreeRider
from flanders.attacks.layerwise import LayerwisePoison
from flanders.attacks.mimicry import Mimic, Static
from flanders.attacks.noise import Gauss, SignFlip
from flanders.attacks.pull import BelowTheSplit, GrowingCamp, OwnPull
from flanders.attacks.rearranging import ByzMean, Rearranged
from flanders.attacks.searching import OptimalIpm, OptimalLie
from flanders.attacks.statistical import Ipm, Lie

__all__ = [
    "AgrMinMax",
    "AgrMinSum",
    "AgrTailored",
    "Attack",
    "BelowTheSplit",
    "BlindSpot",
    "Budget",
    "ByzMean",
    "DeltaFreeRider",
    "Gauss",
    "GrowingCamp",
    "Ipm",
    "KeptSignature",
    "LayerwisePoison",
    "Lie",
    "Mar",
    "Mimic",
    "ModelReplacement",
    "Neurotoxin",
    "NoisyClones",
    "OnOff",
    "Opt",
    "OptTrimmedMean",
    "OptimalIpm",
    "OptimalLie",
    "OwnPull",
    "PoisonedFL",
    "Rearranged",
    "SignFlip",
    "SlowDrift",
    "Static",
    "View",
]
