"""The function `verify_trail`: finds out whether an audit trail was changed after it was written.

An audit trail is a file in which a server writes down what it decided in each round. Each entry has a number and a
hash, which together are called its head. Each entry also holds the hash of the entry before it. A *breach* is a
place in the file that shows a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flanders.audit.entries import BadEntry, Head, TrailEntry, unseal
from flanders.audit.segments import lines_of, segments
from flanders.checks import InputError
from flanders.plain_text import first_few, printable

IN_A_LOG = re.compile(r"audit head (\d{1,15}:[0-9a-f]{64})")
"""Matches the head of the last entry, which the server writes to its log after each round."""
MOST_BREACHES = 1000
"""The most breaches, and the most notes, that are listed. If a file is no trail, every line may be a breach."""
LONGEST_WORDS = 300
"""The text of a breach or a note is cut to this many characters. It may quote a forged file with long texts."""
MOST_SHOWN = 20
"""The most numbers of rounds that a note lists, so that notes stay short."""


@dataclass(frozen=True)
class Breach:
    """A place in a trail which shows that the trail was changed after it was written."""

    file: Path
    line: int
    """The number of the line; 0 if the breach is about the whole file."""
    words: str
    """What is wrong."""

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.words}"


@dataclass
class TrailCheck:
    """The result of `verify_trail`."""

    breaches: list[Breach] = field(default_factory=list)
    more_breaches: int = 0
    """The number of further breaches that are not in the list."""
    notes: list[str] = field(default_factory=list)
    """Unusual things that are no breaches, e.g. that old files were removed because there were too many."""
    entries: int = 0
    """The number of entries in the trail."""
    rounds: int = 0
    """The number of entries that are rounds."""
    first: int = 0
    """The number of the oldest entry."""
    head: Head = field(default_factory=Head)
    """The head of the last entry."""

    @property
    def intact(self) -> bool:
        """Whether no breach was found."""
        return not self.breaches


def heads_in_log(text: str) -> list[Head]:
    """Return all heads in the text of a server's log."""
    return [Head.parse(found) for found in IN_A_LOG.findall(text)]


def verify_trail(path: Path, heads: Iterable[Head] = ()) -> TrailCheck:
    """Read a trail from its oldest entry to its newest, and return the breaches that are found.

    `heads` are the heads of entries that the caller has kept in another place, e.g. from the server's log. Two
    kinds of changes are found only with heads: entries that were cut off at the end, and a trail that was rewritten
    from some entry to its end.
    """
    files = [*segments(path), path]
    if not any(file.is_file() for file in files):
        raise InputError(f"There is no audit trail at {path}.")
    try:
        return _Reading(heads).read(files)
    except OSError as error:
        raise InputError(f"The audit trail {path} cannot be read: {error.strerror or error}.") from error


@dataclass
class _Run:
    """What was read so far of the rounds of one run. A trail may hold several runs of a federation."""

    last: int | None = None
    """The number of the last round; None if no round is known yet."""
    model: str = ""
    """The digest of the global model after the last round; empty if the digest is not known."""


