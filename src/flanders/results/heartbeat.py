"""The heartbeat of a run: while a process carries out the run, a thread regularly notes this in the results file.

These notes tell other processes that the process of the run is alive.
"""

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
    """While the `with` block runs, note every `HEARTBEAT` seconds that this process carries out the run."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT):
            # If the file cannot be written, the main thread gets the same error and reports it.
            with contextlib.suppress(ResultsError), Store(path, create=False) as store:
                store.beat(run)

    thread = threading.Thread(target=beat, name=f"heartbeat {run}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
