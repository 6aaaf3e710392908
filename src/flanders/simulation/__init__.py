"""The simulator: federated learning with all clients of a round trained at once, under attack and defended.

A setting says what to simulate, a simulation carries it out round by round::

    setting = Setting(attack=AgrMinMax(), malicious_fraction=0.8, filter=Flanders(keep=0.2), rounds=10)
    print(summary(list(Simulation(setting).run())))
"""

from flanders.record import RoundRecord
from flanders.results.confusion import Confusion
from flanders.simulation.federation import Simulation
from flanders.simulation.metrics import auc, confusion, summary
from flanders.simulation.poisoning import DATA_POISONS, Backdoor, DataPoison, Dba, LabelFlip
from flanders.simulation.setting import Setting
from flanders.simulation.training.trainer import Trained, Trainer, Training

__all__ = [
    "DATA_POISONS",
    "Backdoor",
    "Confusion",
    "DataPoison",
    "Dba",
    "LabelFlip",
    "RoundRecord",
    "Setting",
    "Simulation",
    "Trained",
    "Trainer",
    "Training",
    "auc",
    "confusion",
    "summary",
]
