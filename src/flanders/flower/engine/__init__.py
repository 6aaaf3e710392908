"""The Flower engine: simulated runs with clients on Flower's nodes, and with a `FilteredStrategy` as the server."""

from flanders.flower.engine.runtime import need_ray
from flanders.flower.engine.simulation import FlowerSimulation

__all__ = ["FlowerSimulation", "need_ray"]
