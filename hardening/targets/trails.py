"""The target `trails`: audit trails that were changed after they were written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from flanders.audit import AuditTrail, verify_trail
from flanders.checks import InputError
from hardening.choices import Choices, damaged
from hardening.targets.target import Target

ROUNDS = 5


class UnseenChange(Exception):
    """A trail was changed, but the check says that it is intact."""


class Trails(Target):
    """Changed audit trails. The check must find every change."""

    name = "trails"

    def prepare(self, folder: Path) -> None:
        """Write an audit trail, which the cases change."""
        super().prepare(folder)
        trail = AuditTrail(folder / "made.jsonl")
        trail.open({"run": "a", "after_round": 0})
        for number in range(1, ROUNDS + 1):
            trail.add(
                "round",
                {"run": "a", "round": number, "model_before": str(number - 1), "model_after": str(number)},
            )
        trail.close()
        self.head, self.data = trail.head, (folder / "made.jsonl").read_bytes()

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Check a changed trail, and try to append to it."""
        hostile = self.changed(choices) if replay is None else replay
        path = self.folder / "hostile.jsonl"
        path.write_bytes(hostile)
        if verify_trail(path, [self.head]).intact and hostile != self.data:
            raise UnseenChange(repr(hostile[:200]))
        verify_trail(path)
        trail = AuditTrail(path)
        try:
            trail.open({"run": "a", "after_round": ROUNDS}, self.head)
        except InputError:
            return 1
        trail.close()
        return 1

    def changed(self, choices: Choices) -> bytes:
        """Return the trail with a hostile change."""
        lines = self.data.splitlines(keepends=True)
        place, other = choices.below(len(lines)), choices.below(len(lines))
        kind = choices.below(6)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines[place], lines[other] = lines[other], lines[place]
        elif kind == 2:
            lines.insert(place, lines[other])
        elif kind == 3:
            lines[place] = resealed(choices, lines[place])
        elif kind == 4:
            lines = lines[:place]
        else:
            return damaged(self.data, choices)
        return b"".join(lines)


def resealed(choices: Choices, line: bytes) -> bytes:
    """Return an entry with a hostile value and the right hash."""
    fields = json.loads(line)
    del fields["hash"]
    fields[choices.pick([*fields, "unwritten", "oldest", "missing_until"])] = choices.value()
    try:
        body = json.dumps(fields, separators=(",", ":"))[:-1].encode()
    except RecursionError:
        return line
    return body + f',"hash":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
