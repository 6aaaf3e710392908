"""Claims on runs: which process carries out a run, and whether this process is still alive.

Several processes may share a results file. A process claims a run before it carries out the run. Then it regularly
reports that it is alive. Such a report is a heartbeat. If the process dies, another process can claim the run.
"""

from __future__ import annotations

import json
import os
import socket
import time
from functools import cache
from pathlib import Path

LEASE = 60.0
"""After this many seconds without a heartbeat, a process on another machine counts as dead. For a process on this
machine, the operating system is asked instead."""
HEARTBEAT = 10.0
"""Seconds between two heartbeats. Six heartbeats fit into `LEASE`, so a process may miss a few on a slow disk."""
LARGEST_PROCESS = 2**31
"""Process ids are below this number on all systems that we know. A claim with a larger id is damaged."""


@cache
def this_machine() -> str:
    """Return a text that identifies this machine, its boot and its container.

    Among the running processes with the same text, no two have the same process id.
    """
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # only Linux has these files; elsewhere the host name is used alone
        pass
    return " ".join(parts)


def this_process() -> str:
    """Return the text that identifies this process as the owner of a claim, as JSON."""
    pid = os.getpid()
    return json.dumps({"machine": this_machine(), "pid": pid, "started": start_time(pid)})


def start_time(pid: int) -> str | None:
    """Return when a process started, or None if that is not known.

    A later process with the same id has another start time.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_alive(owner: str | None, heartbeat: float | None) -> bool:
    """Whether the owner of a claim is alive. The owner is a process.

    For a process on another machine, its last heartbeat decides. The clocks of two machines may differ, so a
    heartbeat may also be up to `LEASE` seconds in the future. A claim that cannot be read, e.g. in a damaged file,
    counts as a claim of a dead process.
    """
    if owner is None:
        return False
    try:
        claim = json.loads(owner)
        machine, pid, started = claim["machine"], claim["pid"], claim["started"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    if type(pid) is not int or not 0 < pid < LARGEST_PROCESS:
        return False
    if machine != this_machine():
        return isinstance(heartbeat, float | int) and abs(time.time() - heartbeat) < LEASE
    if started is not None:
        return bool(start_time(pid) == started)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process exists, but belongs to another user
        return True
    return True
