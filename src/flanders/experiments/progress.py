"""Shows the progress of several runs: with bars in a terminal, and otherwise with a line for each run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TextIO

from flanders.experiments.events import Event, Notify, RoundEnded, RunEnded, RunStarted
from flanders.extras import needing
from flanders.record import RoundRecord

LONGEST_NAME = 36
"""The most characters of a run's name beside its bar. With more, a line would not fit into 80 columns."""


@contextlib.contextmanager
def watching(total: int, done: int, names: Mapping[str, str]) -> Iterator[Notify]:
    """Show the progress of `total` runs on standard error. `done` of the runs are done already.

    Yield the function that receives the events of the runs. `names` has a short label for each run, by its id. For
    a run that is not in `names`, the label in its first event is shown.
    """
    if sys.stderr.isatty():
        with _bars(total, done, names, sys.stderr) as notify:
            yield notify
    else:
        yield Lines(total, done, names, sys.stderr)


class TimeLeft:
    """Estimates how long the remaining rounds of all runs will take, from the rounds that are done so far.

    For a run that has not started yet, it assumes the mean number of rounds of the runs that have started.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._began = time.monotonic()
        self._rounds: dict[str, tuple[int, int]] = {}  # rounds to do and rounds done, for each run that has started

    def note(self, event: Event) -> None:
        """Take an event into account."""
        if isinstance(event, RunStarted):
            self._rounds[event.run] = event.rounds - event.after, 0
        elif isinstance(event, RoundEnded):
            todo, done = self._rounds.get(event.run, (0, 0))
            self._rounds[event.run] = todo, done + 1
        elif event.run in self._rounds:
            _, done = self._rounds[event.run]
            self._rounds[event.run] = done, done

    def __str__(self) -> str:
        """Return the time in words. It is empty if no round is done yet, or no round is left."""
        todo, done = (
            (sum(column) for column in zip(*self._rounds.values(), strict=True)) if self._rounds else (0, 0)
        )
        if not done:
            return ""
        left = todo - done + (self._runs - len(self._rounds)) * todo / len(self._rounds)
        return f"about {in_words((time.monotonic() - self._began) * left / done)} left" if left > 0 else ""


def in_words(seconds: float) -> str:
    """Return a duration in words, with one or two units.

    Examples
    --------
    >>> in_words(42.4), in_words(200), in_words(7300), in_words(200_000)
    ('42 s', '3 min 20 s', '2 h 01 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name with its middle left out if it is too long.

    Examples
    --------
    >>> shortened("gauss 0.8, flanders, multi-krum, seed 12", 20)
    'gauss 0.8.., seed 12'
    """
    if len(name) <= longest:
        return name
    end = (longest - 2) // 2
    return f"{name[: longest - 2 - end]}..{name[-end:]}"


class Lines:
    """Prints a line when a run ends or is resumed. It is used if the output is not a terminal."""

    def __init__(self, total: int, done: int, names: Mapping[str, str], stream: TextIO) -> None:
        self.total, self.ended, self.stream = total, done, stream
        self._last: dict[str, RoundRecord] = {}
        self._names = dict(names)
        self._left = TimeLeft(total - done)

    def __call__(self, event: Event) -> None:
        """Take note of an event. Print a line if a run has ended or is resumed."""
        self._left.note(event)
        if isinstance(event, RunStarted):
            self._names.setdefault(event.run, event.label)
            if event.after:
                self._say(event.run, f"continues after round {event.after}")
        elif isinstance(event, RoundEnded):
            self._last[event.run] = event.record
        else:
            self.ended += event.status in ("done", "failed")
            last = self._last.pop(event.run, None)
            after = f" after round {last.number}" if last and event.status != "done" else ""
            accuracy = f", accuracy {last.accuracy:.3f}" if last else ""
            left = f"; {self._left}" if str(self._left) and self.ended < self.total else ""
            error = f": {event.error}" if event.error else ""
            self._say(event.run, f"{event.status}{after}{accuracy}{error}{left}")

    def _say(self, run: str, text: str) -> None:
        print(f"[{self.ended}/{self.total}] {self._names.get(run, run)}: {text}", file=self.stream, flush=True)


@contextlib.contextmanager
def _bars(total: int, done: int, names: Mapping[str, str], stream: TextIO) -> Iterator[Notify]:
    with needing("sim"):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[line]}", markup=False),
        console=Console(file=stream),
    )
    tasks: dict[str, TaskID] = {}
    left = TimeLeft(total - done)

    def notify(event: Event) -> None:
        left.note(event)
        if isinstance(event, RunStarted):
            name = shortened(names.get(event.run) or event.label)
            tasks[event.run] = progress.add_task(name, total=event.rounds, completed=event.after, line="")
        elif isinstance(event, RoundEnded):
            record = event.record
            line = f"acc. {record.accuracy:.3f}, kept {int(record.kept.sum())}"
            progress.update(tasks[event.run], completed=record.number, line=line)
        else:
            progress.remove_task(tasks.pop(event.run))
            if event.status in ("done", "failed"):
                progress.advance(grid)
            if isinstance(event, RunEnded) and event.error:
                progress.console.print(f"{event.run} {event.status}: {event.error}", style="red", markup=False)
        progress.update(grid, line=str(left))

    with progress:
        grid = progress.add_task("runs", total=total, completed=done, line="")
        yield notify
