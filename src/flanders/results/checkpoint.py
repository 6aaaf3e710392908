"""A run's state as bytes and back, for the table `checkpoint`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from flanders.arrays import Array
from flanders.state import load_state, save_state


def state_to_bytes(state: Any) -> bytes:
    """Return a state as `save_state` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npz"
        save_state(path, state)
        return path.read_bytes()


def state_from_bytes(data: bytes, like: Array = None) -> Any:
    """Return the state that `state_to_bytes` wrote; see `load_state` for `like`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npz"
        path.write_bytes(data)
        return load_state(path, like)
