"""Following a file: only what is new is read, and what was rewritten is read again."""

from __future__ import annotations

import sqlite3

import pytest

import flanders.watch.feed
from flanders.results.rounds import read_rounds
from flanders.watch.feed import Feed


@pytest.fixture
def reads(monkeypatch):
    """The rounds after which the file is read, call by call."""
    found = []

    def spying(connection, run, after=0):
        found.append(after)
        return read_rounds(connection, run, after)

    monkeypatch.setattr(flanders.watch.feed, "read_rounds", spying)
    return found


def test_a_file_that_is_not_there_yet_is_waited_for(results, writer):
    feed = Feed(results)
    assert "no results at" in feed.results()["problem"]
    one = writer()
    assert feed.results()["order"] == [one.id]
    assert feed.results()["problem"] == ""


def test_only_new_rounds_are_read(results, writer, reads):
    one = writer()
    one.write(3)
    feed = Feed(results)
    feed.results()
    one.write()
    feed.results()
    feed.results()
    assert reads == [0, 3]
    cells = feed.cells(one.id, 0, 4, "")
    one.write()
    feed.results()
    more = feed.cells(one.id, 4, 5, cells["epoch"])
    assert (more["since"], more["epoch"]) == (4, cells["epoch"])
    assert reads == [0, 3, 0, 4, 4]


def test_a_page_gets_only_the_runs_that_have_changed(results, writer):
    one, two = writer(), None
    one.write(2)
    feed = Feed(results)
    first = feed.results()
    assert list(first["runs"]) == [one.id]
    assert feed.results(first["version"])["runs"] == {}
    one.write()
    second = feed.results(first["version"])
    assert second["runs"][one.id]["rounds"] == [1, 2, 3]
    two = writer(run=None if two else one_more())
    third = feed.results(second["version"])
    assert list(third["runs"]) == [one.id, two.id]  # another run may change the labels of all
    assert feed.results("of-another-server")["runs"].keys() == third["runs"].keys()


def one_more():
    from flanders.results.run import RunSpec

    return RunSpec(
        {
            "data": {"dataset": {"name": "digits"}},
            "federation": {"num_clients": 4, "rounds": 9, "seed": 1},
            "filter": {"name": "guard"},
            "aggregator": {"name": "fedavg"},
        }
    )


def test_an_accuracy_that_comes_after_the_round_is_shown(results, writer, reads):
    one = writer()
    one.write(accuracy=float("nan"))
    feed = Feed(results)
    assert feed.results()["runs"][one.id]["cells"]["final"] is None
    one.rewrite(1, accuracy=0.75)
    assert feed.results()["runs"][one.id]["cells"]["final"] == 0.75
    assert reads == [0]


def test_rounds_that_were_written_again_are_read_again(results, writer):
    one = writer()
    one.write(4)
    feed = Feed(results)
    before = feed.results()["runs"][one.id]
    cells = feed.cells(one.id, 0, 4, "")
    one.rewrite(2, kept=[True] * 4, note="resumed")
    after = feed.results()["runs"][one.id]
    assert before["fates"]["dropped"] == 4
    assert after["fates"]["dropped"] == 3
    assert after["epoch"] != before["epoch"]
    again = feed.cells(one.id, 4, 4, cells["epoch"])
    assert (again["since"], again["shown"]) == (0, 4)


def test_alarms_are_found_as_rounds_come(results, writer):
    one = writer()
    one.write(2)
    feed = Feed(results)
    assert feed.results()["runs"][one.id]["alarms"] == []
    one.write()
    [alarm] = feed.results()["runs"][one.id]["alarms"]
    assert (alarm["kind"], alarm["round"], alarm["clients"]) == ("dropped-in-a-row", 3, ["eve"])


def test_a_run_that_is_done_is_not_read_again_until_it_is_reopened(results, writer, reads):
    one = writer()
    one.write(last=True)
    feed = Feed(results)
    feed.results()
    one.store.reopen(one.id)
    one.store.claim([one.id])
    one.write()
    assert feed.results()["runs"][one.id]["rounds"] == [1, 2]
    assert reads == [0, 1]


def test_odd_rows_are_left_out_and_all_runs_go_on(results, writer):
    one, two = writer(), writer(one_more())
    one.write(2)
    two.write(2)
    with sqlite3.connect(results) as connection:
        connection.execute("UPDATE client SET fate = 'eaten' WHERE run = ? AND round = 2", (one.id,))
    runs = Feed(results).results()["runs"]
    assert [runs[each.id]["status"] for each in (one, two)] == ["running", "running"]
    assert [runs[each.id]["rounds"] for each in (one, two)] == [[1, 2], [1, 2]]


def test_few_runs_are_kept_with_their_clients(results, writer, monkeypatch):
    monkeypatch.setattr(flanders.watch.feed, "LOOKED_AT", 1)
    one, two = writer(), writer(one_more())
    one.write()
    two.write()
    feed = Feed(results)
    feed.results()
    assert feed.cells(one.id, 0, 1, "")["shown"] == 4
    assert feed.cells(two.id, 0, 1, "")["shown"] == 4
    assert list(feed._looked_at) == [two.id]
    assert feed.cells("none", 0, 1, "") is None


def test_following_changes_nothing_in_the_file(results, writer):
    one = writer()
    one.write(2)
    one.store.close()
    before = results.read_bytes()
    feed = Feed(results)
    feed.results()
    feed.cells(one.id, 0, 2, "")
    assert results.read_bytes() == before


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "\u0663", "-1", "1e3", ""])
def test_a_version_that_no_page_has_gets_everything(results, writer, number):
    one = writer()
    feed = Feed(results)
    boot = feed.results()["version"].partition("-")[0]
    assert list(feed.results(f"{boot}-{number}")["runs"]) == [one.id]
