"""Experiments: spec files in TOML, the grids of runs that they describe, and the processes that do the runs."""

from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import expand
from flanders.experiments.spec import parse_spec, read_specs

__all__ = ["Experiment", "expand", "parse_spec", "read_specs"]
