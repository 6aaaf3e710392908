"""The rows of the leaderboard, which are stored in CSV files.

A row has what was measured in one run of a defence, and the command that repeats the run. The protocol holds the
settings that all defences share. Each run belongs to a case of the protocol: an attack, its first round, the share
of malicious clients, and whether these clients change from round to round. A file with rows may come from anyone.
So every value in it is checked.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flanders.checks import InputError
from flanders.files import check_target, write_atomically, writing
from flanders.leaderboard.cells import NO, YES, BoardCell
from flanders.leaderboard.entrants import NAME, Entrant
from flanders.leaderboard.protocol import ALL, NOBODY, BoardProtocol, Case, read_protocol
from flanders.results import spec_keys
from flanders.results.summary import read_summaries
from flanders.results.tree import Tree

COLUMNS = (
    "protocol",
    "dataset",
    "defence",
    "told",
    "attack",
    "fraction",
    "start",
    "rotating",
    "seed",
    "accuracy",
    "attack_success",
    "recall",
    "honest_dropped",
    "milliseconds",
    "run",
    "package",
    "command",
)
OWN = "flanders-fl"
"""The name under which this package is installed."""
PACKAGE = re.compile(r"[A-Za-z0-9._-]{1,60} [A-Za-z0-9.+!_-]{1,40}")
"""The form of a package's name and version."""
RUN = re.compile(r"[0-9a-f]{16}")
"""The form of the id of a run; see `flanders.results.run`."""
MOST_BYTES = 200_000_000
"""The most bytes of a file of rows, so that a hostile file cannot fill the memory. All runs of 100 defences on one
dataset take about a quarter of these bytes."""


@dataclass(frozen=True)
class MeasuredRun:
    """A row: what was measured in one finished run.

    `attack_success`, `recall` and `honest_dropped` are None if there was nothing to measure. For example, there is
    no recall if nobody was malicious.
    """

    cell: BoardCell
    accuracy: float
    """The share of test examples that the model classifies correctly after the last round."""
    attack_success: float | None
    """The attacker may target some test examples: they shall get a class that the attacker chooses. This is the
    share of the targeted examples that get this class. None if the attacker targets no examples."""
    recall: float | None
    """The share of the malicious clients that were not kept, over all rounds."""
    honest_dropped: float | None
    """The share of the honest clients that were not kept, over all rounds."""
    milliseconds: float
    """The time that the filter and the aggregator took per round, in milliseconds."""
    run: str
    """The id of the run."""
    package: str
    """The name and the version of the package that contains the defence."""
    protocol: str
    """The version of the protocol."""

    @property
    def command(self) -> str:
        """The command that repeats this run.

        If the defence is in another package, say `mine`, the command reads the description of the defence from the
        file `mine.toml`.
        """
        name = self.package.split()[0]
        return self.cell.command if name == OWN else f"{self.cell.command} --defences {name}.toml"

    @property
    def score(self) -> float:
        """The lower one of two numbers: `accuracy`, and `1 - attack_success`.

        The second number is the share of targeted test examples on which the attacker fails. If `attack_success` is
        None, the score is the accuracy.
        """
        return self.accuracy if self.attack_success is None else min(self.accuracy, 1 - self.attack_success)


def measured_runs(results: Path, entrants: Sequence[Entrant], packages: Mapping[str, str]) -> list[MeasuredRun]:
    """Return the finished runs of a results file that belong to the protocol and to the given defences.

    `packages` maps the name of each defence to the package that contains it.
    """
    protocol = read_protocol()
    cases = {_threat(protocol.attacks.get(case.attack, {}), case): case for case in protocol.cases(ALL)}
    parts = {entrant: _parts(entrant.experiment(protocol, "digits", Case(), 0).canonical) for entrant in entrants}
    rounds, measured = int(protocol.federation["rounds"]), []
    for run in read_summaries(results):
        case = cases.get(_threat_of(run.spec))
        seed, dataset = spec_keys.seed(run.spec), spec_keys.dataset_name(run.spec)
        if run.status != "done" or run.final is None or case is None or seed not in protocol.seeds:
            continue
        for entrant in entrants:  # two defences may have the same settings in one case, and share the run
            if dataset not in protocol.datasets or parts[entrant] != _parts(run.spec):
                continue
            if entrant.experiment(protocol, dataset, case, seed).id == run.id:
                cell = BoardCell(dataset, entrant.name, entrant.told, case, seed)
                shares = (run.final, run.attack_success, run.recall, run.false_positive_rate)
                time = 1000 * run.defence_seconds / rounds
                package = packages[entrant.name]
                measured.append(MeasuredRun(cell, *shares, time, run.id, package, protocol.version))
    return measured


def _threat(table: Tree, case: Case) -> tuple[object, ...]:
    """Return five values that identify a case. `table` is the table of the case's attack in the protocol."""
    return (table.get("attack"), table.get("data_poison"), case.fraction, case.start, case.rotating)


