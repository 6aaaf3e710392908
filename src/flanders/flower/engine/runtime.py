"""Functions that start Flower's simulation runtime before the rounds of a run, and stop it afterwards.

`FlowerSimulation` uses them. The runtime starts the nodes, as processes of Ray.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flanders.extras import MissingExtra

POLL = 0.05
"""Seconds between two checks for new replies, or for nodes that start. A round may take less than a second."""
SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Values of environment variables. The first three stop Flower and Ray from sending usage reports and from looking
for updates. The last one silences a warning of Ray about a change in its later versions."""


@dataclass(frozen=True)
class Link:
    """The connection to the running nodes."""

    grid: Grid
    """The grid that sends messages to the nodes."""
    check: Callable[[], None]
    """Raises an error if the nodes have died."""


Runtime = Callable[[ClientApp, int, float], AbstractContextManager[Link]]
"""A function that takes a ClientApp, the number of nodes, and the share of a GPU for each client that trains. It
returns a context manager that runs the nodes during its `with` block."""


@contextlib.contextmanager
def ray_runtime(app: ClientApp, num_nodes: int, gpus: float = 0.0) -> Iterator[Link]:
    """Run a ClientApp on Ray during the `with` block, with one CPU core for each client that trains.

    In Flower the ServerApp normally carries out the rounds. The ServerApp here only passes its grid to the caller,
    and waits in a thread until the block ends. So the caller carries out the rounds, and can stop after any round.
    """
    need_ray()
    stop_reports()
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
        try:
            run_simulation(
                server,
                app,
                num_nodes,
                backend_config={
                    "client_resources": {"num_cpus": 1, "num_gpus": gpus},
                    "init_args": {"log_to_driver": False, "logging_level": "error"},
                },
            )
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
    """Silence the logs of Flower and Ray during the `with` block, except for errors."""
    logs = [logging.getLogger(name) for name in ("flwr", "ray")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def stop_reports() -> None:
    """Set the variables in `SWITCHES`, except for those that the user has set."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    with contextlib.suppress(ImportError):
        # Flower read the variable when it was imported, so its module must be changed, too.
        from flwr.supercore import telemetry

        telemetry.FLWR_TELEMETRY_ENABLED = os.environ["FLWR_TELEMETRY_ENABLED"]


def need_ray() -> None:
    """Raise a `MissingExtra` if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra(
            "Flower's simulation runtime needs Ray, which is not installed. "
            "Install it with: pip install 'flanders-fl[flower-sim]'."
        )
