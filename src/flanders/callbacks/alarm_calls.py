"""The callbacks `Webhook` and `Command`: they send the alarms of a round to a web address or to a command.

An alarm says in a few words what a person should look at; see `flanders.alarms`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from urllib.parse import urlsplit

from flanders.alarms import Alarm, Lookout
from flanders.callbacks.callback import Callback, RunInfo
from flanders.callbacks.measures import plain
from flanders.checks import InputError, check_number
from flanders.client_ids import ClientId
from flanders.record import RoundRecord

MOST_CLIENTS = 100
"""A message lists at most this many clients of an alarm. The limit keeps messages short: an alarm may be about
thousands of clients."""


class AlarmCall(Callback):
    """The base class of `Webhook` and `Command`. It sends a message for each round that has alarms.

    Parameters
    ----------
    seconds
        How long it may take to send a message. After that, the federation goes on, and an error is logged.
    """

    def __init__(self, seconds: float) -> None:
        check_number(type(self).__name__, "seconds", seconds, 0.01)
        self.seconds = seconds
        self._lookout, self._run = Lookout(), ""

    def on_start(self, run: RunInfo) -> None:
        """Remember the name of the run."""
        self._run = run.name

    def on_round(self, record: RoundRecord) -> None:
        """Send the alarms of the round, if it has any."""
        if alarms := self._lookout.look(record):
            self.send(json.dumps(message_of(self._run, record, alarms)).encode())

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Send a message, which is JSON."""


def message_of(run: str, record: RoundRecord, alarms: Sequence[Alarm]) -> dict[str, object]:
    """Return the alarms of a round as a dictionary that can be written as JSON.

    The entry `text` has all alarms in words. Chat services such as Slack and Mattermost show this entry. The entry
    `clients` has the number of clients with each fate, e.g. kept or dropped. Markup and control characters, which
    clients could put into their names, are replaced.
    """
    words = "; ".join(alarm.text for alarm in alarms)
    return {
        "text": plain(f"flanders: {f'{run}, ' if run else ''}round {record.number}: {words}"),
        "run": run,
        "round": record.number,
        "accuracy": None if math.isnan(record.accuracy) else record.accuracy,
        "clients": {str(fate): count for fate, count in record.counts.items()},
        "alarms": [
            {"kind": str(alarm.kind), "text": plain(alarm.text), "clients": _short(alarm.clients)}
            for alarm in alarms
        ],
    }


def _short(clients: Sequence[ClientId]) -> list[int | str]:
    return [client if isinstance(client, int) else plain(client) for client in clients[:MOST_CLIENTS]]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that the message goes only to the address that the user named."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class Webhook(AlarmCall):
    """Send alarms to a web address, as JSON in a POST request.

    Parameters
    ----------
    url
        The address, `https://...` or `http://...`. Redirects are not followed.
    headers
        Further headers of the request, e.g. `{"Authorization": "Bearer ..."}`.
    seconds
        How long to wait for the answer of the web server.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, seconds: float = 5.0) -> None:
        super().__init__(seconds)
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InputError(f"Webhook needs an address that begins with https:// or http://. Got {url!r} instead.")
        self._url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": "flanders", **(headers or {})}
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._thread: threading.Thread | None = None
        self._problem = ""

    def send(self, message: bytes) -> None:
        """Send a message in a thread, and wait for the answer for at most `seconds`."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError(f"{self._place} has not answered the last message yet. The new message is not sent")
        self._problem = ""
        self._thread = threading.Thread(target=self._post, args=(message,), daemon=True)
        self._thread.start()
        self._thread.join(self.seconds)
        # `join` and the request in the thread have the same time limit. Either of them may reach it first.
        if self._thread.is_alive() or self._problem == TimeoutError.__name__:
            raise TimeoutError(f"{self._place} has not answered within {self.seconds:g} seconds")
        if self._problem:
            raise ConnectionError(f"{self._place} did not take the message: {self._problem}")

    def _post(self, message: bytes) -> None:
        request = urllib.request.Request(self._url, message, self._headers, method="POST")
        try:
            self._opener.open(request, timeout=self.seconds).close()
        except urllib.error.HTTPError as error:
            self._problem = f"status {error.code}"
            error.close()
        except (OSError, HTTPException, ValueError) as error:
            self._problem = type(error).__name__

    @property
    def _place(self) -> str:
        """The host name of the address, for error messages. The rest of the address may hold a secret."""
        return str(urlsplit(self._url).hostname)


class Command(AlarmCall):
    """Run a command if a round has alarms. The command gets the alarms as JSON on its standard input.

    The command is started directly, not by a shell. Its arguments hold nothing that a client has sent.

    Parameters
    ----------
    arguments
        The program and its arguments, e.g. `["/usr/local/bin/page-me", "--urgent"]`.
    seconds
        How long the command may take. After that, the command and the processes that it has started are killed.
    """

    def __init__(self, arguments: Sequence[str], *, seconds: float = 10.0) -> None:
        super().__init__(seconds)
        if isinstance(arguments, str) or not arguments or not all(isinstance(word, str) for word in arguments):
            raise InputError(
                "Command needs a list of the program and its arguments, e.g. ['notify', '--urgent']. "
                f"Got {arguments!r} instead."
            )
        self.arguments = tuple(arguments)

    def send(self, message: bytes) -> None:
        """Run the command with a message on its standard input."""
        process = subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.communicate(message, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.arguments[0]} has not ended within {self.seconds:g} seconds") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise ChildProcessError(f"{self.arguments[0]} ended with exit code {process.returncode}")
