"""Tries hostile input on everything that takes input from others, and counts the results.

    python -m hardening.fuzz [--seconds 60] [--only replies ...] [--seed 0]    # as many cases as fit into the time
    python -m hardening.fuzz --cases 500                                       # 500 cases for each target
    python -m hardening.fuzz --only states --case 17                           # repeat one case, with its traceback

A target is a part of the package that takes input. A case is one hostile input. Case n of a target is always the
same input, for the same seed and the same code of the target. The inputs of the corpus, a folder of files, come
first. Each target runs in a process of its own, with a limit on its memory. A case counts as a hang if it takes
more than `SLOWEST` seconds of CPU time or more than `LONGEST` seconds in all. Its process is then killed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from hardening.choices import Choices
from hardening.targets.arrays import Arrays
from hardening.targets.datasets import Datasets
from hardening.targets.replies import Replies
from hardening.targets.results import Results
from hardening.targets.specs import Specs
from hardening.targets.states import States
from hardening.targets.target import Target
from hardening.targets.trails import Trails
from hardening.verdicts import Case, Verdict, judged

TARGETS: dict[str, type[Target]] = {
    target.name: target for target in (Replies, Arrays, States, Results, Specs, Datasets, Trails)
}
SLOWEST = 30.0
"""Seconds of CPU time after which a case counts as a hang. Ordinary cases take milliseconds."""
LONGEST = 600.0
"""Seconds after which a case counts as a hang even if it uses no CPU time. A busy machine does not slow a case down
that much."""
MEMORY = 2 * 2**30
"""How many bytes of memory a target may use in addition to what it uses at first."""
LENGTH = 160
"""The number of random bytes from which one case is made."""


@dataclass
class Tally:
    """The results of all cases of a target."""

    target: str
    cases: int = 0
    tried: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    findings: dict[str, int] = field(default_factory=dict)
    """What went wrong, and the number of the first case in which it did."""
    slowest: float = 0.0

    def add(self, case: Case, seconds: float) -> None:
        """Count a case."""
        self.cases, self.tried = self.cases + 1, self.tried + case.tried
        self.verdicts[case.verdict] += 1
        self.slowest = max(self.slowest, seconds)
        if case.verdict is not Verdict.FINE:
            self.findings.setdefault(f"{case.verdict}: {case.words}", case.number)


def input_of(target: Target, number: int, seed: int) -> tuple[Choices, bytes | None]:
    """Return the choices of a case. In the first cases, also return the file of the corpus that is tried."""
    corpus = target.corpus
    decisions = np.random.default_rng([seed, number, *target.name.encode()]).bytes(LENGTH)
    if number >= len(corpus):
        return Choices(decisions), None
    return (Choices(decisions), corpus[number]) if target.reads_files else (Choices(corpus[number]), None)


def try_case(target: Target, number: int, seed: int = 0) -> Case:
    """Try one case, and return its result."""
    choices, replay = input_of(target, number, seed)
    try:
        return judged(target.name, number, target.attack(choices, replay), None)
    except Exception as error:
        return judged(target.name, number, 1, error)


def work(name: str, numbers: range, seed: int, pipe: Connection) -> None:
    """Try cases one after the other, and send the result of each. This runs in a process of its own."""
    limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        target = TARGETS[name]()
        target.prepare(Path(folder))
        pipe.send(None)
        for number in numbers:
            start = time.perf_counter()
            case = try_case(target, number, seed)
            pipe.send((case, time.perf_counter() - start))


def limit_memory() -> None:
    """Limit the memory of this process to `MEMORY` more than it uses now, if the system supports it."""
    status = Path("/proc/self/statm")
    if status.exists():
        now = int(status.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def answers(pipe: Connection, process: int, patience: float) -> bool:
    """Wait for a message of a process. Return whether it came in time: `patience` times the limits of a case."""
    start, used = time.monotonic(), cpu_seconds(process)
    while not pipe.poll(1.0):
        if cpu_seconds(process) - used > patience * SLOWEST or time.monotonic() - start > patience * LONGEST:
            return False
    return True


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far, in seconds. 0 if it is not known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(name: str, *, seconds: float = 1e9, cases: int = 10**9, seed: int = 0) -> Tally:
    """Try cases of a target until the time is over or enough cases are done. Return the results."""
    tally, end, number = Tally(name), time.monotonic() + seconds, 0
    context = multiprocessing.get_context("spawn")
    while number < cases and time.monotonic() < end:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(name, range(number, cases), seed, theirs), daemon=True)
        process.start()
        theirs.close()
        patience = 10.0  # times the limits of a case, since the process first imports everything
        while number < cases and time.monotonic() < end:
            if not answers(ours, process.pid or 0, patience):
                tally.add(Case(name, number, 1, Verdict.HANG, f"more than {SLOWEST:.0f} s"), SLOWEST)
                number += 1
                break
            try:
                found = ours.recv()
            except EOFError:
                words = f"the process ended with {process.exitcode}"
                tally.add(Case(name, number, 1, Verdict.TRACEBACK, words), 0.0)
                number += 1
                break
            patience = 1.0
            if found is not None:
                tally.add(*found)
                number += 1
        process.kill()
        process.join()
        ours.close()
    return tally


def table(tallies: Sequence[Tally]) -> str:
    """Return the results of all targets as a table."""
    head = ("input", "tried", "cases", "tracebacks", "non-finite", "silenced", "hangs", "slowest")
    rows: list[tuple[str, ...]] = [head]
    for tally in tallies:
        found = [tally.verdicts[v] for v in (Verdict.TRACEBACK, Verdict.NON_FINITE, Verdict.SILENCED, Verdict.HANG)]
        rows.append(
            (tally.target, f"{tally.tried:,}", f"{tally.cases:,}", *map(str, found), f"{tally.slowest:.1f} s")
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(text.rjust(w) if i else text.ljust(w) for i, (text, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Read the command line, try the cases, and print the table and every finding once."""
    parser = argparse.ArgumentParser(
        prog="python -m hardening.fuzz", description="Try hostile input, and count the results."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all targets together (default: 60)")
    parser.add_argument("--cases", type=int, help="number of cases for each target, instead of a time")
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="repeat one case, with its traceback")
    options = parser.parse_args()
    if options.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            target = TARGETS[options.only[0]]()
            target.prepare(Path(folder))
            target.attack(*input_of(target, options.case, options.seed))
        return 0
    share = 1e9 if options.cases else options.seconds / len(options.only)
    tallies = [fuzz(name, seconds=share, cases=options.cases or 10**9, seed=options.seed) for name in options.only]
    print(table(tallies))
    for tally in tallies:
        for words, number in tally.findings.items():
            print(f"{tally.target} case {number}: {words}")
    return 1 if any(tally.findings for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
