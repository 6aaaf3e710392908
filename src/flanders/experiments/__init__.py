"""Experiments: TOML specs, their grids of runs, and the processes that carry them out."""

from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import expand
from flanders.experiments.spec import parse_spec, read_specs

__all__ = ["Experiment", "expand", "parse_spec", "read_specs"]
