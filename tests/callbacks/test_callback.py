from __future__ import annotations

import logging

import numpy as np
import pytest

from flanders import Defense, InputError
from flanders.attacks import Gauss
from flanders.callbacks import Callback, Callbacks, RunInfo
from flanders.filters import DistanceToGlobal
from flanders.record import RoundRecord
from flanders.simulation import Federation, Setting, Simulation, Threat

ROUNDS = [np.random.default_rng(n).normal(size=(6, 4)) for n in range(3)]


class Diary(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append(("start", run.settings))

    def on_round(self, record):
        self.told.append(record)

    def on_end(self):
        self.told.append("end")

    @property
    def rounds(self):
        return [entry for entry in self.told if isinstance(entry, RoundRecord)]


def test_a_defence_tells_each_round_with_its_number_and_the_fate_of_every_client() -> None:
    diary = Diary()
    defense = Defense(DistanceToGlobal(keep=4), callbacks=[diary])
    outcomes = [defense(updates) for updates in ROUNDS]
    assert [record.number for record in diary.rounds] == [1, 2, 3]
    assert [record.clients for record in diary.rounds] == [outcome.clients for outcome in outcomes]
    kind, settings = diary.told[0]
    assert kind == "start"
    assert "DistanceToGlobal(keep=4)" in settings["filter"]


def test_a_loaded_defence_goes_on_with_the_numbers_of_the_rounds(tmp_path) -> None:
    before = Defense(DistanceToGlobal(keep=4))
    before(ROUNDS[0])
    before.save(tmp_path / "state")
    diary = Diary()
    after = Defense(DistanceToGlobal(keep=4), callbacks=[diary])
    after.load(tmp_path / "state")
    after(ROUNDS[1])
    assert diary.rounds[0].number == 2


def test_a_round_that_kept_nobody_is_told_as_such() -> None:
    diary = Diary()
    Defense(callbacks=[diary])(np.full((3, 2), np.nan))
    assert diary.rounds[0].stayed


def test_a_simulation_tells_the_records_that_it_yields_and_its_end() -> None:
    diary = Diary()
    threat = Threat(Gauss(), fraction=0.5)
    setting = Setting(federation=Federation(num_clients=4, rounds=2), threat=threat)
    records = list(Simulation(setting, callbacks=[diary]).run())
    assert diary.rounds == records
    assert diary.told[-1] == "end"
    assert "Gauss" in diary.told[0][1]["threat"]


def test_a_function_of_the_record_is_a_callback() -> None:
    numbers = []
    defense = Defense(callbacks=[lambda record: numbers.append(record.number)])
    for updates in ROUNDS:
        defense(updates)
    assert numbers == [1, 2, 3]


def test_an_object_that_only_has_on_round_is_a_callback() -> None:
    class Plain:
        count = 0

        def on_round(self, record):
            self.count += 1

    plain = Plain()
    callbacks = Callbacks("test", [plain])
    callbacks.start(RunInfo("run"))
    callbacks.tell(RoundRecord(1))
    callbacks.end()
    assert plain.count == 1


def test_a_callback_that_raises_does_not_stop_the_round_and_is_logged_once(caplog) -> None:
    class Broken(Diary):
        def on_round(self, record):
            super().on_round(record)
            raise RuntimeError("no disk")

    broken, diary = Broken(), Diary()
    callbacks = Callbacks("test", [broken, diary])
    callbacks.start(RunInfo("run"))
    with caplog.at_level(logging.ERROR, logger="flanders"):
        for number in (1, 2, 3):
            callbacks.tell(RoundRecord(number))
        assert len(caplog.records) == 1
        assert "the callback Broken failed (RuntimeError: no disk). The round is not affected." in caplog.text
        callbacks.end()
    assert "the callback Broken failed 3 times" in caplog.text
    assert [record.number for record in broken.rounds] == [1, 2, 3]  # it is tried again each time
    assert [record.number for record in diary.rounds] == [1, 2, 3]  # others are told all the same
    assert diary.told[-1] == "end"


@pytest.mark.parametrize("wrong", [[3], [Diary], ["tensorboard"], 7, Diary()])
def test_what_is_not_a_callback_is_refused(wrong) -> None:
    with pytest.raises(InputError, match="`callbacks`"):
        Defense(callbacks=wrong)


def test_an_interrupt_inside_a_callback_is_not_swallowed() -> None:
    def interrupted(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Defense(callbacks=[interrupted])(ROUNDS[0])
