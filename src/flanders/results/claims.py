"""Claims on runs: which process carries out a run, and whether it is still alive."""

from __future__ import annotations

import json
import os
import socket
import time
from functools import cache
from pathlib import Path

LEASE = 60.0
"""After this many seconds without a heartbeat, a process on another machine counts as dead."""
HEARTBEAT = 10.0
"""Seconds between two heartbeats. Six fit into the lease, so a few late ones on a slow disk do not end a claim."""
LARGEST_PROCESS = 2**31
"""Ids of processes are below this number on all systems."""


@cache
def this_machine() -> str:
    """Return a text that differs between machines, boots and containers, within which process ids are unique."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # only Linux has these files; elsewhere the host name must do
        pass
    return " ".join(parts)


def this_process() -> str:
    """Return the text by which this process claims runs."""
    pid = os.getpid()
    return json.dumps({"machine": this_machine(), "pid": pid, "started": start_time(pid)})


def start_time(pid: int) -> str | None:
    """Return when a process began. This distinguishes it from a later process with the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_alive(owner: str | None, heartbeat: float | None) -> bool:
    """Tell whether the owner of a claim is alive. On another machine, its last heartbeat decides.

    A claim that no process of this package writes is nobody's. A heartbeat may lie in the future by as much as it
    may lie in the past, since the clocks of two machines differ. One that lies further ahead is not believed.
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
    except PermissionError:  # it exists and belongs to another user
        return True
    return True
