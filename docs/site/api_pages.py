"""Pages about the Python interface, the keys of a spec and the command line, generated from the code."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

from catalog_pages import ABOUT, public_path
from flanders.choices import KINDS, registry
from flanders.cli.parser import make_parser
from flanders.experiments.json_schema import parameter_texts
from flanders.registry import Registry, first_paragraph
from flanders.simulation.setting import Setting

MODULES = {
    "flanders": "The core",
    "flanders.record": "Records of rounds",
    "flanders.registry": "Tables of names",
    "flanders.flower": "Flower",
    "flanders.flower.attacks": "Attacks on Flower",
    "flanders.flower.legacy": "Flower's older interface",
    "flanders.simulation": "The simulator",
    "flanders.data": "Data",
    "flanders.models": "Models",
    "flanders.attacks": "Attacks",
    "flanders.filters": "Filters",
}
"""The modules that users import from, and the titles of their pages."""
FIRST = (
    "Defense",
    "Outcome",
    "defend",
    "Round",
    "Filter",
    "Scores",
    "Aggregator",
    "PreAggregator",
    "Attack",
    "View",
)
"""What a page shows before the other names."""


def write_api_pages(folder: Path) -> None:
    """Write the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.md").write_text(spec_page())
    (folder / "command-line.md").write_text(command_line_page())
    described = {
        public_path(registry(kind)[name], ABOUT[kind].room if kind in ABOUT else "")
        for kind in KINDS
        for name in registry(kind)
    }
    done = {id(_get(path)) for path in described}
    pages = []
    for module, title in MODULES.items():
        page = api_page(module, title, done)
        if page:
            name = f"api-{module.replace('.', '-')}"
            (folder / f"{name}.md").write_text(page)
            pages.append(name)
    (folder / "api.md").write_text(_contents(pages))


def _contents(pages: list[str]) -> str:
    text = (
        "# Python interface\n\nAll of this comes from the docstrings. Filters, aggregators, attacks, datasets and "
        "models have pages of their own: see [filters](filters.md), [aggregators](aggregators.md), "
        "[attacks](attacks.md), [datasets](datasets.md) and [models](models.md).\n\n"
    )
    return text + "```{toctree}\n:maxdepth: 2\n\n" + "\n".join(pages) + "\n```\n"


def api_page(module: str, title: str, done: set[int]) -> str:
    """Return the page of a module: its public names, except those that another page has described."""
    imported = importlib.import_module(module)
    names = getattr(imported, "__all__", None) or [
        name
        for name, value in vars(imported).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module and _has_docstring(value)
    ]
    directives = []
    for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        value = getattr(imported, name)
        if id(value) in done or inspect.ismodule(value) or isinstance(value, Registry):
            continue
        done.add(id(value))
        directives.append(_directive(module, name, value))
    if not directives:
        return ""
    intro = (inspect.getdoc(imported) or "").split("\n\n")[0]
    rst = f".. py:module:: {module}\n\n{intro}\n\n" + "\n".join(directives)
    return f"# {title}: `{module}`\n\n```{{eval-rst}}\n{rst}\n```\n"


def _has_docstring(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _directive(module: str, name: str, value: object) -> str:
    if inspect.isclass(value):
        return f".. autoclass:: {module}.{name}\n   :members:\n"
    if callable(value):
        return f".. autofunction:: {module}.{name}\n"
    return f".. autodata:: {module}.{name}\n   :no-value:\n"


def _get(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def spec_page() -> str:
    """Return the page of all keys of a spec, from the docstrings of `Setting` and its parts."""
    lines = [
        "# Keys of a spec",
        "",
        "A spec is a TOML file; [Experiments](../experiments.md) explains it. Every key is optional. The keys have "
        "the names and the defaults of the fields of `flanders.simulation.Setting`. Where a key names an "
        "attack, a filter or the like, its parameters are keys of the same table.",
        "",
        "`flanders schema` prints the same as a JSON Schema, with which an editor checks and completes your file.",
        "",
    ]
    default = Setting()
    top = parameter_texts(Setting)
    for field in dataclasses.fields(Setting):
        value = getattr(default, field.name)
        told = top.get(field.name, "")
        if type(value).__module__.startswith("flanders") and type(value).__name__ in _RECORDS:
            lines += [f"## `[{field.name}]`", "", first_paragraph(type(value)), ""]
            lines += ["| key | default | |", "|---|---|---|", *_rows(value), ""]
        else:
            heading = f"[{field.name}]" if field.name != "informed" else field.name
            lines += [f"## `{heading}`", "", told, ""]
            if (kind := f"{field.name}s") in KINDS:
                lines += [f"`name` is the name of one of the [{kind}]({kind}.md).", ""]
    return "\n".join(lines)


_RECORDS = {"Data", "Training", "Federation", "Threat", "Server", "Options"}
_LINKS = {
    "dataset": "datasets",
    "partition": "partitions",
    "attack": "attacks",
    "data_poison": "data_poisons",
}
"""The keys that choose something by name, and the pages of the names."""


def _rows(record: Any) -> list[str]:
    texts = parameter_texts(type(record))
    rows = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        shown = f"`{_plain(value)}`" if value is not None else ""
        about = texts.get(field.name, "").replace("|", "\\|")
        if field.name in _LINKS:
            about += f" See [the list]({_LINKS[field.name]}.md)."
        rows.append(f"| `{field.name}` | {shown} | {about} |")
    return rows


def _plain(value: object) -> str:
    """Return a default as a spec would write it."""
    for kind in ("datasets", "partitions", "models"):
        if type(value) in registry(kind).values():
            return f'"{registry(kind).name_of(value)}"'
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def command_line_page() -> str:
    """Return the page of all commands and their options, from the parser itself."""
    parser = make_parser()
    lines = ["# Command line", "", parser.description or "", ""]
    lines += ["| command | |", "|---|---|"]
    lines += [f"| [`{sub.prog}`](#{sub.prog.replace(' ', '-')}) | {sub.description} |" for sub in parser.commands]
    for sub in parser.commands:
        usage = sub.format_usage().removeprefix("usage: ")
        lines += ["", f"## {sub.prog}", "", sub.description or "", "", "```text", usage.rstrip(), "```", ""]
        rows = [_option(sub, action) for action in sub._actions if action.dest != "help"]
        if rows:
            lines += ["| argument | |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.option_strings and action.nargs != 0:
        shown = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "VALUE")
        name = f"{name} {shown}"
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    return f"| `{name}` | {text.replace('|', chr(92) + '|')} |"
