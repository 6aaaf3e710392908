"""The target `states`: hostile state files of a `Defense` and of a Flower federation."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import FedAvg

from flanders.checks import InputError
from flanders.defense import Defense
from flanders.filters import Filter, Flanders, FLDetector, Guard
from flanders.flower import Ban, FilteredStrategy
from flanders.flower.saved_memory import FILE
from flanders.state import digest_of
from hardening.choices import Choices, damaged
from hardening.federation import LocalGrid, honest_nodes, is_finite, quiet, start_model
from hardening.targets.target import Target
from hardening.verdicts import NonFiniteModel

FILTERS: tuple[Filter[Any], ...] = (Guard(), Flanders(keep=0.5), FLDetector())
BOMB = 64 * 2**20
"""How many bytes a small compressed file unpacks to."""


class States(Target):
    """State files that were changed after they were saved. If a file can be loaded, the next round must work."""

    name = "states"

    def prepare(self, folder: Path) -> None:
        """Save the memories of three defenses and of a federation."""
        super().prepare(folder)
        rng = np.random.default_rng(0)
        self.saved: list[tuple[int, bytes]] = []
        for number, filter in enumerate(FILTERS):
            defense = Defense(filter, seed=0)
            for _ in range(4):
                defense(rng.normal(size=(6, 12)))
            defense.save(folder / "defense.npz")
            self.saved.append((number, (folder / "defense.npz").read_bytes()))
        with quiet():
            strategy = FilteredStrategy(FedAvg(), state_dir=folder / "made", ban=Ban(), seed=0)
            strategy.start(LocalGrid(honest_nodes()), start_model(), num_rounds=3)
        self.saved.append((-1, (folder / "made" / FILE).read_bytes()))

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Load a damaged file, and carry out a round."""
        number, data = choices.pick(self.saved)
        hostile = hostile_state(choices, data) if replay is None else replay
        with quiet(), np.errstate(all="ignore"):
            try:
                if number < 0:
                    self.continue_federation(hostile)
                else:
                    self.continue_defense(number, hostile)
            except InputError:
                pass
        return 1

    def continue_defense(self, number: int, data: bytes) -> None:
        """Let a `Defense` load the file and protect a round."""
        path = self.folder / "hostile.npz"
        path.write_bytes(data)
        defense = Defense(FILTERS[number], seed=0)
        defense.load(path)
        outcome = defense(np.random.default_rng(1).normal(size=(6, 12)))
        if not np.isfinite(outcome.model).all():
            raise NonFiniteModel("after loading a state of a Defense")

    def continue_federation(self, data: bytes) -> None:
        """Let a `FilteredStrategy` continue from the file."""
        folder = self.folder / "hostile"
        folder.mkdir(exist_ok=True)
        (folder / FILE).write_bytes(data)
        strategy = FilteredStrategy(FedAvg(), state_dir=folder, ban=Ban(), seed=0)
        result = strategy.start(LocalGrid(honest_nodes()), start_model(), num_rounds=4)
        if not is_finite(result.arrays):
            raise NonFiniteModel("after continuing a federation")


def hostile_state(choices: Choices, data: bytes) -> bytes:
    """Return a state file with hostile content."""
    kind = choices.below(6)
    if kind == 0:
        return damaged(data, choices)
    if kind == 1:
        return choices.pick((b"", b"PK", b"\x93NUMPY", data[: len(data) // 2], b"\0" * 1000, np_file()))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    tree = json.loads(bytes(np.load(io.BytesIO(members["tree.npy"]))))
    if kind in (2, 3):
        for _ in range(1 + choices.below(3)):
            spoil(choices, tree)
    elif kind == 4:
        name = choices.pick(list(members))
        members[name] = damaged(members[name], choices) if choices.chance(50) else hostile_numbers(choices)
    else:
        members["a0.npy"] = np_file((BOMB,)) if choices.chance(10) else hostile_numbers(choices)
    if kind in (2, 3):
        text = json.dumps(tree).encode() if choices.chance(90) else b"[" * 100_000 + b"]" * 100_000
        members["tree.npy"] = np_file(values=np.frombuffer(text, np.uint8))
    if choices.chance(70):
        seal(members)
    return zipped(choices, members)


def seal(members: dict[str, bytes]) -> None:
    """Compute the digest of a changed file anew, as an attacker would, so that the file is accepted."""
    try:
        tree = json.loads(bytes(np.load(io.BytesIO(members["tree.npy"]))))
        sums = [zlib.crc32(members[f"a{i}.npy"]) for i in range(len(members) - 1)]
        tree["digest"] = digest_of(tree["state"], sums)
    except Exception:  # the file is too damaged; NumPy may raise any error
        return
    members["tree.npy"] = np_file(values=np.frombuffer(json.dumps(tree).encode(), np.uint8))


def spoil(choices: Choices, tree: Any) -> None:
    """Replace one value somewhere in a tree by a hostile value."""
    here = tree
    while True:
        places = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        if not places:
            return
        place = choices.pick(places)
        inner = here[place]
        if not isinstance(inner, dict | list) or not inner or choices.chance(15):
            here[place] = hostile_node(choices)
            return
        here = inner


def hostile_node(choices: Choices) -> object:
    """Return a hostile node for the tree of a state."""
    return choices.pick(
        (
            choices.value(),
            {"float": choices.value()},
            {"array": choices.value(), "library": "numpy"},
            {"array": "a0", "library": choices.value()},
            {"tuple": choices.value()},
            {"dict": choices.value()},
            {"type": choices.value(), "fields": {}},
            {"type": "DefenseState", "fields": {"filter": "x"}},
            {"type": "SavedMemory", "fields": choices.value()},
            {},
        )
    )


def hostile_numbers(choices: Choices) -> bytes:
    """Return an array of a wrong shape or type, or with hostile numbers, as a file."""
    shape = choices.pick(((), (0,), (3,), (12,), (6, 12), (1, 1, 1)))
    kind = choices.pick(("f8", "f4", "i8", "u1", "?", "U3", "F", "M8[s]"))
    values = np.full(shape, choices.pick((0, 1, 2)), dtype="f8")
    values = np.full(shape, choices.pick((np.nan, np.inf, -1e308, 0.0))) if choices.chance(40) else values
    with np.errstate(all="ignore"):
        return np_file(values=values.astype(kind, casting="unsafe"))


def np_file(shape: tuple[int, ...] = (3,), values: object = None) -> bytes:
    """Return numbers as a file in NumPy's format. Default: zeros of this shape."""
    file = io.BytesIO()
    np.save(file, np.zeros(shape, np.uint8) if values is None else np.asarray(values))
    return file.getvalue()


def zipped(choices: Choices, members: dict[str, bytes]) -> bytes:
    """Return the members as a zip archive. Sometimes the archive itself is damaged."""
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if choices.chance(50) else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    data = bytearray(file.getvalue())
    kind = choices.below(8)
    place = data.rfind(b"PK\x01\x02")
    if kind == 0:
        data[place + 8] |= 1  # marked as encrypted
    elif kind == 1:
        data[place + 10] = choices.pick((1, 9, 12, 14, 99))  # another method of compression
    elif kind == 2:
        data[place + 20 : place + 28] = b"\xff" * 8  # wrong sizes
    return bytes(data)
