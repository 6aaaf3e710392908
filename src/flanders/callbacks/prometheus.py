"""The callback `Prometheus`: serves the numbers of the last round on a page that the tool Prometheus reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flanders.alarms import Lookout
from flanders.callbacks.callback import Callback, RunInfo
from flanders.checks import InputError, check_number
from flanders.extras import needing
from flanders.record import RoundRecord

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

GAUGES = {
    "number": ("flanders_round", "The number of the last round"),
    "accuracy": ("flanders_accuracy", "The accuracy of the global model on the server's examples"),
    "loss": ("flanders_loss", "The loss of the global model on the server's examples"),
    "attack_success": (
        "flanders_attack_success",
        "The share of the targeted examples that the model puts into the class that the attacker wants",
    ),
    "source_accuracy": (
        "flanders_source_accuracy",
        "The share of the targeted examples that the model puts into their true class",
    ),
    "threshold": ("flanders_threshold", "The largest score of a kept client; higher scores are more suspicious"),
}
"""For each of these fields of a `RoundRecord`: the name and the description of its metric in Prometheus."""


class Endpoint:
    """A small web server whose page `/metrics` holds the metrics of one or more runs.

    The fate of a client, such as kept or dropped, says what happened to it in a round.
    """

    def __init__(self, port: int, host: str) -> None:
        with needing("prometheus"):
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        registry = CollectorRegistry()
        self.gauges: dict[str, Gauge] = {
            field: Gauge(name, text, ["run"], registry=registry) for field, (name, text) in GAUGES.items()
        }
        self.clients: Gauge = Gauge(
            "flanders_clients",
            "The number of clients with each fate, in the last round",
            ["run", "fate"],
            registry=registry,
        )
        self.replies: Counter = Counter(
            "flanders_client_rounds",
            "The number of clients with each fate, added up over all rounds",
            ["run", "fate"],
            registry=registry,
        )
        self.seconds: Gauge = Gauge(
            "flanders_seconds",
            "How many seconds each phase of the last round took",
            ["run", "phase"],
            registry=registry,
        )
        self.alarms: Counter = Counter(
            "flanders_alarms", "The number of alarms of each kind in all rounds", ["run", "kind"], registry=registry
        )
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(
                f"Prometheus(port={port}, host={host!r}) cannot listen there: {error}. Choose another port."
            ) from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus(Callback):
    """Serve the numbers of the last round at `http://HOST:PORT/metrics`.

    No metric is about a single client, since there may be too many clients, and clients may choose their ids. The
    page stays until the process ends or `close` is called. So the last round can still be read after the run. The
    callback needs an optional package: `pip install 'flanders-fl[prometheus]'`.

    Parameters
    ----------
    port
        The port. With 0, a free port is chosen, and the attribute `port` says which.
    host
        The address to listen on. The default cannot be reached from other machines. The page has no password.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> metrics = Prometheus(port=0)
    >>> metrics.on_round(RoundRecord(7, accuracy=0.5))
    >>> page = urlopen(f"http://127.0.0.1:{metrics.port}/metrics").read().decode()
    >>> [line for line in page.splitlines() if line.startswith("flanders_accuracy")]
    ['flanders_accuracy{run=""} 0.5']
    >>> metrics.close()
    """

    def __init__(self, port: int = 9464, host: str = "127.0.0.1") -> None:
        check_number("Prometheus", "port", port, 0, 65535, whole=True)
        self._endpoint = Endpoint(port, host)
        self._run, self._lookout = "", Lookout()

    @property
    def port(self) -> int:
        """The port of the page."""
        return self._endpoint.port

    def sibling(self) -> Prometheus:
        """Return a callback that serves the numbers of another run on the same page."""
        other = object.__new__(Prometheus)
        other._endpoint, other._run, other._lookout = self._endpoint, "", Lookout()
        return other

    def on_start(self, run: RunInfo) -> None:
        """Remember the name of the run, which is a label of all metrics."""
        self._run = run.name

    def on_round(self, record: RoundRecord) -> None:
        """Update the metrics."""
        endpoint, run = self._endpoint, self._run
        for field, gauge in endpoint.gauges.items():
            if not math.isnan(value := float(getattr(record, field))):
                gauge.labels(run).set(value)
        for alarm in self._lookout.look(record):
            endpoint.alarms.labels(run, str(alarm.kind)).inc()
        for fate, count in record.counts.items():
            endpoint.clients.labels(run, str(fate)).set(count)
            endpoint.replies.labels(run, str(fate)).inc(count)
        for phase, spent in record.seconds.items():
            endpoint.seconds.labels(run, phase).set(spent)

    def close(self) -> None:
        """Stop serving the page."""
        self._endpoint.close()
