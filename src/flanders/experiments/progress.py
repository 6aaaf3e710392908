"""The progress of a grid of runs: bars in a terminal, or else a line for each run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

from flanders.experiments.events import Event, Notify, RoundEnded, RunEnded, RunStarted
from flanders.extras import needing


@contextlib.contextmanager
def watching(
    total: int, done: int, names: Mapping[str, str] | None = None, stream: TextIO | None = None
) -> Iterator[Notify]:
    """Show the progress of `total` runs on `stream` (default: standard error). `done` of them are done already.

    `names` has the labels of runs, by their ids. If a run is not there, the label in its first event is shown.
    """
    names = names or {}
    stream = stream or sys.stderr
    if stream.isatty():
        with _bars(total, done, names, stream) as notify:
            yield notify
    else:
        yield Lines(total, done, names, stream)


class Lines:
    """Prints one line when a run ends. This is for logs and pipes."""

    def __init__(self, total: int, done: int, names: Mapping[str, str], stream: TextIO) -> None:
        self.total, self.ended, self.stream = total, done, stream
        self._last: dict[str, RoundEnded] = {}
        self._names = dict(names)

    def __call__(self, event: Event) -> None:
        """Record an event. Print a line if a run has ended or is resumed."""
        if isinstance(event, RunStarted):
            self._names.setdefault(event.run, event.label)
            if event.after:
                self._say(event.run, f"continues after round {event.after}")
        elif isinstance(event, RoundEnded):
            self._last[event.run] = event
        else:
            self.ended += event.status in ("done", "failed")
            last = self._last.pop(event.run, None)
            so_far = f", round {last.number}, {round_line(last)}" if last else ""
            self._say(event.run, f"{event.status}{so_far}{': ' + event.error if event.error else ''}")

    def _say(self, run: str, text: str) -> None:
        print(f"[{self.ended}/{self.total}] {run} {self._names.get(run, '')}: {text}", file=self.stream, flush=True)


def round_line(event: RoundEnded) -> str:
    """Return a short text about a round."""
    return f"accuracy {event.accuracy:.3f}, kept {event.kept}, caught {event.caught}, missed {event.missed}"


@contextlib.contextmanager
def _bars(total: int, done: int, names: Mapping[str, str], stream: TextIO) -> Iterator[Notify]:
    with needing("sim"):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[line]}"),
        console=Console(file=stream),
    )
    tasks: dict[str, TaskID] = {}

    def notify(event: Event) -> None:
        if isinstance(event, RunStarted):
            name = names.get(event.run) or event.label
            tasks[event.run] = progress.add_task(name, total=event.rounds, completed=event.after, line="")
        elif isinstance(event, RoundEnded):
            progress.update(tasks[event.run], completed=event.number, line=round_line(event))
        else:
            progress.remove_task(tasks.pop(event.run))
            if event.status in ("done", "failed"):
                progress.advance(grid)
            if isinstance(event, RunEnded) and event.error:
                progress.console.print(f"{event.run} {event.status}: {event.error}", style="red", markup=False)

    with progress:
        grid = progress.add_task("runs", total=total, completed=done, line="")
        yield notify
