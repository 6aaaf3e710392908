"""Pages about everything that a spec can choose by name, generated from the registries and the docstrings."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flanders.checks import InputError
from flanders.choices import KINDS, registry
from flanders.registry import REQUIRED, Registry


@dataclass(frozen=True)
class Kind:
    """What a page says about one kind of entries."""

    title: str
    text: str
    table: str
    """The table of a spec that chooses such an entry."""
    key: str = "name"
    """The key in that table."""
    room: str = ""
    """The module from which users import the entries."""
    imports: str = ""
    """What the examples of the docstrings start from."""


ABOUT = {
    "attacks": Kind(
        "Attacks",
        "An attack says what malicious clients send. It sees a `View`: the models that its own clients have "
        "trained, the global model and, if the attacker is omniscient, the models of the honest clients.\n\n"
        "In the formulas, $x$ is what a malicious client sends, $g$ is the global model, $x_i$ is the model of an "
        "honest client, and $\\mu$ and $\\sigma$ are the mean and the standard deviation of the honest models, "
        "parameter by parameter. Of the $m$ clients of a round, $b$ are malicious.",
        "threat",
        "attack",
        "flanders.attacks",
        "import numpy as np\nfrom flanders.attacks import *",
    ),
    "data_poisons": Kind(
        "Data poisons",
        "A data poison changes the data of malicious clients. They train on it and send what they have learnt.",
        "threat",
        "data_poison",
        "flanders.simulation",
        "import torch\nfrom flanders.simulation.poisoning import *",
    ),
    "filters": Kind(
        "Filters",
        "A filter decides which clients of a round to keep. It gives each client a score: the higher, the more "
        "suspicious. [Which filter when](../choosing.md) helps you to choose one.\n\n"
        "In the formulas, $\\theta_c$ is the model that client $c$ sent, $g$ is the global model, "
        "$u_c = \\theta_c - g$ is the client's step, $m$ is the number of clients and $b$ the number of "
        "malicious ones.",
        "filter",
        room="flanders.filters",
        imports="import numpy as np\nfrom flanders import Defense, Round\nfrom flanders.filters import *",
    ),
    "aggregators": Kind(
        "Aggregators",
        "An aggregator turns the models that the filter kept into the new global model.\n\n"
        "In the formulas, $\\theta_c$ is the model of client $c$, $n_c$ its number of examples, $g$ the global "
        "model, $m$ the number of clients and $b$ the number of malicious ones.",
        "aggregator",
        room="flanders.aggregators",
        imports="import numpy as np\nfrom flanders import Round\nfrom flanders.aggregators import *",
    ),
    "preaggregators": Kind(
        "Pre-aggregators",
        "A pre-aggregator changes the models before an aggregator sees them. In Python, write it in front of the "
        "aggregator: `Nnm(num_malicious=2) | Krum(num_malicious=2)`.",
        "aggregator",
        "preaggregators",
        "flanders.aggregators",
        "import numpy as np\nfrom flanders.aggregators import *",
    ),
    "looks": Kind(
        "Looks",
        "A look says which parameters of the models the filter `flanders` compares.",
        "filter",
        "look",
        "flanders.filters",
    ),
    "datasets": Kind(
        "Datasets", "A dataset holds the examples that the clients learn from.", "data", "dataset", "flanders.data"
    ),
    "partitions": Kind(
        "Partitions",
        "A partition shares the examples of a dataset out among the clients.",
        "data",
        "partition",
        "flanders.data",
    ),
    "models": Kind("Models", "A model is what the clients train.", "model", room="flanders.models"),
}
NEEDED = {"keep": "m-b", "size": 500, "width": 2048, "partitioner": "IidPartitioner"}
"""Values for parameters that have no default and without which an entry cannot be made."""


def write_catalog_pages(folder: Path) -> None:
    """Write one page for each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind}.md").write_text(catalog_page(kind))


def catalog_page(kind: str) -> str:
    """Return the page about one kind: a table of all entries, and a section for each."""
    about = ABOUT.get(kind) or Kind(kind.replace("_", " ").capitalize(), "", kind)
    entries = registry(kind)
    tables: list[str] = []
    for family in dict.fromkeys(entries.family_of(name) for name in entries):
        members = [name for name in entries if entries.family_of(name) == family]
        rows = [f"| [`{name}`](#{anchor(name)}) | {_cell(entries.describe(name).summary)} |" for name in members]
        tables += [*([f"**{family}**", ""] if family else []), "| | |", "|---|---|", *rows, ""]
    sections = [_section(name, entries, about) for name in entries]
    text = [about.text, ""]
    if about.imports:
        text += ["The examples on this page start from:", "", "```python", about.imports, "```", ""]
    return "\n".join([f"# {about.title}", "", *text, *tables, *sections])


def anchor(name: str) -> str:
    """Return the name by which a link knows the section of an entry.

    >>> anchor("zeno++")
    'zeno'
    """
    return re.sub(r"[^\w-]", "", name)


def public_path(cls: type[Any], room: str) -> str:
    """Return the name by which users import a class.

    >>> from flanders.attacks import Lie
    >>> public_path(Lie, "flanders.attacks")
    'flanders.attacks.Lie'
    """
    if room and getattr(importlib.import_module(room), cls.__name__, None) is cls:
        return f"{room}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__name__}"


def _section(name: str, entries: Registry[Any], about: Kind) -> str:
    path = public_path(entries[name], about.room)
    lines = [f"## {name}", "", "```{eval-rst}", f".. autoclass:: {path}", "```", ""]
    lines += ["In a spec:", ""]
    return "\n".join([*lines, "```toml", example_spec(name, entries, about), "```", ""])


def example_spec(name: str, entries: Registry[Any], about: Kind) -> str:
    """Return the lines of a spec that choose an entry with its defaults."""
    settings = {"name": name, **_defaults(name, entries)}
    head = [f"[{about.table}]"]
    if about.table == "filter" and about.key == "look":
        head += ['name = "flanders"', 'keep = "m-b"']
    if about.key == "preaggregators":
        head += ['name = "median"']
    if about.key == "name":
        lines = [*head, *(f"{key} = {_toml(value)}" for key, value in settings.items())]
        return "\n".join([*lines, "", "[server]", "examples = 100"] if _needs_server(name, entries) else lines)
    inline = f'"{name}"' if len(settings) == 1 else _inline(settings)
    if about.key == "preaggregators":
        inline = f"[{inline}]"
    return "\n".join([*head, f"{about.key} = {inline}"])


def _defaults(name: str, entries: Registry[Any]) -> dict[str, object]:
    """Return the parameters with plain defaults, and what else an entry cannot do without."""
    parameters = entries.describe(name).parameters
    plain = {key: value for key, value in parameters.items() if isinstance(value, bool | int | float | str)}
    plain = {key: value for key, value in plain.items() if value is not REQUIRED}
    try:
        entries.make(name, **plain)
    except InputError:
        return {key: value for key, value in NEEDED.items() if key in parameters and key not in plain} | plain
    return plain


def _needs_server(name: str, entries: Registry[Any]) -> bool:
    """Tell whether an entry needs examples of the server."""
    try:
        entry = entries.make(name)
    except InputError:  # it has parameters without defaults
        return False
    return any(getattr(entry, need, False) for need in ("needs_root", "needs_examples"))


def _inline(settings: dict[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in settings.items()) + " }"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _cell(text: str) -> str:
    """Return a sentence of a docstring as a cell of a Markdown table."""
    return text.replace("|", "\\|")
