"""The guide for contributors: its map is the tree of the package, its examples work, its rules hold."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "flanders"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_map_names_every_room_and_every_top_level_module_and_nothing_else():
    (tree,) = re.findall(r"```\nsrc/flanders/\n(.*?)```", GUIDE, re.DOTALL)
    drawn, parents = [], {}
    for indent, name, text in re.findall(r"^( +)(\S+) +(\S.*)$", tree, re.MULTILINE):
        assert text
        parents[len(indent)] = name
        drawn.append(parents[4] + name if len(indent) == 8 else name)
    modules = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    rooms = [
        f"{folder.relative_to(PACKAGE).as_posix()}/"
        for folder in PACKAGE.rglob("*")
        if folder.is_dir() and any(f.is_file() and f.suffix != ".pyc" for f in folder.iterdir())
    ]
    assert len(drawn) == len(tree.replace("\n\n", "\n").splitlines())
    assert sorted(drawn) == sorted(modules + rooms)


EXAMPLE = re.compile(
    r"```python\n# (?P<file>src/flanders/\S+\.py)\n(?P<code>.*?)```\n\n"
    r"In `(?P<table_file>\S+\.py)`, import `(?P<name>\w+)` "
    r"and add `(?P<entry>\"[\w-]+\": \w+)` to (?:a family of\s)?`(?P<table>\w+)`\.",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package in which the guide has been followed, example by example."""
    root = tmp_path_factory.mktemp("contribution")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    examples = [match.groupdict() for match in EXAMPLE.finditer(GUIDE)]
    assert [example["table"] for example in examples] == ["FILTERS", "AGGREGATORS", "ATTACKS", "DATASETS", "MODELS"]
    for example in examples:
        target = root / example["file"]
        assert not target.exists()
        target.write_text(example["code"])
        table = root / example["table_file"]
        module = example["file"].removeprefix("src/").removesuffix(".py").replace("/", ".")
        table.write_text(followed(table.read_text(), module, **example))
    return root


