"""The runs of the leaderboard, called cells, and the conditions of the option `--where`, which choose some runs.

A case is one threat of the protocol: an attack, its first round, the share of malicious clients, and whether these
clients change from round to round. Each defence has a run for each dataset, case and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from flanders.checks import InputError, did_you_mean
from flanders.leaderboard.entrants import Entrant
from flanders.leaderboard.protocol import CORE, BoardProtocol, Case

YES, NO = "yes", "no"


@dataclass(frozen=True)
class BoardCell:
    """One run of the leaderboard: a defence in one case, on one dataset, with one seed."""

    dataset: str
    defence: str
    told: bool
    """Whether the defence is told how many clients are malicious."""
    case: Case
    seed: int

    @property
    def command(self) -> str:
        """The command that carries out exactly this run."""
        told = YES if self.told else NO
        return (
            f"flanders leaderboard run {self.dataset} --where defence={self.defence} --where told={told} "
            f"--where case={self.case.name} --where seed={self.seed}"
        )


KEYS: dict[str, Callable[[BoardCell], str]] = {
    "defence": lambda cell: cell.defence,
    "told": lambda cell: YES if cell.told else NO,
    "case": lambda cell: cell.case.name,
    "attack": lambda cell: cell.case.attack,
    "fraction": lambda cell: f"{cell.case.fraction:g}",
    "start": lambda cell: str(cell.case.start),
    "rotating": lambda cell: YES if cell.case.rotating else NO,
    "seed": lambda cell: str(cell.seed),
}
"""The keys of `--where`. The function of a key returns the value that a run has for this key."""
SETTINGS = tuple(key for key in KEYS if key not in ("defence", "told"))
"""The keys of `--where` for a table. They cannot choose defences, since a table always compares all defences."""
MOST_NAMED = 60
"""An error lists all values of a key if there are at most this many values. So it lists the defences of this
package, but not the hundreds of cases."""


def cells_of(
    protocol: BoardProtocol, entrants: Iterable[Entrant], dataset: str, which: str = CORE
) -> list[tuple[BoardCell, Entrant]]:
    """Return all runs of the given defences on a dataset: defence by defence, and for each defence seed by seed.

    `which` is "core" for the attacks that the ranking uses, or "all".
    """
    cases = protocol.cases(which)
    return [
        (BoardCell(dataset, entrant.name, entrant.told, case, seed), entrant)
        for entrant in entrants
        for seed in protocol.seeds
        for case in cases
    ]


def attacks_named(wheres: Sequence[str]) -> bool:
    """Whether a condition of `--where` names an attack or a case.

    If one does, the command chooses among the runs with all attacks of the protocol. Otherwise it chooses among the
    runs with the core attacks.
    """
    return any(where.startswith(("attack=", "case=")) for where in wheres)


def chosen_cells(
    cells: Sequence[tuple[BoardCell, Entrant]], wheres: Sequence[str]
) -> list[tuple[BoardCell, Entrant]]:
    """Return the runs that fulfil all conditions of `--where`; see `condition`."""
    every = [cell for cell, _ in cells]
    fits = [condition(where, KEYS, every) for where in wheres]
    chosen = [(cell, entrant) for cell, entrant in cells if all(fit(cell) for fit in fits)]
    if not chosen:
        raise InputError("No run fits all of these conditions. Leave one condition out.")
    return chosen


def condition(where: str, keys: Collection[str], cells: Iterable[BoardCell]) -> Callable[[BoardCell], bool]:
    """Return a function that tells whether a run fulfils a condition of `--where`.

    The condition is `KEY=VALUE` or `KEY=VALUE,VALUE`. With several values, a run must have one of them. Raise an
    error if the key is not one of `keys`, or if none of `cells` has the value.
    """
    key, sign, text = where.partition("=")
    if key not in keys or not sign or not text:
        guess = did_you_mean(key, keys)
        raise InputError(f"--where needs KEY=VALUE with a key of {', '.join(keys)}. Got {where!r}.{guess}")
    read, wanted = KEYS[key], set(text.split(","))
    known = dict.fromkeys(read(cell) for cell in cells)
    for value in wanted:
        if value not in known:
            guess, all_named = did_you_mean(value, known), len(known) <= MOST_NAMED
            named = (
                f"Known: {', '.join(known)}." if all_named else f"There are {len(known)}, e.g. {next(iter(known))}."
            )
            raise InputError(f"--where {where}: there is no {key} {value!r}.{guess} {named}")
    return lambda cell: read(cell) in wanted