class _Reading:
    """Reads a trail one entry after the other, and collects the breaches."""

    def __init__(self, heads: Iterable[Head]) -> None:
        self.check = TrailCheck()
        self.expected = {head for head in heads if head.entry}
        """The heads that were not found in the trail yet."""
        self.oldest = 1
        """The number of the oldest entry that should be there. Older entries were removed with old files."""
        self.runs: dict[str, _Run] = {}
        self.place = (Path(), 0)
        """The file and the line that is being read."""

    def read(self, files: Sequence[Path]) -> TrailCheck:
        for file in files:
            for number, line in enumerate(lines_of(file), start=1):
                self.place = file, number
                if not line.endswith(b"\n"):
                    self.breach(
                        "the last line is not complete: the server was stopped while it wrote, or the line was cut"
                    )
                    continue
                try:
                    entry = unseal(line)
                except BadEntry as error:
                    self.breach(f"the line {error}")
                    continue
                self.follow(entry)
        self.place = files[-1], 0
        first, last = self.check.first, self.check.head.entry
        if first > self.oldest:
            self.breach(f"entries {self.oldest} to {first - 1} are missing at the start")
        elif first > 1:
            self.note(f"entries 1 to {first - 1} were removed, since the trail had too many files")
        for head in sorted(self.expected, key=lambda head: head.entry):
            if head.entry > last:
                self.breach(f"rolled back: entry {head.entry} was written, but the trail ends at {last}")
            elif head.entry >= first:
                self.breach(f"rewritten: entry {head.entry} is not the one with the hash {head.hash}")
        return self.check

    def follow(self, entry: TrailEntry) -> None:
        """Check that an entry fits the entries before it."""
        check, number = self.check, entry.head.entry
        check.entries += 1
        if not check.first:
            check.first = number
            if number == 1 and entry.previous != Head().hash:
                self.breach("entry 1 holds the hash of an earlier entry, but there can be none")
        elif number != check.head.entry + 1:
            last = check.head.entry
            single = number == last + 2
            gap = f"entry {last + 1} is missing" if single else f"entries {last + 1} to {number - 1} are missing"
            self.breach(f"entry {number} follows entry {last}: " + (gap if number > last else "out of order"))
        elif entry.previous != check.head.hash:
            self.breach(f"entry {number} was not written after this entry {number - 1}: one of them was changed")
        check.head = entry.head
        self.expected.discard(entry.head)
        try:
            if entry.kind == "rotation":
                self.oldest = max(self.oldest, int(entry.fields["oldest"]))
            elif entry.kind == "start":
                self.start(entry)
            elif entry.kind == "round":
                self.follow_round(entry)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.breach(f"entry {number}, of the kind {entry.kind!r}, lacks a field or has a wrong value in it")

    def start(self, entry: TrailEntry) -> None:
        """Check an entry of the kind `start`: the server must continue after the last round of its run."""
        name, after = str(entry.fields["run"]), int(entry.fields["after_round"])
        run = self.runs.get(name)
        if missing := entry.fields.get("missing_until"):
            self.breach(
                f"the server found no trail when it started, although {int(missing)} entries had been written"
            )
        if run is None or run.last is None:
            self.runs[name] = _Run(after)
            return
        if after < run.last - 1:
            self.breach(
                f"the server went back from round {run.last} to round {after}: its saved memory was older "
                "than the trail"
            )
        elif after == run.last - 1:
            self.note(
                f"round {run.last} of run {name} is there twice: the server was stopped before it had saved "
                "the round"
            )
        if after < run.last:
            run.last, run.model = after, ""

    def follow_round(self, entry: TrailEntry) -> None:
        """Check that a round fits the round before it: its number, and the global model that it started from."""
        fields, self.check.rounds = entry.fields, self.check.rounds + 1
        run, number = self.runs.setdefault(str(fields["run"]), _Run()), int(fields["round"])
        unwritten = sorted({int(round_) for round_ in fields.get("unwritten", ())})
        last = number - 1 if run.last is None else run.last
        known = set(unwritten)
        missing = (round_ for round_ in range(last + 1, number) if round_ not in known)
        if number <= last:
            self.breach(f"round {number} comes after round {last}")
        elif (first := next(missing, None)) is not None:
            self.breach(f"round {first} has no entry")
        if unwritten:
            shown = first_few(unwritten, MOST_SHOWN)
            self.note(f"rounds without an entry, since the entry could not be written: {shown}")
        if run.model and fields["model_before"] != run.model and not unwritten:
            self.breach(f"round {number} did not start from the global model that round {last} ended with")
        run.last, run.model = number, str(fields["model_after"])

    def note(self, words: str) -> None:
        if len(self.check.notes) < MOST_BREACHES:
            self.check.notes.append(printable(words, LONGEST_WORDS))

    def breach(self, words: str) -> None:
        if len(self.check.breaches) < MOST_BREACHES:
            self.check.breaches.append(Breach(*self.place, printable(words, LONGEST_WORDS)))
        else:
            self.check.more_breaches += 1
