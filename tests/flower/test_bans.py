from __future__ import annotations

from flanders.flower.bans import Ban, BanList


def test_every_round_in_which_a_client_is_kept_takes_one_offence_back() -> None:
    ban, bans = Ban(after=5, rounds=2), BanList({"a": 3, "b": 1}, {}, {"a": 0, "b": 0})
    for number, left in ((1, {"a": 2}), (2, {"a": 1}), (3, {})):
        bans = bans.after_round(ban, number, offenders=[], kept=["a", "b"])
        assert bans.offences == left


def test_offences_of_clients_that_never_come_back_are_forgotten() -> None:
    """Ten new ids commit an offence in each of 1,000 rounds."""
    ban, bans, most = Ban(after=3, rounds=5), BanList(), 0
    for number in range(1, 1001):
        bans = bans.after_round(ban, number, offenders=[f"{number}-{i}" for i in range(10)], kept=["honest"])
        most = max(most, len(bans.offences))
    assert most <= 10 * 106
    assert set(bans.latest) == set(bans.offences)


def test_an_offender_on_parole_is_not_forgotten_during_its_ban() -> None:
    ban, bans = Ban(after=2, rounds=300), BanList()
    for number in (1, 2):
        bans = bans.after_round(ban, number, offenders=["a"], kept=[])
    for number in range(3, 303):
        bans = bans.after_round(ban, number, offenders=[], kept=["b"])
    assert bans.offences == {"a": 1}


def test_a_flood_of_banned_ids_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("flanders.flower.bans.MOST_REMEMBERED", 20)
    ban, bans = Ban(after=1, rounds=10**6), BanList()
    for number in range(1, 50):
        bans = bans.after_round(ban, number, offenders=[f"{number}-{i}" for i in range(10)], kept=[])
    assert len(bans.until) == 20
    assert bans.is_banned("49-0", 60)
