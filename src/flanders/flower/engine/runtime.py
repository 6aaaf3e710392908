"""Flower's simulation runtime, started and ended around the rounds of a run."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flanders.checks import InputError

POLL = 0.05
"""Seconds between two looks for what is new."""


@dataclass(frozen=True)
class Link:
    """A running federation: the grid to reach its nodes by, and a check that raises if it has died."""

    grid: Grid
    check: Callable[[], None]


Runtime = Callable[[ClientApp, int, float], AbstractContextManager[Link]]
"""Starts a ClientApp on so many nodes, each with its share of a GPU, and ends it."""


@contextlib.contextmanager
def ray_runtime(app: ClientApp, num_nodes: int, gpus: float = 0.0) -> Iterator[Link]:
    """Run a ClientApp on Ray, a core for each client at work.

    Flower has its ServerApp own the loop. Ours waits in a thread and lends its grid, so that whoever
    carries out the run can save, stop and resume it round by round.
    """
    need_ray()
    from flwr.simulation import run_simulation

    lent: list[Grid] = []
    problems: list[BaseException] = []
    over = threading.Event()
    server = ServerApp()

    @server.main()
    def lend(grid: Grid, context: Context) -> None:
        lent.append(grid)
        over.wait()

    def serve() -> None:
        config: dict[str, Any] = {
            "client_resources": {"num_cpus": 1, "num_gpus": gpus},
            "init_args": {"log_to_driver": False, "logging_level": "error"},
        }
        try:
            run_simulation(server, app, num_nodes, backend_config=config)
        except BaseException as error:
            problems.append(error.__cause__ or error)
        finally:
            over.set()

    thread = threading.Thread(target=serve, name="flower runtime", daemon=True)

    def check() -> None:
        if not thread.is_alive():
            reason = f": {problems[0]}" if problems else ""
            raise RuntimeError(f"Flower's simulation runtime ended{reason}")

    with quiet():
        thread.start()
        try:
            while not lent or len(list(lent[0].get_node_ids())) < num_nodes:
                check()
                time.sleep(POLL)
            yield Link(lent[0], check)
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hear only of errors from Flower and Ray inside: whoever carries out the run tells of its rounds."""
    logs = [logging.getLogger(name) for name in ("flwr", "ray")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def need_ray() -> None:
    """Complain if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise InputError(
            "Flower's simulation runtime needs Ray, which is not installed. "
            "Install it with: pip install 'flanders-fl[flower-sim]'."
        )
