"""Experiments: a TOML spec, its grid of runs, and results that survive a power cut."""

from flanders.experiments.events import Event, RoundEnded, RunEnded, RunStarted
from flanders.experiments.grid import expand
from flanders.experiments.schema import ResultsError
from flanders.experiments.sections import Options
from flanders.experiments.spec import RunSpec, parse_spec, read_specs
from flanders.experiments.store import Store

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
