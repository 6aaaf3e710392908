"""The Flower engine: runs of the simulator on Flower's nodes, protected by `FilteredStrategy`."""

from flanders.flower.engine.flower_simulation import FlowerSimulation
from flanders.flower.engine.runtime import need_ray

__all__ = ["FlowerSimulation", "need_ray"]
