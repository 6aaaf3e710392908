"""Checks of a defence that someone wants to add to the leaderboard, and of the rows that they send.

A defence on the leaderboard is called an entrant. A row has the results of one run. The command `flanders
leaderboard submit --check` uses these checks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

import flanders
from flanders.arrays import FloatMatrix, FloatVector
from flanders.checks import InputError
from flanders.choices import installed
from flanders.defense import Defense
from flanders.experiments.engine import Datasets, start
from flanders.leaderboard.board_rows import OWN, MeasuredRun
from flanders.leaderboard.entrants import Entrant, title_of
from flanders.leaderboard.protocol import Case, read_protocol
from flanders.results.tree import Table
from flanders.simulation.setting import Setting

PARTS = {"filter": "filters", "aggregator": "aggregators", "preaggregators": "preaggregators"}
"""The tables in which a defence names its parts, and the kind of part that each table names. Other packages add
parts to flanders through entry points, which are grouped by these kinds."""
ROWS_RUN_AGAIN = 3
"""How many runs of a file of rows are run again as a check, by default. Three runs take only seconds."""
LARGEST_DIFFERENCE = 0.02
"""The largest allowed difference between the accuracy in a row and the accuracy of its run on this machine.
Machines round sums differently, so the accuracy differs a little."""


def packages_of(entrants: Sequence[Entrant]) -> dict[str, str]:
    """Return, for each defence, the name and the version of the package that contains its parts."""
    return {entrant.name: _package(entrant) for entrant in entrants}


def _package(entrant: Entrant) -> str:
    names = {(kind, name) for kind, name in _entries(entrant.tables) if name in installed(kind)[0]}
    packages = {
        f"{entry.dist.name} {entry.dist.version}"
        for kind, name in names
        for entry in metadata.entry_points(group=f"flanders.{kind}")
        if entry.name == name and entry.dist is not None
    }
    if len(packages) > 1:
        raise InputError(
            f"{entrant.title} uses parts of several packages: {', '.join(sorted(packages))}. A row names only "
            "one package. Put all your own parts into one package."
        )
    return packages.pop() if packages else f"{OWN} {flanders.__version__}"


def _entries(tables: Table) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of every part that the tables of a defence name. A kind is a value of `PARTS`."""
    for key, value in tables.items():
        kind = PARTS.get("aggregator" if key == "fallback" else key)
        for part in value if isinstance(value, list) else [value]:
            if kind and isinstance(part, str):
                yield kind, part
            elif isinstance(part, dict):
                if kind and isinstance(part.get("name"), str):
                    yield kind, part["name"]
                yield from _entries(part)


def check_entrant(entrant: Entrant) -> Iterator[str]:
    """Yield a sentence for each check that a defence passes. Raise an error at the first check that it fails."""
    package = _package(entrant)
    yield f"{entrant.title}: its parts are in {package}."
    protocol, datasets, seconds = read_protocol(), Datasets(), 0.0
    cases = [Case(), *(Case("lie", fraction, 1, rotating=True) for fraction in protocol.fractions)]
    for dataset in protocol.datasets:
        for case in cases:
            entrant.experiment(protocol, dataset, case, 0)
    yield f"{entrant.title}: its settings are valid for every dataset and every share of malicious clients."
    setting = entrant.experiment(protocol, "digits", Case(), 0).setting
    if setting.server.examples:  # random updates are not made from data, so no examples fit them
        yield f"{entrant.title}: it needs examples of the server, so it is not checked on random updates."
    else:
        _check_contract(entrant, setting)
        yield (
            f"{entrant.title}: it makes the same model from the same updates, and does not change the updates. "
            "If it draws no random numbers, the order of the clients does not matter."
        )
    for case in cases:
        records = list(start(entrant.experiment(protocol, "digits", case, 0), datasets).run())
        seconds += sum(sum(record.seconds.values()) for record in records)
    yield f"{entrant.title}: it runs with every share of malicious clients."
    runs = len(protocol.cases()) * len(protocol.seeds)
    minutes = math.ceil(seconds / len(cases) * runs / 60)
    yield f"{entrant.title}: {runs} runs on digits will take about {minutes} minutes on one core."


def _check_contract(entrant: Entrant, setting: Setting) -> None:
    """Raise an error if a defence breaks one of three rules that all defences of this package follow.

    The defence makes the same model from the same updates and seed. It does not change the updates. If it draws no
    random numbers, the order of the clients does not matter.
    """
    rng = np.random.default_rng(0)
    rows: FloatMatrix = rng.normal(size=(20, 40)) * 0.1 + rng.normal(size=40)
    before, order = rows.copy(), rng.permutation(20)
    clients = list(range(20))

    def after_two_rounds(rows: FloatMatrix, clients: Sequence[int], seed: int = 0) -> FloatVector:
        defense = Defense(setting.filter, setting.aggregator, fallback=setting.fallback, seed=seed)
        first = defense(rows, clients)
        if first.stayed:
            raise InputError(f"{entrant.title} makes no model from finite, honest updates: {first.note}.")
        return np.asarray(defense(rows, clients).model)

    first = after_two_rounds(rows, clients)
    if not np.array_equal(rows, before):
        raise InputError(f"{entrant.title} changes the updates that it is given. Change a copy instead.")
    if not np.array_equal(first, after_two_rounds(rows, clients)):
        raise InputError(
            f"{entrant.title} makes different models from the same updates and the same seed. Draw random numbers "
            "from the `rng` that it gets."
        )
    if not np.array_equal(first, after_two_rounds(rows, clients, seed=1)):
        return  # the defence draws random numbers; in another order, other clients would get these numbers
    if not np.allclose(first, after_two_rounds(rows[order], order.tolist()), rtol=1e-5, atol=1e-6):
        raise InputError(f"{entrant.title} depends on the order of the clients. Use their ids or updates.")


def check_submitted_rows(
    path: Path, rows: Sequence[MeasuredRun], entrants: Sequence[Entrant], again: int = ROWS_RUN_AGAIN
) -> Iterator[str]:
    """Yield a sentence for each check that a file of rows has passed.

    Some of the runs are run again on this machine. `again` says how many.
    """
    known = {(entrant.name, entrant.told): entrant for entrant in entrants}
    for row in rows:
        if (row.cell.defence, row.cell.told) not in known:
            title = title_of(row.cell.defence, row.cell.told)
            raise InputError(f"{path} has rows of {title!r}, which the file of defences does not have.")
    yield f"{path}: {len(rows)} rows are well formed."
    datasets, protocol = Datasets(), read_protocol()
    offline = [row for row in rows if row.cell.dataset == "digits"]  # this dataset needs no files
    chosen = sorted(offline, key=lambda row: row.run)[:again]  # ids are hashes, so this is like a random choice
    for row in chosen:
        cell = row.cell
        experiment = known[cell.defence, cell.told].experiment(protocol, cell.dataset, cell.case, cell.seed)
        *_, last = start(experiment, datasets).run()
        if abs(last.accuracy - row.accuracy) > LARGEST_DIFFERENCE:
            raise InputError(
                f"{path} says that the accuracy of {cell.defence} in {cell.case.name}, seed {cell.seed}, is "
                f"{row.accuracy:.4f}. Here it is {last.accuracy:.4f}. Try it yourself: {row.command}"
            )
    yield (
        f"{path}: {len(chosen)} of its runs were run again. Each accuracy was within {LARGEST_DIFFERENCE} of the "
        "one in the file."
    )
