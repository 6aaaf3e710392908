from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flanders import InputError
from flanders.callbacks import Callbacks, Command, RunInfo, Webhook
from round_records import round_record

NASTY = "$(touch pwned); `touch pwned` <!channel> \x1b[2J\n--flag"
"""An id that a client may choose."""
PATIENCE = 300.0
"""Seconds for what has to come at some time. No busy machine takes as long."""


def three_bad_rounds(callback, name=NASTY):
    callbacks = Callbacks("test", [callback])
    callbacks.start(RunInfo("guard"))
    for number in (1, 2, 3):
        callbacks.tell(round_record(number, ["ann", name], kept=[1, 0]))
    callbacks.end()


class Receiver(ThreadingHTTPServer):
    """A web server that writes down what it gets."""

    daemon_threads = True

    def __init__(self, status=200, pause=None, location=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.pause, self.location = status, pause, location
        self.got = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/secret-path"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        """Say nothing if nobody waits for the answer any more: another test may listen by then."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), json.loads(body)))
        if self.server.pause is not None:
            self.server.pause.wait()
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_webhook_gets_one_message_for_a_round_with_alarms() -> None:
    with Receiver() as server:
        three_bad_rounds(Webhook(server.url, {"Authorization": "Bearer x"}, seconds=PATIENCE))
    ((path, headers, message),) = server.got
    assert path == "/secret-path"
    assert headers["Authorization"] == "Bearer x"
    assert (message["run"], message["round"], message["accuracy"]) == ("guard", 3, None)
    assert message["clients"]["dropped"] == 1
    assert message["alarms"][0]["kind"] == "dropped-in-a-row"
    assert "was dropped or refused 3 times in a row" in message["text"]
    assert "<" not in message["text"]
    assert "\x1b" not in json.dumps(message)


def test_a_webhook_that_does_not_answer_costs_a_bounded_time(caplog) -> None:
    pause = threading.Event()
    with Receiver(pause=pause) as server, caplog.at_level(logging.ERROR, logger="flanders"):
        try:
            three_bad_rounds(Webhook(server.url, seconds=0.05))
        finally:
            pause.set()
    assert "127.0.0.1 has not answered within 0.05 seconds" in caplog.text
    assert "secret-path" not in caplog.text  # an address may hold a secret


def test_a_webhook_follows_no_redirect(caplog) -> None:
    with Receiver() as elsewhere, Receiver(307, location=elsewhere.url) as server:
        three_bad_rounds(Webhook(server.url, seconds=PATIENCE))
    assert len(server.got) == 1
    assert elsewhere.got == []
    assert "127.0.0.1 did not take the message: status 307" in caplog.text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "example.org", "ftp://example.org/", "", 7])
def test_a_webhook_needs_a_web_address(url) -> None:
    with pytest.raises(InputError, match="Webhook needs an address that begins with https://"):
        Webhook(url)


def test_a_command_gets_alarms_on_its_input_and_no_word_of_a_client_as_an_argument(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import json, sys; json.dump([sys.argv, json.load(sys.stdin)], open('got.json', 'w'))"
    three_bad_rounds(Command([sys.executable, "-c", code, "--urgent"], seconds=PATIENCE))
    arguments, message = json.loads((tmp_path / "got.json").read_text())
    assert arguments == ["-c", "--urgent"]
    assert "touch pwned" in message["alarms"][0]["clients"][0]
    assert sorted(os.listdir(tmp_path)) == ["got.json"]


def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path, caplog, monkeypatch) -> None:
    pid = tmp_path / "pid"

    class Begun(subprocess.Popen):
        """A process whose time begins when its child is there."""

        def communicate(self, *arguments, **options):
            wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
            return super().communicate(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Begun)
    three_bad_rounds(Command(["/bin/sh", "-c", f"sleep 3600 & echo $! > {pid}; wait"], seconds=0.3))
    assert "/bin/sh has not ended within 0.3 seconds" in caplog.text
    wait_until(lambda: not alive(int(pid.read_text())))  # it is gone as soon as the system has buried it


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_that_fails_is_told(caplog) -> None:
    three_bad_rounds(Command([sys.executable, "-c", "raise SystemExit(3)"], seconds=PATIENCE))
    assert "ended with exit code 3" in caplog.text
    caplog.clear()
    three_bad_rounds(Command(["no-such-program"]))
    assert "the callback Command failed (FileNotFoundError" in caplog.text


@pytest.mark.parametrize("wrong", ["notify me", [], [3]])
def test_a_command_is_a_list_of_words(wrong) -> None:
    with pytest.raises(InputError, match="Command needs a list of the program and its arguments"):
        Command(wrong)
