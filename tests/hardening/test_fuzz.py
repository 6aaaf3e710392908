"""The first cases of every kind of hostile input do no harm, and the fuzzer notices when one does."""

from __future__ import annotations

import pytest

from hardening import fuzz
from hardening.choices import Choices, damaged
from hardening.targets.target import CORPUS, Target
from hardening.verdicts import HonestRefused, NonFiniteModel, Verdict

CASES = {"replies": 20, "arrays": 60, "states": 60, "results": 30, "specs": 80, "datasets": 80, "trails": 80}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_the_first_hostile_inputs_do_no_harm(name, tmp_path):
    target = fuzz.TARGETS[name]()
    target.prepare(tmp_path)
    found = [fuzz.try_case(target, number) for number in range(len(target.corpus) + CASES[name])]
    assert [(case.number, case.words) for case in found if case.verdict is not Verdict.FINE] == []
    assert sum(case.tried for case in found) >= CASES[name]


def test_every_target_that_reads_files_has_a_corpus():
    assert {path.name for path in CORPUS.iterdir()} <= set(fuzz.TARGETS)
    assert all(fuzz.TARGETS[name]().corpus for name in ("states", "results", "specs", "datasets", "trails"))


class Harmful(Target):
    name = "harmful"

    def attack(self, choices, replay):
        raise self.error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (KeyError("x"), Verdict.TRACEBACK),
        (RecursionError(), Verdict.TRACEBACK),
        (NonFiniteModel("x"), Verdict.NON_FINITE),
        (HonestRefused("x"), Verdict.SILENCED),
    ],
)
def test_harm_is_noticed(error, verdict):
    target = Harmful()
    target.error = error
    assert fuzz.try_case(target, 3).verdict is verdict


def test_a_case_is_the_same_each_time():
    target = Harmful()
    one, other = (fuzz.input_of(target, 7, 0)[0].take(100) for _ in range(2))
    assert one == other
    assert one != fuzz.input_of(target, 8, 0)[0].take(100)
    assert one != fuzz.input_of(target, 7, 1)[0].take(100)
    assert damaged(b"abc" * 50, Choices(one)) == damaged(b"abc" * 50, Choices(other))


def test_the_table_counts_what_came_of_each_case():
    tally = fuzz.Tally("states")
    target = Harmful()
    target.error = KeyError("x")
    tally.add(fuzz.try_case(target, 0), 0.5)
    rows = [line.split() for line in fuzz.table([tally]).splitlines()]
    assert rows[1] == ["states", "1", "1", "1", "0", "0", "0", "0.5", "s"]
    assert list(tally.findings.values()) == [0]


@pytest.mark.slow
def test_processes_of_their_own_come_to_the_same_verdicts():
    tally = fuzz.fuzz("trails", cases=20)
    assert (tally.cases, tally.verdicts[Verdict.FINE]) == (20, 20)


@pytest.mark.slow
def test_a_hang_is_killed_and_counted(monkeypatch):
    monkeypatch.setattr(fuzz, "SLOWEST", 0.001)
    tally = fuzz.fuzz("replies", cases=2)
    assert tally.verdicts[Verdict.HANG] >= 1


def test_a_process_that_computes_too_long_or_says_nothing_for_too_long_does_not_answer(monkeypatch):
    class Silent:
        polls = 0

        def poll(self, seconds):
            Silent.polls += 1
            return Silent.polls > 5

    spent = iter([0.0, 0.4, 0.8, 1.2, 1.6, 2.0])
    monkeypatch.setattr(fuzz, "cpu_seconds", lambda process: next(spent))
    monkeypatch.setattr(fuzz, "SLOWEST", 1.0)
    assert not fuzz.answers(Silent(), 1, 1.0)
    Silent.polls = 0
    monkeypatch.setattr(fuzz, "cpu_seconds", lambda process: 0.0)
    assert fuzz.answers(Silent(), 1, 1.0)
    Silent.polls = 0
    monkeypatch.setattr(fuzz, "LONGEST", 0.0)
    assert not fuzz.answers(Silent(), 1, 1.0)
