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
    """Tell whether the owner of a claim is alive. On another machine, its last heartbeat decides."""
    if owner is None:
        return False
    claim = json.loads(owner)
    if claim["machine"] != this_machine():
        return heartbeat is not None and time.time() - heartbeat < LEASE
    if claim["started"] is not None:
        return bool(start_time(claim["pid"]) == claim["started"])
    try:
        os.kill(claim["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists and belongs to another user
        return True
    return True
