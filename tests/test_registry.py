from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import flanders
from flanders import AGGREGATORS, ATTACKS, FILTERS, PREAGGREGATORS
from flanders.checks import InputError
from flanders.registry import REQUIRED, Registry


@dataclass(frozen=True)
class Tea:
    """Steep leaves
    in water.

    More about it.
    """

    leaves: str
    minutes: int = 3
    extras: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class Water:
    """Pour."""


DRINKS: Registry[object] = Registry("drink", {"tea": Tea, "water": Water})


def test_an_entry_is_made_by_its_name_and_parameters() -> None:
    assert DRINKS.make("tea", leaves="green") == Tea("green")
    assert DRINKS.make("water") == Water()


def test_a_registry_is_a_mapping_in_the_order_of_its_entries() -> None:
    assert list(DRINKS) == ["tea", "water"]
    assert len(DRINKS) == 2
    assert "tea" in DRINKS
    assert "coffee" not in DRINKS
    assert DRINKS["tea"] is Tea
    assert dict(DRINKS) == {"tea": Tea, "water": Water}
    assert DRINKS.get("coffee") is None
    assert DRINKS.get("tea") is Tea
    assert ["tea"] not in DRINKS


@pytest.mark.parametrize("ask", [DRINKS.__getitem__, DRINKS.make, DRINKS.describe])
def test_an_unknown_name_is_answered_with_a_guess_and_what_there_is(ask) -> None:
    with pytest.raises(InputError) as caught:
        ask("watr")
    assert str(caught.value) == "There is no drink named 'watr'. Did you mean 'water'? Known: tea, water."
    with pytest.raises(InputError) as caught:
        ask("xyz")
    assert str(caught.value) == "There is no drink named 'xyz'. Known: tea, water."
    for no_name in (5, None, ["tea"]):
        with pytest.raises(InputError, match="There is no drink named"):
            ask(no_name)


def test_an_unknown_parameter_is_an_error_and_never_dropped() -> None:
    with pytest.raises(InputError) as caught:
        DRINKS.make("tea", leaves="green", minute=2)
    assert str(caught.value) == (
        "'tea' has no parameter 'minute'. Did you mean 'minutes'? It has: leaves, minutes, extras."
    )
    with pytest.raises(InputError, match=r"'water' has no parameter 'temperature'\. It has none\."):
        DRINKS.make("water", temperature=90)


def test_a_parameter_without_a_default_must_be_given() -> None:
    with pytest.raises(InputError, match="'tea' needs a value for leaves"):
        DRINKS.make("tea", minutes=2)


def test_a_description_holds_the_summary_on_one_line_and_every_default() -> None:
    entry = DRINKS.describe("tea")
    assert (entry.name, entry.summary) == ("tea", "Steep leaves in water.")
    assert entry.parameters == {"leaves": REQUIRED, "minutes": 3, "extras": ()}


def test_the_name_of_an_entry_is_that_of_its_exact_class() -> None:
    class Chai(Tea):
        pass

    assert DRINKS.name_of(Tea("black")) == "tea"
    with pytest.raises(InputError, match="Chai is not a registered drink"):
        DRINKS.name_of(Chai("black"))


@pytest.mark.parametrize("registry", [AGGREGATORS, PREAGGREGATORS, FILTERS, ATTACKS], ids=lambda r: r.kind)
def test_every_entry_of_the_package_describes_itself(registry) -> None:
    classes = [registry[name] for name in registry]
    assert len(set(classes)) == len(classes)
    for name in registry:
        assert name == name.lower().replace("_", "-")
        assert len(registry.describe(name).summary) > 10


def test_the_package_has_the_bases_and_every_filter_and_rule_at_its_front_door() -> None:
    bases = {"Attack", "Filter", "PreAggregator", "Aggregator", "Round", "View", "Scores", "Outcome"}
    chosen = [*FILTERS.values(), *PREAGGREGATORS.values(), *AGGREGATORS.values()]
    names = {kind.__name__ for kind in chosen if not kind.__name__.endswith("Reference")}
    assert bases | names <= set(flanders.__all__)
    assert all(hasattr(flanders, name) for name in flanders.__all__)


def test_every_entry_of_a_table_with_families_has_one() -> None:
    for registry in (ATTACKS, FILTERS, AGGREGATORS):
        assert all(registry.family_of(name) for name in registry)
        assert all(registry.describe(name).family == registry.family_of(name) for name in registry)
    assert PREAGGREGATORS.family_of("nnm") == ""


def test_entries_of_other_packages_are_a_family_of_their_own() -> None:
    joined = AGGREGATORS.joined({"mine": flanders.Median})
    assert joined.family_of("mine") == "From other packages"
    assert joined.family_of("median") == AGGREGATORS.family_of("median")
    assert list(joined) == [*AGGREGATORS, "mine"]
    assert PREAGGREGATORS.joined({"mine": flanders.Nnm}).family_of("mine") == ""
