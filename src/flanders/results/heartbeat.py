"""The heartbeat of a run: a thread that regularly writes into the results file that the run is being carried out.

Other processes then know that the process of the run is alive.
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
    """Inside the block, write every `HEARTBEAT` seconds that the run is being carried out."""
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
