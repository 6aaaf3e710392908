"""Experiments: a TOML spec, its grid of runs, and results that survive a power cut."""

from flanders.experiments.events import Event, RoundEnded, RunEnded, RunStarted
from flanders.experiments.grid import expand
from flanders.experiments.spec import parse_spec, read_specs
from flanders.results.run import Options, RunSpec
from flanders.results.schema import ResultsError
from flanders.results.store import Store

__all__ = [
    "Event",
    "Options",
    "ResultsError",
    "RoundEnded",
    "RunEnded",
    "RunSpec",
    "RunStarted",
    "Store",
    "expand",
    "parse_spec",
    "read_specs",
]
