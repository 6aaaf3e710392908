"""The Flower engine: runs of the simulator on Flower's nodes, protected by `FilteredStrategy`."""

from flanders.flower.engine.runtime import need_ray
from flanders.flower.engine.simulation import FlowerSimulation

__all__ = ["FlowerSimulation", "need_ray"]
