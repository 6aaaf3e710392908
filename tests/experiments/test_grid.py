from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders import InputError
from flanders.cli import main
from flanders.experiments.grid import expand, override, parse_override, read_toml

scalars = st.integers() | st.booleans() | st.text(max_size=3)
axes = st.lists(scalars, min_size=1, max_size=3)
tables = st.dictionaries(st.text(min_size=1, max_size=3), scalars | axes, max_size=3)
specs = st.dictionaries(st.text(min_size=1, max_size=3), scalars | axes | tables, max_size=3)


def size(value):
    if isinstance(value, dict):
        return math.prod(size(v) for v in value.values())
    return sum(size(v) for v in value) if isinstance(value, list) else 1


@given(specs)
def test_a_grid_has_as_many_points_as_the_product_of_its_axes_and_none_holds_a_list(spec):
    points = expand(spec)
    assert len(points) == size(spec)
    for point in points:
        assert list(point) == list(spec)
        assert not any(isinstance(v, list) for v in point.values())
        for key, value in point.items():
            axis = spec[key] if isinstance(spec[key], list) else [spec[key]]
            assert isinstance(value, dict) or any(value is v or value == v for v in axis)


@given(specs)
def test_a_point_of_a_grid_is_a_grid_of_itself(spec):
    for point in expand(spec)[:20]:
        assert expand(point) == [point]


@given(st.lists(st.lists(scalars, max_size=3), min_size=1, max_size=3))
def test_a_list_inside_a_list_is_one_value(values):
    assert expand({"sizes": values}) == [{"sizes": value} for value in values]


def test_the_last_axis_changes_fastest():
    points = expand({"a": [1, 2], "b": {"c": ["x", "y"]}})
    assert [(p["a"], p["b"]["c"]) for p in points] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_an_axis_without_values_is_named():
    with pytest.raises(InputError, match=r"mine.toml: attack.sigma is an empty list"):
        expand({"attack": {"sigma": []}}, "mine.toml")


def test_a_grid_beyond_reason_is_refused_before_it_is_built():
    with pytest.raises(InputError, match=r"asks for 1,000,000,000,000 runs, more than 100,000"):
        expand({str(i): list(range(100)) for i in range(6)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = [0, 1]", [0, 1]),
        ("a.b=lie", "lie"),
        ('a.b="agr-min-max"', "agr-min-max"),
        ("a.b=agr-min-max", "agr-min-max"),
        ("a.b=true", True),
        ("a.b={name='gauss', sigma=5}", {"name": "gauss", "sigma": 5}),
    ],
)
def test_an_override_takes_a_toml_value_or_a_bare_word(text, value):
    assert parse_override(text) == (["a", "b"], value)


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=1", "a=[1,", "a="])
def test_an_override_that_cannot_be_read_is_an_error(text):
    with pytest.raises(InputError, match="--set"):
        parse_override(text)


def test_an_override_reaches_into_names_tables_and_lists_of_tables():
    assert override({}, ["a", "b"], 1) == {"a": {"b": 1}}
    assert override({"a": "lie"}, ["a", "fraction"], 0.2) == {"a": {"name": "lie", "fraction": 0.2}}
    spec = {"a": [{"name": "x"}, "y"]}
    assert override(spec, ["a", "b"], 1) == {"a": [{"name": "x", "b": 1}, {"name": "y", "b": 1}]}
    assert spec == {"a": [{"name": "x"}, "y"]}


@pytest.mark.parametrize(("content", "problem"), [(b"a = ", "not valid TOML"), (b"\xff\xfe", "not UTF-8")])
def test_a_file_that_is_no_toml_is_named(tmp_path, content, problem):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"bad.toml .*{problem}"):
        read_toml(path)


def test_a_missing_spec_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no file .*gone.toml"):
        read_toml(tmp_path / "gone.toml")
    with pytest.raises(InputError, match="is a folder"):
        read_toml(tmp_path)


def test_a_spec_without_an_end_is_refused():
    with pytest.raises(InputError, match="/dev/zero is too large for a spec: at most 16,777,216 bytes"):
        read_toml(Path("/dev/zero"))


def test_a_key_of_thousands_of_parts_is_refused_in_one_sentence():
    with pytest.raises(InputError, match=r"--set a\.a\.a.*the key has 3001 parts"):
        parse_override("a." * 3000 + "b=1")


@pytest.mark.parametrize("depth", [5, 50, 200, 300, 450, 900, 5000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ("{a = ", "}")])
@pytest.mark.parametrize("key", ["data.dataset", "filter.name", "threat.attack", "odd"])
def test_a_value_that_is_nested_deeply_is_refused_in_one_sentence(tmp_path, capsys, key, opens, closes, depth):
    value = opens * depth + "1" + closes * depth
    (tmp_path / "deep.toml").write_text(f"{key} = {value}")
    (tmp_path / "plain.toml").write_text("")
    for arguments in (["deep.toml"], ["plain.toml", "--set", f"{key}={value}"]):
        assert main(["run", "--dry-run", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("flanders: ")
        assert key.split(".")[0] in printed or "nested too deeply" in printed
        assert printed.count("\n") == 1
