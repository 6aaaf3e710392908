from __future__ import annotations

from flanders.flower.bans import Ban, BanList


def test_every_round_in_which_a_client_is_kept_takes_one_offence_back() -> None:
    ban, bans = Ban(after=5, rounds=2), BanList({"a": 3, "b": 1})
    for number, left in ((1, {"a": 2}), (2, {"a": 1}), (3, {})):
        bans = bans.after_round(ban, number, offenders=[], kept=["a", "b"])
        assert bans.offences == left
