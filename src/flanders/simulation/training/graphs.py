"""The class `Recordings`, which records training steps on a GPU as CUDA graphs.

A step is recorded once and then replayed. A replay launches all operations of the step at once, which saves time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable

import torch

WARM_UP = 2
"""How often a step runs as usual before it is recorded. Libraries initialise themselves in the first runs."""
MOST = 128
"""The most recordings that are made, since each uses memory. Further steps run without a recording."""

log = logging.getLogger("flanders")


class Recordings:
    """Runs functions that do the same operations on the same memory in every call.

    On a GPU, it records a function and then replays the recording instead of calling the function. If a recording
    fails, it calls the functions from then on. On a CPU, it always calls the functions.
    """

    def __init__(self, device: torch.device, *, enabled: bool = True) -> None:
        self._enabled = enabled and device.type == "cuda"
        self._seen: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._enabled else None

    def run(self, name: Hashable, step: Callable[[], None]) -> None:
        """Run `step`, or replay its recording. Steps with the same `name` must do the same operations."""
        if not self._enabled:
            step()
            return
        if name in self._graphs:
            self._graphs[name].replay()
            return
        self._seen[name] += 1
        if self._seen[name] <= WARM_UP or len(self._graphs) >= MOST or not self._record(name, step):
            step()
            return
        self._graphs[name].replay()

    def _record(self, name: Hashable, step: Callable[[], None]) -> bool:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:  # e.g. a module that branches on values
            log.info("training steps run without CUDA graphs: %s", error)
            torch.cuda.synchronize()
            self._enabled = False
            return False
        self._graphs[name] = graph
        return True
