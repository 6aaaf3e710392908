from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders.attacks import Ipm, Mimic, Static, View
from flanders.checks import InputError

BENIGN = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
VIEW = View(
    own=np.array([[7.0, 7.0], [8.0, 8.0]]),
    global_model=np.zeros(2),
    num_clients=5,
    clients=(4, "a"),
    benign=BENIGN,
    benign_clients=("b", 10, 9),
)


def test_mimic_copies_the_first_benign_client_in_sorted_order() -> None:
    assert np.array_equal(Mimic()(VIEW), [[3.0, 3.0], [3.0, 3.0]])  # 9, before 10, before any name


def test_mimic_copies_the_client_it_was_told_to_even_one_of_its_own() -> None:
    assert np.array_equal(Mimic(client="b")(VIEW), BENIGN[[0, 0]])
    assert np.array_equal(Mimic(client="a")(VIEW), VIEW.own[[1, 1]])


def test_mimic_without_knowledge_of_others_copies_its_own_first() -> None:
    alone = replace(VIEW, benign=None, benign_clients=())
    assert np.array_equal(Mimic()(alone), VIEW.own[[0, 0]])
    with pytest.raises(InputError, match="the attacker knows only the models of 4, 'a'"):
        Mimic(client="b")(alone)


def test_mimic_needs_no_ids_to_copy_somebody() -> None:
    assert np.array_equal(Mimic()(replace(VIEW, benign_clients=())), BENIGN[[0, 0]])


def test_static_sends_its_first_poisoned_model_for_ever() -> None:
    attack, rng = Static(), np.random.default_rng(0)
    first = attack.craft(VIEW, rng)
    assert np.array_equal(first, [[-7.0, -7.0], [-7.0, -7.0]])  # the first client's step, turned
    memory = attack.remember(VIEW, first)
    later = replace(VIEW, own=np.full((3, 2), 50.0), clients=(1, 2, 3), num_clients=6, memory=memory)
    assert np.array_equal(attack.craft(later, rng), np.full((3, 2), -7.0))
    assert attack.remember(later, attack.craft(later, rng)) is memory


def test_static_does_not_take_an_honest_round_before_the_attack_for_its_own() -> None:
    attack = Static()
    assert attack.remember(VIEW, VIEW.own) is None
    assert attack.remember(VIEW, VIEW.own + 1) is not None


def test_static_can_freeze_any_attack() -> None:
    assert np.array_equal(Static(base=Ipm())(VIEW), [[-1.0, -1.0], [-1.0, -1.0]])
    with pytest.raises(InputError, match="`base` parameter of Static must be an Attack"):
        Static(base="imp")
