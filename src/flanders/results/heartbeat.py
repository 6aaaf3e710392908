"""Says, while a run is at work, that it still is."""

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
    """Say every few seconds, from a thread with a connection of its own, that the run is being worked on."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT):
            with contextlib.suppress(ResultsError), Store(path, create=False) as store:  # the main thread will tell
                store.beat(run)

    thread = threading.Thread(target=beat, name=f"heartbeat {run}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
