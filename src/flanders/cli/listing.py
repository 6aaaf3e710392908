"""Prints what a spec can choose by name (attacks, filters, datasets and so on), for the command `flanders list`."""

from __future__ import annotations

import dataclasses
import json
import sys
import textwrap
from collections.abc import Sequence

from flanders.checks import InputError
from flanders.choices import registry
from flanders.registry import REQUIRED, Entry
from flanders.report.text import terminal_width


def print_listing(kinds: Sequence[str], *, as_json: bool = False) -> None:
    """Print the name and the summary of each entry of these kinds.

    A kind is e.g. `attacks`, and an entry is then one attack. Similar entries of a kind form a family, and are
    printed together. If there is only one kind, the parameters of its entries are printed as well.
    """
    entries, broken = {}, list[str]()
    for kind in kinds:
        try:
            broken += registry(kind).broken.values()
            entries[kind] = [registry(kind).describe(name) for name in registry(kind)]
        except InputError as error:  # an optional package is missing; the other kinds can still be listed
            if len(kinds) == 1:
                raise
            print(f"{kind}: {error}", file=sys.stderr)
    if as_json:
        tables = {kind: [dataclasses.asdict(entry) for entry in group] for kind, group in entries.items()}
        print(json.dumps(tables if len(kinds) > 1 else tables[kinds[0]], indent=2, default=str))
        return
    for kind, group in entries.items():
        if len(kinds) > 1:
            print(f"\n{kind.upper()}")
        width = max(len(entry.name) for entry in group)
        family = ""
        for entry in group:
            if entry.family != family:
                family = entry.family
                print(f"\n{family}:")
            _print_entry(entry, width, parameters=len(kinds) == 1)
    if broken:
        print("\nSkipped entries of other packages:")
        print("\n".join(f"  {words}" for words in broken))
    if len(kinds) > 1:
        print(f"\n`flanders list {kinds[0]}` and so on show the parameters.")


def _print_entry(entry: Entry, width: int, *, parameters: bool) -> None:
    columns, indent = terminal_width(), "  " if entry.family else ""
    summary = entry.summary
    if not parameters:  # shorten the summary to one line
        summary = textwrap.shorten(summary, columns - len(indent) - width - 2, placeholder=" ...")
    print(f"{indent}{entry.name.ljust(width)}  {summary}")
    if parameters and entry.parameters:
        margin = " " * (len(indent) + width + 4)
        text = ", ".join(
            name if value is REQUIRED else f"{name}={value!r}" for name, value in entry.parameters.items()
        )
        print(textwrap.indent("\n".join(textwrap.wrap(text, max(40, columns - len(margin)))), margin))
