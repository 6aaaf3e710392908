"""The Flower engine: carries out simulated runs on Flower.

The clients train on Flower's nodes. The server is a `FilteredStrategy`.
"""

from flanders.flower.engine.runtime import need_ray
from flanders.flower.engine.simulation import FlowerSimulation

__all__ = ["FlowerSimulation", "need_ray"]
