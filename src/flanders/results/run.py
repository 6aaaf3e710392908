"""One run as the results file stores it: its spec, which says what to run, and its options, which say how.

Here a spec is plain data (tables, numbers and texts), so that results can be read without the simulator.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from flanders.checks import check_number
from flanders.results import spec_keys
from flanders.results.tree import Table


@dataclass(frozen=True)
class Options:
    """How a run is carried out. Options change the results by rounding errors at most.

    So the id of a run does not depend on its options.

    Parameters
    ----------
    device
        Where to compute: `"auto"`, `"cpu"` or `"cuda"`.
    chunk
        How many clients are trained at once. Default: as many as fit into memory.
    data_dir
        The folder with the datasets. Default: the environment variable `FLANDERS_DATA`.
    checkpoint_every
        The number of rounds from one checkpoint to the next. A checkpoint is a saved state of the run. The
        default makes checkpoints take at most a tenth of the time.
    threads
        The number of threads to compute with. Default: the number that NumPy and PyTorch use by themselves. A
        resumed run keeps its number of threads, since rounding errors depend on it.
    tf32
        Whether an NVIDIA GPU may multiply matrices in the format TF32 when clients train. This is faster, and its
        rounding errors are about a thousand times as large. The test of the global model keeps full precision.
    """

    device: str = "auto"
    chunk: int | None = None
    data_dir: Path | None = None
    checkpoint_every: int | None = None
    threads: int | None = None
    tf32: bool = False

    def __post_init__(self) -> None:
        for name in ("chunk", "checkpoint_every", "threads"):
            check_number("run", name, getattr(self, name), 1, whole=True, optional=True)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Return the options that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "data_dir": None if values["data_dir"] is None else Path(values["data_dir"])})

    def to_json(self) -> str:
        """Return the options as text."""
        return json.dumps(dataclasses.asdict(self), default=str)


@dataclass(frozen=True)
class RunSpec:
    """One run: its spec with all defaults filled in (`canonical`), and its options."""

    canonical: Table
    options: Options = dataclasses.field(default_factory=Options)

    @property
    def text(self) -> str:
        """The canonical spec as JSON. Two specs that describe the same run in different ways have the same text."""
        return json.dumps(self.canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def live(self) -> bool:
        """Whether the run is a live federation: a Flower federation with real clients."""
        return spec_keys.is_live(self.canonical)

    @property
    def engine(self) -> str:
        """The engine that carries out the run: `simulator` or `flower`."""
        return spec_keys.engine(self.canonical)

    def on(self, engine: str) -> RunSpec:
        """Return the same run on this engine. The engine `flower` is part of the spec, so it changes the id."""
        rest = {key: value for key, value in self.canonical.items() if key != "engine"}
        return RunSpec(rest if engine == spec_keys.SIMULATOR else {**rest, "engine": engine}, self.options)
