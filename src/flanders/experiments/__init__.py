"""Experiments: a TOML spec, its grid of runs, and results that survive a power cut."""

from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import expand
from flanders.experiments.spec import parse_spec, read_specs

__all__ = ["Experiment", "expand", "parse_spec", "read_specs"]
