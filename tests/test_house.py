"""The rules of the house: what holds for every module, whatever it is about."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
TEXTS = {name: path.read_text() for name, path in MODULES.items()}
TREES = {name: ast.parse(text) for name, text in TEXTS.items()}
CLASSES = {node.name: node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}
NEEDED = {"array_api_compat", "numpy"}
"""The packages that every installation has. All others come with an extra."""
PROGRAMS = "flanders.simulation.training.triton_programs"
MOST_PARAMETERS = {
    "flanders.flower.strategy __init__": 13,
    f"{PROGRAMS} norm_forward": 15,
    f"{PROGRAMS} norm_backward": 13,
    f"{PROGRAMS} depthwise_backward": 13,
}
"""The front of the Flower wrapper has one parameter for each thing that an operator can switch on. A program for a
GPU has one for each array and each size."""
ONLY_READ = {"Finding", "Row", "RunData", "RunSummary"}
"""Records with many fields. The package makes them, users read them."""


def test_no_two_classes_or_public_functions_have_the_same_name():
    places = defaultdict(list)
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_constructors_and_functions_have_at_most_twelve_parameters():
    functions = {
        f"{module} {node.name}": parameters(node)
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    classes = {name: fields(name) for name in CLASSES if name not in ONLY_READ}
    assert [
        name for name, taken in (functions | classes).items() if len(taken) > MOST_PARAMETERS.get(name, 12)
    ] == []


def parameters(function):
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def fields(name):
    """Return the fields of a class and its bases: the parameters of its constructor, if it is a dataclass."""
    if name not in CLASSES:
        return set()
    node = CLASSES[name]
    own = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)
    }
    return own.union(*(fields(ast.unparse(base).partition("[")[0]) for base in node.bases))


def test_types_are_rarely_left_open():
    lines = [line for text in TEXTS.values() for line in text.splitlines()]
    assert sum(bool(re.search(r"\bAny\b", line)) for line in lines) < 150
    assert sum("type: ignore" in line for line in lines) <= 8


def test_modules_can_be_read_in_one_go():
    assert {name: text.count("\n") for name, text in TEXTS.items() if text.count("\n") > 350} == {}


def test_imports_inside_functions_are_of_what_needs_an_extra():
    inside = {
        f"{module}:{function.lineno} {function.name} imports {target}": target
        for module, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for target in imported(ast.walk(function))
    }
    assert len(inside) > 10  # the test finds what it looks for
    assert [place for place, target in inside.items() if not packages_behind(target) - NEEDED] == []


def test_no_import_hides_in_a_string():
    hidden = re.compile(r"import_module\(|__import__\(|spec_from_file_location\(")
    assert [name for name, text in TEXTS.items() if hidden.search(text)] == []


def imported(nodes):
    """Return what the import statements among these nodes import: modules of this package, and other packages."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {target if target in MODULES else module_of(target) for target in found}


def module_of(target):
    """Return the module of a name, or the package if it is not one of ours."""
    top, parent = target.partition(".")[0], target.rpartition(".")[0]
    return parent if parent in MODULES else top


def at_import(tree):
    """Yield the nodes of a module that run when it is imported."""
    for node in ast.iter_child_nodes(tree):
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not typing and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from at_import(node)


def packages_behind(target):
    """Return the packages outside the standard library that are imported along with a module."""
    todo, seen, packages = {target}, set(), set()
    while todo:
        name = todo.pop()
        seen.add(name)
        if name not in MODULES:
            packages |= {name} - set(sys.stdlib_module_names)
            continue
        parents = {name.rpartition(".")[0]} - {""}
        todo |= (imported(at_import(TREES[name])) | parents) - seen
    return packages


def test_tests_are_in_a_tree_like_that_of_the_package():
    rooms = {path.parent.relative_to(SOURCE / "flanders").as_posix() for path in MODULES.values()}
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in ROOT.glob("tests/**/test_*.py")}
    assert folders - rooms == {"benchmarks", "conformance", "hardening"}


def test_every_benchmark_has_a_test():
    benchmarks = {path.stem for path in ROOT.glob("benchmarks/*.py")}
    assert benchmarks <= {path.stem.removeprefix("test_") for path in ROOT.glob("tests/benchmarks/test_*.py")}
