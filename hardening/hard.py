"""Runs all programs that attack this package, and prints the results in one table.

    python -m hardening.hard [--scale 1.0] [--json FILE]

It tries hostile input (`hardening.fuzz`), faults (`hardening.faults`), a long run whose server is killed
(`hardening.soak`), and bad inputs on this package and other libraries (`hardening.peers`). `--scale 0.01` does a
hundredth of the work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from hardening.faults import inject_all
from hardening.fuzz import Tally, fuzz
from hardening.peers import Survival, compare
from hardening.soak import Size, Soaked, soak
from hardening.verdicts import Verdict

CASES = {
    "replies": 1500,
    "arrays": 2500,
    "states": 3000,
    "results": 3000,
    "specs": 6000,
    "datasets": 2000,
    "trails": 3000,
}
"""How many cases of each kind of input are tried. A case of `replies` has about six hostile replies. A case of
`arrays` has four arrays."""
ROUNDS, IDS = 1000, 10_000
WORKERS = 2
"""How many of these programs run at the same time, each in a process of its own."""
COLUMNS = (
    "",
    "tried",
    "survived",
    "tracebacks, runs ended, rounds lost",
    "models not finite",
    "models taken over, honest clients silenced",
    "hangs",
)
Row = tuple[str, ...]


def fuzz_row(tally: Tally) -> Row:
    """Return the row of the table for one kind of hostile input."""
    bad = [tally.verdicts[each] for each in (Verdict.TRACEBACK, Verdict.NON_FINITE, Verdict.SILENCED, Verdict.HANG)]
    return (f"hostile {tally.target}", f"{tally.tried:,}", f"{tally.tried - sum(bad):,}", *map(str, bad))


def soak_rows(found: Soaked) -> list[Row]:
    """Return the rows of the table for the long run."""
    lost = found.rounds_missing + (0 if found.same_model and found.trail_intact else 1)
    different = found.decisions_that_differ
    kills = (
        "kills (SIGKILL) in the long run",
        str(found.kills),
        str(found.kills - min(lost, found.kills)),
        str(lost),
    )
    decided = (
        f"decisions in {found.rounds:,} rounds, {found.ids:,} ids, with and without kills",
        f"{found.decisions:,}",
    )
    same = (f"{found.decisions - different:,} the same", f"{different} differ")
    growing = (
        "memory while new ids appear",
        f"{found.rounds // 2:,} rounds",
        f"{found.kib_a_new_id:+.2f} KiB an id",
    )
    slope = ("memory after that", f"{found.rounds // 2:,} rounds", f"{found.kib_a_round:+.2f} KiB a round")
    return [
        (*kills, "0", "0", "0"),
        (*decided, *same, "", "", ""),
        (*growing, "", "", "", ""),
        (*slope, "", "", "", ""),
    ]


def table(rows: list[Row]) -> str:
    """Return rows as a table in Markdown."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cpu_minutes() -> float:
    """Return the CPU time of this process and of the processes that it has started, in minutes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) / 60


def machine() -> str:
    """Return a description of the machine."""
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
    ]
    return (
        f"{os.cpu_count()} cores ({names[0] if names else platform.machine()}), Python {platform.python_version()}"
    )


def main() -> int:
    """Read the command line, run all programs, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m hardening.hard", description="Run all attacks, and print one table."
    )
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the work to do (default: 1)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    start, rows, findings = time.monotonic(), list[Row](), list[str]()
    rounds = max(10, round(ROUNDS * options.scale))
    size = Size(rounds, 30, max(60, round(IDS * options.scale)), max(5, rounds // 20))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        soaking = pool.submit(soak, size, Path(folder))
        tallies = [pool.submit(fuzz, name, cases=max(1, round(n * options.scale))) for name, n in CASES.items()]
        found = soaking.result()
        for tally in [each.result() for each in tallies]:
            rows.append(fuzz_row(tally))
            findings += [f"{tally.target} case {number}: {words}" for words, number in tally.findings.items()]
    faults = inject_all()
    survived = sum(each.survived for each in faults)
    lost = len(faults) - survived
    findings += [f"fault: {each.name}: {each.words}" for each in faults if not each.survived]
    rows.append(
        ("faults of disks, strategies and clients", str(len(faults)), str(survived), str(lost), "0", "0", "0")
    )
    rows += soak_rows(found)
    findings += [] if found.passed else [f"soak: {asdict(found)}"]
    for peer in compare():
        ends = [
            str(peer.count(each)) for each in (Survival.SURVIVED, Survival.ENDED, Survival.BROKEN, Survival.TAKEN)
        ]
        rows.append((f"{peer.name}, bad inputs", str(len(peer.found)), *ends, "0"))
    print(table(rows))
    print(f"\n{machine()}; {(time.monotonic() - start) / 60:.0f} minutes, {cpu_minutes():.0f} minutes of CPU time.")
    for words in findings:
        print(words)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"rows": rows, "findings": findings, "soak": asdict(found)}, indent=2) + "\n"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
