"""Who is at work on a run, and whether they still are."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

LEASE = 60.0
"""Seconds without a heartbeat after which a process that cannot be seen from here counts as dead."""
HEARTBEAT = 10.0


@cache
def this_machine() -> str:
    """Return what tells this machine from others: its name, its boot and its table of processes."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux: the name has to do
        pass
    return " ".join(parts)


def me() -> str:
    """Return the owner that this process claims runs as."""
    pid = os.getpid()
    return json.dumps({"machine": this_machine(), "pid": pid, "started": started(pid)})


def started(pid: int) -> str | None:
    """Return when a process began, so that a later one of the same number is not taken for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_alive(owner: str | None, heartbeat: float | None) -> bool:
    """Tell whether the owner of a claim is still at work: by its process here, by its heartbeat elsewhere."""
    if owner is None:
        return False
    who: Mapping[str, Any] = json.loads(owner)
    if who["machine"] != this_machine():
        return heartbeat is not None and time.time() - heartbeat < LEASE
    if who["started"] is not None:
        return bool(started(who["pid"]) == who["started"])
    try:
        os.kill(who["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
