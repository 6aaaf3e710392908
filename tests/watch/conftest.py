from __future__ import annotations

import threading

import pytest

from flanders.results.run import RunSpec
from flanders.results.store import Store
from flanders.watch.server import listen, make_app, make_server
from round_records import round_record

TOKEN = "correct horse battery staple"


def spec(seed=0, name="guard"):
    return RunSpec(
        {
            "data": {"dataset": {"name": "digits"}},
            "federation": {"num_clients": 4, "rounds": 9, "seed": seed},
            "filter": {"name": name},
            "aggregator": {"name": "fedavg"},
        }
    )


def a_round(number, **changes):
    """Four clients, of which `eve` is dropped."""
    fields = {
        "kept": [True, True, True, False],
        "score": [0.1, 0.2, 0.3, 9.0 + number],
        "reason": ["", "", "", "a copy of another client's update"],
        "accuracy": 0.5 + number / 100,
        **changes,
    }
    return round_record(number, ["ann", "bob", "cid", "eve"], **fields)


class Writer:
    """Writes a run as a simulation does, one round at a time."""

    def __init__(self, path, run=None):
        self.store = Store(path)
        [self.id] = self.store.add([run or spec()], {})
        self.store.claim([self.id])
        self.number = 0

    def write(self, count=1, *, last=False, **changes):
        for _ in range(count):
            self.number += 1
            self.store.write_round(self.id, a_round(self.number, **changes), last=last)

    def rewrite(self, number, **changes):
        self.store.write_round(self.id, a_round(number, **changes))


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def writer(results):
    opened = []

    def open_(run=None):
        opened.append(Writer(results, run))
        return opened[-1]

    yield open_
    for one in opened:
        one.store.close()


@pytest.fixture
def serve(results):
    """Starts the real server on a free port and returns its address."""
    running = []

    def start(host="127.0.0.1", token=None):
        listening = listen("127.0.0.1", 0)
        server = make_server(make_app(results, host, token))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        running.append((server, thread, listening))
        return f"http://127.0.0.1:{listening.getsockname()[1]}/"

    yield start
    for server, thread, listening in running:
        server.should_exit = True
        thread.join(300)
        assert not thread.is_alive()
        listening.close()
