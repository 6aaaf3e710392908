from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import flanders
from flanders.choices import KINDS, registry
from flanders.cli import main
from flanders.experiments.json_schema import spec_schema
from flanders.paper.tables import TABLES, read_tables
from flanders.paper.variants import read_variant

ROOT = Path(flanders.__file__).parents[2]
SPECS = [
    *(ROOT / "examples").glob("*.toml"),
    *(ROOT / "benchmarks").glob("*.toml"),
    *(Path(flanders.__file__).parent / "studies" / "specs").glob("*.toml"),
]


@pytest.fixture(scope="module")
def schema():
    found = spec_schema()
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


def problems(schema, tree):
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in schema.iter_errors(tree)]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec_of_the_project_is_valid(schema, path):
    assert problems(schema, tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize("name", ["reference", "textbook"])
def test_the_spec_of_every_cell_of_the_paper_is_valid(schema, name):
    variant = read_variant(name)
    for table in read_tables(TABLES):
        for cell in table.cells if name in table.variants else ():
            if not cell.is_undefined:
                assert problems(schema, as_axes(variant.point(cell, 0))) == []


def as_axes(tree):
    """Return a spec without axes as a file would have it: a value that is a list is an axis of one value."""
    if isinstance(tree, dict):
        return {key: as_axes(value) for key, value in tree.items()}
    return [tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize(
    "tree",
    [
        {"threats": {}},
        {"federation": {"round": 3}},
        {"federation": {"rounds": "three"}},
        {"threat": {"attack": "lei"}},
        {"threat": {"attack": {"name": "gauss", "sgima": 1}}},
        {"threat": {"attack": {"name": "on-off", "base": {"name": "lie", "zz": 1}}}},
        {"filter": {"name": "flanders", "kep": 1}},
        {"filter": {"name": ["flanders", "keep-all"], "kep": 1}},
        {"filter": {"name": "flanders", "look": {"name": "sample", "sise": 3}}},
        {"filter": {"name": "flanders", "solver": {"iteration": 3}}},
        {"aggregator": {"name": "krum", "preaggregators": "nmn"}},
        {"data": {"alfa": 1}},
        {"run": {"device": ["cpu", "cuda"]}},
        {"informed": "yes"},
    ],
    ids=str,
)
def test_a_misspelt_key_or_name_is_refused(schema, tree):
    assert problems(schema, tree)


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"threat": {"attack": ["none", "lie", {"name": "gauss", "sigma": [1, 5]}], "fraction": [0.2, 0.8]}},
        {"threat": {"attack": {"name": "on-off", "base": {"name": "lie"}}, "fraction": 0.2}},
        {"threat": {"attack": {"name": "opt-reference", "layer_sizes": [[784, 10]]}, "fraction": 0.2}},
        {"filter": ["keep-all", {"name": "flanders", "keep": "m-b"}]},
        {"filter": {"name": "flanders", "keep": 2, "look": ["everything", {"name": "sample", "size": [5, 50]}]}},
        {"filter": {"name": "flanders", "keep": 2, "solver": {"refit_every": [1, 2]}}},
        {"filter": {"name": "dnc", "sample": "none"}},
        {"aggregator": {"name": "median", "preaggregators": [["bucketing", "nnm"], "none"]}},
        {"fallback": ["none", "median"], "informed": [True, False], "run": {"chunk": 3}},
        {"data": {"partition": "dirichlet", "alpha": [0.5, 10.0]}},
    ],
    ids=str,
)
def test_everything_that_a_spec_can_say_is_valid(schema, tree):
    assert problems(schema, tree) == []


def test_every_registered_name_is_in_the_schema_with_its_parameters_and_a_description():
    parts = spec_schema()["$defs"]
    for kind in KINDS:
        for name in registry(kind):
            part = parts[f"{kind}.{name}"]
            assert part["description"]
            assert {"name", *registry(kind).describe(name).parameters} <= set(part["properties"])


def test_descriptions_and_defaults_come_from_the_code():
    rounds = spec_schema()["properties"]["federation"]["anyOf"][0]["properties"]["rounds"]
    assert (rounds["description"], rounds["default"]) == ("The number of rounds, T.", 50)


def test_the_command_prints_the_schema(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == spec_schema()
