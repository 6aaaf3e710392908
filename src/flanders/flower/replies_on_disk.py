"""The class `RepliesOnDisk`: a Flower grid that stores replies on disk. Memory holds only one reply at a time.

In Flower, the server sends messages to the clients' nodes through a grid, and gets the replies from it.
`FilteredStrategy` uses this grid if its parameter `sketch` is set.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from logging import ERROR
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from flanders.flower.stored_arrays import LOST, FileArray, LostArray

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

WAIT = 1.0
"""Seconds between two checks for new replies. More checks would burden the server, fewer would delay the round."""
PREFIX = "replies-"
"""The names of the folders with replies begin with this."""


class RepliesOnDisk(Grid):
    """A grid that wraps another grid and moves the arrays of all replies into files.

    Use it in a `with` block. The files of a round are removed when the next round begins or the block ends. Files
    that a killed process has left in `folder` are removed when the block begins.

    Parameters
    ----------
    grid
        The grid that Flower gave to the ServerApp.
    folder
        The folder for the files; None for the system's temporary folder.
    excess
        A function that returns in words which arrays of a reply are too large, or an empty text if no array is. A
        reply that is too large is not stored.
    """

    def __init__(
        self, grid: Grid, folder: Path | None = None, excess: Callable[[ArrayRecord], str] = lambda record: ""
    ) -> None:
        self.grid, self.folder, self.excess = grid, folder, excess
        self._files: Path | None = None

    def __enter__(self) -> RepliesOnDisk:
        for leftover in [] if self.folder is None else self.folder.glob(f"{PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and fetch the replies one by one, until all have arrived or `timeout` seconds are over."""
        self.clear()
        try:
            self._files = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.folder))
        except OSError as error:  # the disk may be full
            log(ERROR, "flanders: the server cannot make a folder for replies: %s", error)
        waiting = [id_ for id_ in self.grid.push_messages(messages) if id_]
        del messages
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            for id_ in list(waiting):
                for reply in self.grid.pull_messages([id_]):
                    self._store(reply, str(len(replies)))
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

    def _store(self, reply: Message, name: str) -> None:
        """Move the arrays of a reply into a file. If that fails, put a `LostArray` in their place."""
        if not reply.has_content():
            return
        records = list(reply.content.array_records.values())
        excess = next(filter(None, map(self.excess, records[:2])), "")  # more than one record is refused anyway
        if excess or len(records) > 1:
            _leave_out(records, LostArray(excess or f"{len(records)} ArrayRecords instead of one", too_large=True))
            return
        try:
            self._write(records, name)
        except OSError as error:
            if self._files is not None:
                (self._files / name).unlink(missing_ok=True)
            _leave_out(records, LostArray(f"the server cannot store it ({error.strerror})", too_large=False))

    def _write(self, records: Sequence[ArrayRecord], name: str) -> None:
        if self._files is None:
            raise OSError(errno.ENOSPC, "no folder for replies")
        path = self._files / name
        with open(path, "wb") as file:
            for record in records:
                for key in list(record):
                    start, array = file.tell(), record[key]
                    length = file.write(array.data)
                    record[key] = FileArray(array, path, start, length)
                    del array

    # The remaining methods only call the wrapped grid.

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


def _leave_out(records: Iterable[ArrayRecord], why: LostArray) -> None:
    """Replace all arrays of a reply by one `LostArray`."""
    for record in records:
        record.clear()
        record[LOST] = why
