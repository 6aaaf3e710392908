"""A grid that stores replies on disk, so that memory holds one of them at a time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from flanders.flower.stored_arrays import FileArray

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

WAIT = 1.0
"""Seconds between two checks for new replies."""
PREFIX = "replies-"
"""The prefix of the names of folders with replies. Old folders with this prefix in `folder` are removed."""


class RepliesOnDisk(Grid):
    """A grid that moves the arrays of all replies into files. All other calls go to the grid that it wraps.

    Parameters
    ----------
    grid
        The grid that Flower gave to the ServerApp.
    folder
        The folder for the files; None for the system's temporary folder. Use the grid in a `with` block. The files
        of a round are removed when the next round begins or the block ends. Files of a process that was killed are
        removed when the block begins.
    """

    def __init__(self, grid: Grid, folder: Path | None = None) -> None:
        self.grid, self.folder = grid, folder
        self._files: Path | None = None

    def __enter__(self) -> RepliesOnDisk:
        for leftover in [] if self.folder is None else self.folder.glob(f"{PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and fetch the replies one by one, until all have arrived or the time is up."""
        self.clear()
        self._files = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.folder))
        waiting = [id_ for id_ in self.grid.push_messages(messages) if id_]
        del messages
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            for id_ in list(waiting):
                for reply in self.grid.pull_messages([id_]):
                    self._store(reply, self._files / str(len(replies)))
                    replies.append(reply)
                    waiting = [other for other in waiting if other != id_]
            if waiting:
                if end is not None and time.monotonic() > end:
                    break
                time.sleep(WAIT)
        return replies

    def clear(self) -> None:
        """Remove the files of the last round."""
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)
            self._files = None

    @staticmethod
    def _store(reply: Message, path: Path) -> None:
        if not reply.has_content():
            return
        with open(path, "wb") as file:
            for record in reply.content.array_records.values():
                for name in list(record):
                    start, array = file.tell(), record[name]
                    length = file.write(array.data)
                    record[name] = FileArray(array, path, start, length)
                    del array

    # All other methods call the wrapped grid.

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self.grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the grid."""
        return self.grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes."""
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterator[NodeInfo]:
        """Return the descriptions of the nodes."""
        return iter(self.grid.get_nodes())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies."""
        return self.grid.pull_messages(message_ids)
