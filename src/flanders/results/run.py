"""One run as the results file knows it: what it is, and how to carry it out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from flanders.checks import check_number
from flanders.results.tree import Table

SIMULATOR, FLOWER = "simulator", "flower"
"""The engines that carry out runs."""


@dataclass(frozen=True)
class Options:
    """How a run is carried out; it has no part in its id, for it changes no decision."""

    device: str = "auto"
    chunk: int | None = None
    data_dir: Path | None = None
    checkpoint_every: int | None = None
    """Rounds between checkpoints. Default: every round, less often where writing them takes long."""
    threads: int | None = None
    """Threads to compute with, on which the last bits of sums depend. Default: what the process has when
    the run begins; a run that is resumed goes on with as many as it began with."""

    def __post_init__(self) -> None:
        for name in ("chunk", "checkpoint_every", "threads"):
            if getattr(self, name) is not None:
                check_number("run", name, getattr(self, name), 1, whole=True)


@dataclass(frozen=True)
class RunSpec:
    """One run: what it is (`canonical`, all defaults filled in) and how to carry it out."""

    canonical: Table
    options: Options = dataclasses.field(default_factory=Options)

    @property
    def text(self) -> str:
        """The canonical JSON: two spellings of the same run have the same."""
        return json.dumps(self.canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def engine(self) -> str:
        """What carries the run out: `"simulator"` or `"flower"`."""
        return str(self.canonical.get("engine", SIMULATOR))

    def on(self, engine: str) -> RunSpec:
        """Return the same run on an engine; only another one than the simulator is written down, and in the id."""
        rest = {key: value for key, value in self.canonical.items() if key != "engine"}
        return RunSpec(rest if engine == SIMULATOR else {**rest, "engine": engine}, self.options)