def followed(text, module, name, entry, table, **_):
    """Return a module with the import and the entry in it that the guide asks for."""
    statement = f"from {module} import {name}\n"
    text, imports = re.subn(
        r"^(from flanders\.registry import Registry\n)", statement + r"\1", text, flags=re.MULTILINE
    )
    text, entries = re.subn(
        rf"^({table}: Registry\[.*?\] = Registry(?:\.grouped)?\(\s*\"[\w-]+\",\s*\{{(?:\s*\"[^\"]+\": \{{)?)",
        rf"\1{entry}, ",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    assert (imports, entries) == (1, 1)
    return text


def in_copy(copy, *command, cwd=None):
    path = os.pathsep.join([str(copy / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        cwd=cwd or copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_run_as_a_spec(copy):
    (spec,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    (copy / "spec.toml").write_text(spec)
    in_copy(copy, "-m", "flanders", "run", "spec.toml", "--out", "results.sqlite")
    noise, free_rider = json.loads(in_copy(copy, "-m", "flanders", "show", "results.sqlite", "--json"))
    chosen = [
        (
            run["spec"]["threat"]["attack"]["name"],
            run["spec"]["data"]["dataset"]["name"],
            run["spec"]["model"]["name"],
        )
        for run in (noise, free_rider)
    ]
    assert chosen == [("gauss", "rings", "tanh-mlp"), ("free-rider", "rings", "tanh-mlp")]
    assert noise["spec"]["filter"]["name"] == "median-length"
    assert noise["spec"]["aggregator"]["name"] == "shorter-half"
    assert noise["recall"] == 1.0  # noise is long, and this filter drops what is long
    assert free_rider["recall"] == 0.0  # an average is short
    assert min(noise["final"], free_rider["final"]) > 0.95


def test_the_examples_do_what_they_say(copy):
    code = """
import numpy as np
import flanders
from flanders import AGGREGATORS, ATTACKS, FILTERS, Defense, View
from flanders.data import DATASETS
from flanders.models import MODELS
assert flanders.__file__.startswith({copy!r}), flanders.__file__
updates = np.array([[3.0, 4.0], [5.0, 0.0], [0.0, -5.0], [50.0, 0.0]])
outcome = Defense(FILTERS.make("median-length"))(updates)
assert outcome.dropped == (3,), outcome
assert np.allclose(AGGREGATORS.make("shorter-half")(updates), [8 / 3, -1 / 3])
view = View(np.ones((2, 3)), np.zeros(3), num_clients=4, benign=np.array([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]]))
assert ATTACKS.make("free-rider", sigma=0)(view).tolist() == [[2.0, 3.0, 4.0]] * 2
data = DATASETS.make("rings").load()
assert data.num_classes == 2
assert (np.linalg.norm(data.x_train, axis=1) > 1.5).astype(int).tolist() == data.y_train.tolist()
assert sum(p.numel() for p in MODELS.make("tanh-mlp").build((2,), 2).parameters()) == 2 * 32 + 32 + 32 * 2 + 2
"""
    in_copy(copy, "-c", code.format(copy=str(copy)))


def test_the_examples_keep_the_style_of_the_house(copy):
    ruff = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if ruff is None:
        pytest.skip("ruff is not installed")
    files = [match["file"] for match in EXAMPLE.finditer(GUIDE)]
    for action in (["check"], ["format", "--diff"]):
        done = subprocess.run(
            [ruff, *action, "--no-cache", f"--config={ROOT / 'pyproject.toml'}", *files],
            cwd=copy,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_contract_tests_find_the_examples_by_their_names(copy):
    tests = [str(ROOT / "tests" / room / "test_contract.py") for room in ("filters", "aggregators", "attacks")]
    names = "median-length or ShorterHalf or shorter-half or free-rider"
    out = in_copy(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", "-k", names, *tests, cwd=ROOT)
    assert int(re.search(r"(\d+) passed", out)[1]) > 60


@pytest.mark.parametrize("room", ["aggregators", "filters"])
def test_filters_and_aggregators_leave_computing_with_updates_to_linalg(room):
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for line in computes_with_updates(path.read_text())
    ]
    assert found == []


def computes_with_updates(code):
    """Return the lines that use all of `round_.updates` in arithmetic, in its methods or in functions of NumPy."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        used = []
        if isinstance(node, ast.BinOp):
            used = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            used = [node.left, *node.comparators]
        elif isinstance(node, ast.UnaryOp):
            used = [node.operand]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_array_library = isinstance(node.func.value, ast.Name) and node.func.value.id in ("np", "xp", "torch")
            used = [node.func.value, *(node.args if is_array_library else [])]
        lines += [
            n.lineno for n in used if isinstance(n, ast.Attribute) and n.attr in ("updates", "T") and _is_updates(n)
        ]
    return lines


def _is_updates(node):
    return node.attr == "updates" or (isinstance(node.value, ast.Attribute) and node.value.attr == "updates")


def test_the_check_for_computing_with_updates_finds_what_it_looks_for():
    for line in (
        "x = round_.updates - g",
        "x = round_.updates.T @ a",
        "x = np.median(round_.updates, axis=0)",
        "x = -round_.updates",
        "x = round_.updates.sum()",
        "x = round_.updates > 0",
    ):
        assert computes_with_updates(line) == [1], line
    for line in ("m, d = round_.updates.shape", "x = gram(round_.updates)", "x = copied(round_.updates[row, :])"):
        assert computes_with_updates(line) == [], line


def test_only_linalg_cuts_arrays_into_blocks_of_columns():
    cutting = re.compile(r"\b(column_blocks|centred_blocks|sorted_columns|join_columns)\b")
    users = {path.parent.name for path in PACKAGE.rglob("*.py") if cutting.search(path.read_text())}
    assert users == {"linalg"}
