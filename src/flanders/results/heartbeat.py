"""The heartbeat of a run: a thread that reports that its process is alive."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from flanders.results.claims import HEARTBEAT
from flanders.results.schema import ResultsError
from flanders.results.store import Store


@contextlib.contextmanager
def heartbeat(path: Path, run: str) -> Iterator[None]:
    """Record every few seconds that the run is being carried out, from a thread with its own connection."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT):
            # If the file cannot be written, the main thread will meet the same error and report it.
            with contextlib.suppress(ResultsError), Store(path, create=False) as store:
                store.beat(run)

    thread = threading.Thread(target=beat, name=f"heartbeat {run}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
