from __future__ import annotations

from pathlib import Path

import pytest

from flanders.checks import InputError
from flanders.choices import registry
from flanders.leaderboard.entrants import own_entrants
from flanders.leaderboard.protocol import ALL, CORE, Case, read_protocol

PROTOCOL = read_protocol()


def test_the_protocol_has_the_shares_starts_and_seeds_that_its_page_names():
    assert PROTOCOL.fractions == (0.1, 0.2, 0.4, 0.6, 0.8)
    assert (PROTOCOL.starts, PROTOCOL.rotating) == ((1, 3), (False, True))
    assert PROTOCOL.seeds == (40, 41, 42)
    assert set(PROTOCOL.datasets) == {"digits", "mnist", "fashion-mnist", "cifar10"}


def test_the_core_cases_are_some_of_all_cases_and_none_is_there_twice():
    core, every = PROTOCOL.cases(CORE), PROTOCOL.cases(ALL)
    assert core[0] == every[0] == Case()
    assert len(core) == 1 + 20 * len(PROTOCOL.core)
    assert len(every) == 1 + 20 * len(PROTOCOL.attacks)
    assert set(core) < set(every)
    assert len({case.name for case in every}) == len(every)


def test_shares_of_the_clients_are_whole_numbers_of_clients():
    m = PROTOCOL.federation["num_clients"]
    assert all(float(fraction * m).is_integer() for fraction in PROTOCOL.fractions)


@pytest.mark.parametrize("attack", PROTOCOL.attacks)
def test_every_attack_of_the_protocol_makes_a_run_on_every_data_set(attack):
    plain = own_entrants()[0]
    for dataset in PROTOCOL.datasets:
        run = plain.experiment(PROTOCOL, dataset, Case(attack, 0.4, 3, rotating=True), 40)
        threat = run.setting.threat
        assert (threat.fraction, threat.start, threat.rotating) == (0.4, 3, True)
        assert run.setting.federation.seed == 40
        assert registry("datasets").name_of(run.setting.data.dataset) == dataset


def test_nobody_attacks_in_the_first_case():
    run = own_entrants()[0].experiment(PROTOCOL, "digits", Case(), 40)
    assert not run.setting.threat.exists


def test_an_unknown_data_set_is_told():
    with pytest.raises(InputError, match=r"no dataset 'digit'\. Did you mean 'digits'"):
        PROTOCOL.spec("digit", Case(), 40)


def test_the_page_says_what_the_protocol_says():
    page = " ".join((Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text().split())
    shares = [f"{100 * fraction:g}" for fraction in PROTOCOL.fractions]
    assert f"Version {PROTOCOL.version}." in page
    assert f"| malicious clients | {', '.join(shares[:-1])} and {shares[-1]}% |" in page
    assert f"| core attacks | {', '.join(f'`{name}`' for name in PROTOCOL.core)} |" in page
    assert f"| all attacks | {len(PROTOCOL.attacks)}," in page
    assert f"| clients | {PROTOCOL.federation['num_clients']}, all of them" in page
    assert f"| rounds | {PROTOCOL.federation['rounds']} |" in page
    assert f"one defence: {len(PROTOCOL.cases()) * len(PROTOCOL.seeds)} runs" in page
