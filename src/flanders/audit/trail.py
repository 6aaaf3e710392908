"""The class `AuditTrail`: writes an audit trail, an append-only file of what the server decided in each round.

The *head* of an entry is its number and its hash.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from flanders.audit.entries import BadEntry, Head, TrailEntry, is_half_line, seal, unseal
from flanders.audit.segments import first_entry, lines_of, segment_number, segments
from flanders.checks import InputError, check_number
from flanders.files import sync_folder

if sys.platform != "win32":
    import fcntl

LARGEST_FILE = 64 * 2**20
"""The size in bytes after which a new file begins. It is enough for 3,000 rounds of 100 clients. Such a round takes
about 20,000 bytes."""
MOST_FILES = 16
"""The number of files that are kept. With `LARGEST_FILE`, a trail takes at most about 1 GiB."""

ADVICE = "restore it from a copy, or move it away. A new trail then begins, which says that entries are missing."
"""What error messages say about a trail that cannot be continued."""


class AuditTrail:
    """An append-only file in which each entry holds the hash of the entry before it.

    Each entry is on the disk before `add` returns. When the file has become large, it is renamed, and the trail
    continues in a new file. The first large file is renamed to `PATH.1`, the second to `PATH.2` and so on. If there
    are too many files, the oldest are removed. The first entry of a new file says which is the oldest entry that is
    left.

    Parameters
    ----------
    path
        The file. It is made if it is missing.
    max_bytes
        The size in bytes after which a new file begins.
    max_files
        The number of files that are kept. It includes the file that is being written.

    Examples
    --------
    >>> import tempfile
    >>> trail = AuditTrail(Path(tempfile.mkdtemp()) / "audit.jsonl")
    >>> trail.open({"run": "a", "after_round": 0})
    []
    >>> trail.add("round", {"run": "a", "round": 1}).entry
    2
    >>> trail.close()
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int = LARGEST_FILE, max_files: int = MOST_FILES
    ) -> None:
        check_number("AuditTrail", "max_bytes", max_bytes, 1, whole=True)
        check_number("AuditTrail", "max_files", max_files, 2, whole=True)
        self.path, self.max_bytes, self.max_files = Path(path), max_bytes, max_files
        self.head = Head()
        """The number and the hash of the last entry."""
        self._file: int | None = None
        self._size = 0

    @property
    def is_open(self) -> bool:
        """Whether entries can be added."""
        return self._file is not None

    def open(self, fields: Mapping[str, object], known: Head | None = None) -> list[TrailEntry]:
        """Begin or continue the trail with an entry of the kind `start`, which holds `fields`.

        `known` is the head of the last entry that the caller remembers. Return the entries after this entry. If
        `known` is None, return no entries.

        Raise an `InputError` if the trail is damaged, or if another process writes to it. Also raise it if the
        trail has entries, but not the entry `known`.
        """
        if self._file is not None:
            return []
        handle = self._locked()
        try:
            later = self._after(known)
            # `_after` comes first. It raises an error if the file is no trail, and such a file must not be changed.
            removed = self._cut_half_line(handle)
        except BaseException:
            os.close(handle)
            raise
        self._file, self._size = handle, os.fstat(handle).st_size
        extra: dict[str, object] = {"torn_bytes": removed} if removed else {}
        if known is not None and known.entry and self.head == known and not self._size and not segments(self.path):
            # The caller remembers entries, but the trail is empty.
            extra["missing_until"] = known.entry
        self.add("start", {**fields, **extra})
        return later

    def add(self, kind: str, fields: Mapping[str, object]) -> Head:
        """Add an entry, and return its head. If an `OSError` is raised, this entry was not added."""
        if self._file is None:
            raise InputError("This audit trail is not open. Call `open` first.")
        if self._size >= self.max_bytes:
            self._rotate()
        self._write(kind, fields)
        return self.head

    def close(self) -> None:
        """Close the file, so that other processes can write to the trail."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, kind: str, fields: Mapping[str, object]) -> None:
        assert self._file is not None
        line, head = seal(self.head, kind, fields)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:  # e.g. a full disk
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        self.head = head

    def _rotate(self) -> None:
        """Continue in a new file, and remove the oldest files if there are too many."""
        old = segments(self.path)
        number = 1 + (segment_number(old[-1], self.path) if old else 0)
        full = self.path.with_name(f"{self.path.name}.{number}")
        try:
            os.rename(self.path, full)
            handle = self._locked()
        except (OSError, InputError):  # no new file can be made, so the trail continues in the old one
            with contextlib.suppress(OSError):
                os.rename(full, self.path)
            return
        self.close()
        self._file, self._size = handle, 0
        kept = [*old, full][-(self.max_files - 1) :]
        self._write("rotation", {"oldest": first_entry(kept[0])})
        for path in old:
            if path not in kept:
                path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _locked(self) -> int:
        """Open the file for appending, lock it if the system has locks, and return its handle."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(
                f"The audit trail {self.path} cannot be written: {error.strerror or error}. Choose another place."
            ) from error
        if sys.platform != "win32":
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise InputError(
                    f"Another process writes to the audit trail {self.path}. End that process, or name another "
                    "file."
                ) from None
            except OSError:  # some network file systems have no locks
                pass
        return handle

    def _cut_half_line(self, handle: int) -> int:
        """Remove the last line if it was not written to its end. Return the number of bytes that are removed."""
        size = os.fstat(handle).st_size
        whole = sum(len(line) for line in lines_of(self.path) if line.endswith(b"\n"))
        if whole < size:
            os.ftruncate(handle, whole)
        return size - whole

    def _after(self, known: Head | None) -> list[TrailEntry]:
        """Set `self.head` to the head of the last entry, and return the entries after the entry `known`."""
        later: list[TrailEntry] = []
        last: TrailEntry | None = None
        after_known = known is None or known == Head()
        # Callers remember the head after each round, so `known` is in one of the last two files.
        for path in [*segments(self.path)[-1:], self.path]:
            for line in lines_of(path):
                try:
                    if path == self.path and is_half_line(line):
                        continue  # the process was killed while it wrote this line; `open` removes it
                    last = unseal(line)
                except BadEntry as error:
                    place = "begins with" if last is None else f"has after entry {last.head.entry}"
                    raise InputError(
                        f"The audit trail {path} is damaged: it {place} a line that {error}. Look at it with "
                        f"`flanders audit verify {self.path}`, then {ADVICE}"
                    ) from error
                if after_known:
                    later.append(last)
                after_known = after_known or last.head == known
        if last is None:
            self.head = known or Head()
            return []
        self.head = last.head
        if not after_known:
            raise InputError(
                f"The audit trail {self.path} does not hold entry {known}, which was written to it: it was cut or "
                f"rewritten, or it belongs to another federation. {ADVICE[0].upper()}{ADVICE[1:]}"
            )
        return [] if known is None else later
