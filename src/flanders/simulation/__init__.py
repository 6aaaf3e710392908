"""The simulator of federated learning with an attack and a defence.

A `Setting` says what to simulate. A `Simulation` carries it out, round by round::

    setting = Setting(federation=Federation(rounds=10), threat=Threat(AgrMinMax(), fraction=0.3))
    print(summary(list(Simulation(setting).run())))

All clients of a round are trained at the same time, in one process.
"""

from flanders.extras import needing

with needing("sim"):
    import threadpoolctl  # noqa: F401
    import torch  # noqa: F401

from flanders.record import RoundRecord
from flanders.results.confusion import Confusion
from flanders.results.run import Options
from flanders.simulation.attacker import Attacker, Received, Turn
from flanders.simulation.metrics import auc, confusion, summary
from flanders.simulation.poisoning import (
    DATA_POISONS,
    A3fl,
    Backdoor,
    BlendedBackdoor,
    DataPoison,
    Dba,
    DynamicFlip,
    EdgeCaseBackdoor,
    LabelFlip,
    LabelPairs,
    RandomLabels,
    SemanticBackdoor,
    TargetedFlip,
)
from flanders.simulation.setting import Data, Federation, Setting, Threat
from flanders.simulation.simulation import Simulation
from flanders.simulation.stale_trainer import StaleTrainer
from flanders.simulation.training.options import Training
from flanders.simulation.training.trainer import ClientTrainer, Trained, Trainer
from flanders.simulation.world import World

__all__ = [
    "DATA_POISONS",
    "A3fl",
    "Attacker",
    "Backdoor",
    "BlendedBackdoor",
    "ClientTrainer",
    "Confusion",
    "Data",
    "DataPoison",
    "Dba",
    "DynamicFlip",
    "EdgeCaseBackdoor",
    "Federation",
    "LabelFlip",
    "LabelPairs",
    "Options",
    "RandomLabels",
    "Received",
    "RoundRecord",
    "SemanticBackdoor",
    "Setting",
    "Simulation",
    "StaleTrainer",
    "TargetedFlip",
    "Threat",
    "Trained",
    "Trainer",
    "Training",
    "Turn",
    "World",
    "auc",
    "confusion",
    "summary",
]
