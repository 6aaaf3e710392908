from __future__ import annotations

import sys
import urllib.request

import pytest

from flanders import InputError
from flanders.callbacks import Callback, Command
from flanders.experiments.events import RoundEnded, RunEnded, RunStarted
from flanders.experiments.run_callbacks import READERS, GridCallbacks, parse_callback
from round_records import round_record

SPECS = {name: {"filter": {"name": name}, "federation": {"seed": 0}} for name in ("guard", "krum")}
NAMES = {"guard": "lie 0.2, guard", "krum": "lie 0.2, krum"}


class Diary(Callback):
    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append((run.name, run.id, run.settings["filter.name"]))

    def on_round(self, record):
        self.told.append(record.number)

    def on_end(self):
        self.told.append("end")


def events():
    """Return the events of two runs that go on at the same time."""
    rounds = [RoundEnded(run, round_record(number, [0])) for number in (1, 2) for run in SPECS]
    return [*(RunStarted(run, run, 2, 0) for run in SPECS), *rounds, RunEnded("guard", "done")]


def test_each_run_of_a_grid_has_callbacks_of_its_own() -> None:
    diaries = {}

    def make(run):
        return diaries.setdefault(run.id, Diary())

    callbacks = GridCallbacks([make], NAMES, SPECS)
    for event in events():
        callbacks(event)
    assert diaries["guard"].told == [("lie 0.2, guard", "guard", "guard"), 1, 2, "end"]
    assert diaries["krum"].told == [("lie 0.2, krum", "krum", "krum"), 1, 2]
    callbacks.close()  # as if the grid had been interrupted
    assert diaries["krum"].told[-1] == "end"


def test_tensorboard_has_a_folder_for_each_run(tmp_path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    callbacks = GridCallbacks([parse_callback(f"tensorboard={tmp_path / 'board'}")], NAMES, SPECS)
    for event in events():
        callbacks(event)
    callbacks.close()
    assert sorted(path.name for path in (tmp_path / "board").iterdir()) == [
        "lie-0.2-guard-guard",
        "lie-0.2-krum-krum",
    ]


def test_all_runs_are_on_one_page_of_prometheus() -> None:
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    make = parse_callback("prometheus=0")
    callbacks = GridCallbacks([make], NAMES, SPECS)
    for event in events():
        callbacks(event)
    page = make(None)
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics") as answer:
        text = answer.read().decode()
    page.close()
    assert all(f'flanders_round{{run="{name}"}} 2.0' in text for name in NAMES.values())


def test_a_command_is_split_as_a_shell_would_but_run_by_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(Command.__init__.__kwdefaults__, "seconds", 300.0)  # a busy machine starts Python slowly
    out = tmp_path / "a file"
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
    callbacks = GridCallbacks(
        [parse_callback(f"command={sys.executable} -c '{code}' '{out}' '$HOME;ls'")], NAMES, SPECS
    )
    callbacks(RunStarted("guard", "guard", 3, 0))
    callbacks(RoundEnded("guard", round_record(1, ["eve"], kept=[0])))
    callbacks.close()
    assert out.read_text() == "$HOME;ls"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensorbord=x", "There is no callback 'tensorbord'. Did you mean 'tensorboard'"),
        ("prometheus=http", "needs the number of a port"),
        ("webhook=example.org", "begins with https://"),
        ("command=", "needs a list of the program"),
        ("command='", "cannot be split into words"),
    ],
)
def test_a_callback_that_cannot_be_is_told_before_anything_runs(text, message) -> None:
    with pytest.raises(InputError, match=message):
        parse_callback(text)


def test_the_help_names_every_callback() -> None:
    from flanders.cli.parser import make_parser

    run = next(sub for sub in make_parser().commands if sub.prog.endswith(" run"))
    text = " ".join(run.format_help().split())
    assert all(name in text for name in READERS)
