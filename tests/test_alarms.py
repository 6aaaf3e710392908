"""Alarms: each kind is raised when it should be, and only then."""

from __future__ import annotations

import numpy as np
import pytest

import flanders.alarms
from flanders import Defense
from flanders.alarms import AlarmKind, Lookout
from flanders.filters import Fingerprint
from flanders.record import Fate
from round_records import round_record

KEPT, DROPPED, REFUSED, BANNED, SILENT = Fate


def kinds_after(rounds):
    """The kinds of alarms of each round; each round is a list of fates, of the same clients."""
    lookout = Lookout()
    records = [round_record(n, range(len(fates)), fates=fates) for n, fates in enumerate(rounds, start=1)]
    return [[alarm.kind for alarm in lookout.look(record)] for record in records]


def test_a_client_that_is_dropped_three_times_in_a_row_raises_one_alarm():
    alarm = [AlarmKind.DROPPED_IN_A_ROW]
    assert kinds_after([[KEPT, DROPPED]] * 5) == [[], [], alarm, [], []]


def test_a_refused_reply_counts_as_a_dropped_one_and_a_missing_one_does_not_count():
    rounds = [[KEPT, DROPPED], [KEPT, SILENT], [KEPT, REFUSED], [KEPT, BANNED], [KEPT, DROPPED]]
    assert kinds_after(rounds)[-1] == [AlarmKind.DROPPED_IN_A_ROW]
    assert not any(kinds_after(rounds)[:-1])


@pytest.mark.parametrize("fate", [DROPPED, REFUSED])
def test_the_alarm_is_true_of_dropped_and_of_refused_clients(fate):
    lookout = Lookout()
    for number in (1, 2, 3):
        alarms = lookout.look(round_record(number, ["ann", "eve", "bob"], fates=[KEPT, fate, fate]))
    assert [alarm.text for alarm in alarms] == ["2 clients were dropped or refused 3 times in a row: eve, bob"]


def test_being_kept_once_ends_the_row():
    twice = [[KEPT, DROPPED], [KEPT, DROPPED]]
    assert not any(kinds_after([*twice, [KEPT, KEPT], *twice]))
    assert kinds_after([*twice, [KEPT, KEPT], *twice, [KEPT, DROPPED]])[-1] == [AlarmKind.DROPPED_IN_A_ROW]


def test_rounds_in_which_the_client_took_no_part_do_not_count():
    lookout = Lookout()
    for number, clients in enumerate([["eve", "ann"], ["ann"], ["eve", "ann"], ["ann"], ["eve", "ann"]], start=1):
        record = round_record(number, clients, kept=[client == "ann" for client in clients])
        alarms = lookout.look(record)
    assert [alarm.clients for alarm in alarms] == [("eve",)]


def test_a_filter_that_keeps_nobody_accuses_nobody():
    nobody = [AlarmKind.KEPT_NOBODY]
    assert kinds_after([[DROPPED, DROPPED]] * 4) == [nobody] * 4
    rounds = [[KEPT, DROPPED]] * 3 + [[DROPPED, DROPPED]]
    assert kinds_after(rounds)[-1] == nobody


def test_a_round_without_clients_raises_no_alarm():
    assert Lookout().look(round_record(1, [])) == ()


def test_a_model_that_stays_though_clients_were_kept_raises_an_alarm_with_the_reason():
    [alarm] = Lookout().look(round_record(4, [0], stayed=True, note="FedAvg failed"))
    assert (alarm.kind, alarm.round) == (AlarmKind.MODEL_STAYED, 4)
    assert "FedAvg failed" in alarm.text


@pytest.mark.parametrize(
    ("weights", "share"),
    [([70.0, 10.0, 5.0], "82%"), ([1e308, 1e308, 1e308], ""), ([1.0, 1.0], ""), ([5.0], "100%")],
)
def test_a_reply_with_more_than_half_of_the_weight_raises_an_alarm(weights, share):
    found = Lookout().look(round_record(1, range(len(weights)), weight=weights))
    assert [alarm.clients for alarm in found] == ([(0,)] if share else [])
    assert all(share in alarm.text for alarm in found)


def test_only_kept_replies_with_a_weight_count():
    record = round_record(1, range(4), fates=[DROPPED, KEPT, KEPT, SILENT], weight=[99.0, 1.0, 1.0, np.nan])
    assert Lookout().look(record) == ()
    assert Lookout().look(round_record(1, range(2), weight=[np.nan, np.nan])) == ()


def test_wider_limits_raise_an_alarm():
    [alarm] = Lookout().look(round_record(2, [0], widening=2.25))
    assert alarm.kind is AlarmKind.LIMITS_WIDENED
    assert "2.25 times" in alarm.text


def test_names_of_clients_are_short_and_hold_no_control_characters():
    name = "\x1b]0;pwned\x07" + "x" * 500 + "\u202e"
    lookout = Lookout()
    for number in (1, 2, 3):
        [*_, alarm] = [None, *lookout.look(round_record(number, ["a", name], kept=[True, False]))]
    assert alarm.clients == (name,)
    assert len(alarm.text) < 100
    assert alarm.text.isprintable()


def test_made_up_ids_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(flanders.alarms, "MOST_REMEMBERED", 10)
    lookout = Lookout()
    for number in range(1, 6):
        ids = [f"{number}-{i}" for i in range(20)]
        lookout.look(round_record(number, ["ann", *ids], kept=[True, *[False] * 20]))
    assert len(lookout._streaks) == 10


def test_the_filter_that_widens_its_limits_says_so():
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(10, 1000))
    defense = Defense(Fingerprint())
    for t in range(7):
        models = honest * 0.9**t + 0.1 * rng.normal(size=(10, 1000))
        outcome = defense(models * (-1 if t >= 5 else 1), global_model=np.zeros(1000))
        assert outcome.widening == 1.5 ** max(0, t - 5)
        assert outcome.stayed == (t >= 5)
