from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from flanders import Flanders, InputError
from flanders.aggregators import Aggregator, Krum, Nnm
from flanders.attacks import Attack, Lie
from flanders.experiments.filling import Filler, tree_of
from flanders.filters import Als, Everything, Filter, Sample


@dataclass(frozen=True)
class OneCircle:
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    side: int = 2


@dataclass(frozen=True)
class Drawing:
    """Fields of all kinds that a spec can have."""

    count: int
    keep: float | None = None
    colour: Literal["red", "blue"] = "red"
    shape: OneCircle | Square = field(default_factory=OneCircle)
    frame: Square = field(default_factory=Square)
    sizes: tuple[int, ...] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    attack: Attack | None = None
    aggregator: Aggregator = field(default_factory=Krum)
    filter: Filter | None = None


def fill(**table):
    return Filler({"b": 3, "m-b": 0}).fill(Drawing, table, "mine")


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"count": "b"}, Drawing(3)),
        ({"count": 1, "keep": "none"}, Drawing(1)),
        ({"count": 1, "colour": "blue"}, Drawing(1, colour="blue")),
        ({"count": 1, "shape": "square"}, Drawing(1, shape=Square())),
        ({"count": 1, "shape": {"name": "one-circle", "radius": 2}}, Drawing(1, shape=OneCircle(2.0))),
        ({"count": 1, "frame": {"side": 5}}, Drawing(1, frame=Square(5))),
        ({"count": 1, "sizes": [1, 2]}, Drawing(1, sizes=(1, 2))),
        ({"count": 1, "layers": {"fc.weight": 6}}, Drawing(1, layers={"fc.weight": 6})),
        ({"count": 1, "attack": "lie"}, Drawing(1, attack=Lie())),
        (
            {"count": 1, "aggregator": {"name": "krum", "preaggregators": "nnm"}},
            Drawing(1, aggregator=Nnm() | Krum()),
        ),
        (
            {"count": 1, "filter": {"name": "flanders", "keep": 2, "look": "sample", "solver": {"refit_every": 3}}},
            Drawing(1, filter=Flanders(keep=2, look=Sample(), solver=Als(refit_every=3))),
        ),
    ],
    ids=str,
)
def test_what_a_table_says_is_built_and_written_back(table, found):
    built = fill(**table)
    assert built == found
    assert Filler().fill(Drawing, tree_of(built), "again") == built


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "mine: a value is needed for count."),
        ({"count": 1.5}, "mine.count must be a whole number, or one of 'b', 'm-b'. Got 1.5 instead."),
        ({"count": "m-b"}, "mine.count: m-b is 0: all 3 clients of the round are malicious."),
        ({"count": 1, "colour": "green"}, "mine.colour must be 'red' or 'blue'. Got 'green' instead."),
        ({"count": 1, "shape": "circel"}, "mine.shape.name: There is no form named 'circel'."),
        ({"count": 1, "shape": {"name": "square", "sides": 2}}, "mine.shape.sides: there is no such parameter."),
        ({"count": 1, "frame": {"sid": 2}}, "mine.frame.sid: there is no such parameter. Did you mean 'side'?"),
        ({"count": 1, "frame": 3}, "mine.frame must be a table of keys and values. Got 3 instead."),
        ({"count": 1, "sizes": [1, "x"]}, "mine.sizes[1] must be a whole number"),
        ({"count": 1, "layers": {"fc": "x"}}, "mine.layers.fc must be a whole number"),
        ({"count": 1, "attack": {"name": "none", "z": 1}}, "mine.attack: 'none' has no parameters. Got z."),
        (
            {"count": 1, "filter": {"name": "flanders", "keep": 1, "look": {"name": "sample", "size": 0}}},
            "mine.filter.look: The `size` parameter of Sample must be",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_names_its_key(table, problem):
    with pytest.raises(InputError) as caught:
        fill(**table)
    assert str(caught.value).startswith(problem)


def test_a_class_that_is_not_registered_cannot_be_written():
    @dataclass(frozen=True)
    class Mine(Lie):
        pass

    with pytest.raises(InputError, match="Mine is not a registered attack"):
        tree_of(Drawing(1, attack=Mine()))


def test_a_default_look_is_written_by_its_name():
    assert tree_of(Flanders(keep=1))["look"] == {"name": "everything"}
    assert Flanders(keep=1).look == Everything()