def _threat_of(spec: Tree) -> tuple[object, ...]:
    """Return the same five values as `_threat`, for the spec of a run."""
    if not spec_keys.is_attacked(spec):
        return _threat({}, Case())
    threat = spec[spec_keys.THREAT]
    names = [(threat.get(key) or {}).get("name") for key in ("attack", "data_poison")]
    return (*names, threat["fraction"], threat["start"], threat["rotating"])


def _parts(spec: Tree) -> tuple[str, str]:
    return spec_keys.filter_name(spec), spec_keys.aggregator_name(spec)


def write_rows(path: Path, rows: Iterable[MeasuredRun]) -> None:
    """Write rows as a CSV file, sorted by dataset, defence, seed and case."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=_order):
        cell, case = row.cell, row.cell.case
        writer.writerow(
            [
                *(row.protocol, cell.dataset, cell.defence, _word(cell.told), case.attack, f"{case.fraction:g}"),
                *(case.start, _word(case.rotating), cell.seed),
                *map(_number, (row.accuracy, row.attack_success, row.recall, row.honest_dropped)),
                *(f"{row.milliseconds:.3f}", row.run, row.package, row.command),
            ]
        )
    with writing(path.absolute().parent, str(path)):
        check_target(path)
        write_atomically(path, text.getvalue())


def read_rows(path: Path) -> list[MeasuredRun]:
    """Return the rows of a CSV file. If the file is wrong, the error says in which line and why."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} has more than {MOST_BYTES:,} bytes. Rows of the leaderboard take far less.")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. `flanders leaderboard submit` writes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a text file: {error}.") from error
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        head, *body = list(lines) or [[]]
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}.") from error
    if tuple(head) != COLUMNS:
        raise InputError(f"{path} must begin with the columns {', '.join(COLUMNS)}.")
    cases = {case.name: case for case in read_protocol().cases(ALL)}
    rows: dict[BoardCell, MeasuredRun] = {}
    for number, values in enumerate(body, start=2):
        try:
            row = _row(values, cases, read_protocol())
            if row.cell in rows:
                raise InputError("this run is in the file twice")
            rows[row.cell] = row
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{path}, line {number}: {error}. Write the file with `leaderboard submit`."
            ) from error
    return list(rows.values())


def _row(values: list[str], cases: Mapping[str, Case], protocol: BoardProtocol) -> MeasuredRun:
    if len(values) != len(COLUMNS):
        raise InputError(f"{len(values)} values instead of {len(COLUMNS)}")
    fields = dict(zip(COLUMNS, values, strict=True))
    if fields["protocol"] != protocol.version:
        raise InputError(
            f"the row is of protocol {fields['protocol'][:20]!r}, but this version of flanders has protocol "
            f"{protocol.version!r}"
        )
    if fields["dataset"] not in protocol.datasets:
        raise InputError(f"the protocol has no dataset {fields['dataset'][:40]!r}")
    if not NAME.fullmatch(fields["defence"]):
        raise InputError(f"{fields['defence'][:40]!r} cannot be the name of a defence")
    attack, kind = fields["attack"], "rotating" if _truth(fields["rotating"]) else "fixed"
    case = cases.get(NOBODY if attack == NOBODY else f"{attack}/{fields['fraction']}/{fields['start']}/{kind}")
    if case is None:
        raise InputError(f"the protocol has no case {attack[:40]!r} with this fraction, start and rotating")
    seed = int(fields["seed"])
    if seed not in protocol.seeds:
        raise InputError(f"the protocol has no seed {seed}")
    if not RUN.fullmatch(fields["run"]) or not PACKAGE.fullmatch(fields["package"]):
        raise InputError("`run` must be the id of a run, and `package` the name and the version of a package")
    cell = BoardCell(fields["dataset"], fields["defence"], _truth(fields["told"]), case, seed)
    time = float(fields["milliseconds"])
    if not 0 <= time < math.inf:
        raise InputError("`milliseconds` must be a number of at least 0")
    accuracy = _share(fields["accuracy"])
    if accuracy is None:
        raise InputError("`accuracy` is missing")
    success, recall, dropped = (_share(fields[key]) for key in ("attack_success", "recall", "honest_dropped"))
    row = MeasuredRun(
        cell, accuracy, success, recall, dropped, time, fields["run"], fields["package"], protocol.version
    )
    if fields["command"] != row.command:
        raise InputError("the command does not belong to this run")
    return row


def _share(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if not 0 <= value <= 1:
        raise InputError(f"{text[:20]!r} is not a share from 0 to 1")
    return value


def _truth(text: str) -> bool:
    if text not in (YES, NO):
        raise InputError(f"{text[:20]!r} is neither {YES} nor {NO}")
    return text == YES


def _word(value: bool) -> str:
    return YES if value else NO


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _order(row: MeasuredRun) -> tuple[object, ...]:
    cell, case = row.cell, row.cell.case
    return (
        *(cell.dataset, cell.defence, cell.told, cell.seed),
        *(case.attack != NOBODY, case.attack, case.fraction, case.start, case.rotating),
    )
