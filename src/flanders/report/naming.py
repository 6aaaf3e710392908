"""What to call a run, which runs belong side by side, and which one shows the world without the attack."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from flanders.report.data import RunData
from flanders.results.labels import DEFENCE, section_of, told, varying

ATTACK = ("attack", "poison")
_TOLD = {"attack.name", "poison.name", "attack.fraction", "poison.fraction"}


def is_attack_free(run: RunData) -> bool:
    """Tell whether nobody attacks in this run, by its spec and by its clients."""
    return run.truth and not run.malicious.any() and not any(run.spec.get(section) for section in ATTACK)


class Names:
    """The runs of one results file, compared with each other.

    `labels` names each run by its defence, its attack, and whatever else tells it from the others.
    """

    def __init__(self, runs: Sequence[RunData]) -> None:
        self.runs = runs
        self.flat = [told(run.spec) for run in runs]
        self.free = [is_attack_free(run) for run in runs]
        self.varying = varying(self.flat)
        named = [self._label(i) for i in range(len(runs))]
        often = Counter(named)
        self.labels = [x if often[x] == 1 else f"{x} · {r.id[:6]}" for x, r in zip(named, runs, strict=True)]
        self._kin: dict[str, list[int]] = defaultdict(list)
        for i in range(len(runs)):
            self._kin[self._except(i, DEFENCE)].append(i)
        self._twins: dict[str, int | None] = {}

    def defence(self, i: int) -> str:
        """Return filter and rule in words, each with what varies of it: `flanders (keep 6) + fedavg`.

        It is the rule alone if everyone is kept. A fallback is told where runs differ in it.
        """
        before = self.flat[i].get("aggregator.preaggregators") or []
        chain = [str(link.get("name") if isinstance(link, Mapping) else link) for link in before]
        named = [x for x in (self._part(i, "filter"), *chain, self._part(i, "aggregator")) if x and x != "keep-all"]
        told = any(section_of(key) == "fallback" for key in self.varying) and self._part(i, "fallback")
        return (" + ".join(named) or "no defence named") + (f", fallback {told}" if told else "")

    def _part(self, i: int, section: str) -> str:
        flat = self.flat[i]
        details = [
            f"{key.rpartition('.')[2].replace('_', ' ')} {flat[key]}"
            for key in self.varying
            if section_of(key) == section and key in flat and not key.endswith((".name", ".preaggregators"))
        ]
        return str(flat.get(f"{section}.name") or "") + (f" ({', '.join(details)})" if details else "")

    def attack(self, i: int) -> str:
        """Return the attack in words: `lie 80%`."""
        if self.free[i]:
            return "no attack"
        if not self.runs[i].truth:
            return "attacks unknown"
        parts = []
        for section in ATTACK:
            if name := self.flat[i].get(f"{section}.name"):
                share = self.flat[i].get(f"{section}.fraction")
                parts.append(f"{name} {share:.0%}" if isinstance(share, int | float) else str(name))
        return " + ".join(parts) or "attack"

    def siblings(self, i: int, most: int) -> list[int]:
        """Return up to `most` runs that differ from run `i` in their defence alone, and itself, in order."""
        others = [j for j in self._kin[self._except(i, DEFENCE)] if j != i]
        return sorted([i, *others[: most - 1]])

    def settings(self) -> list[list[int]]:
        """Return the runs in groups that differ in their defence and seed alone.

        Attack-free runs that are the yardstick of others are no group of their own.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, flat in enumerate(self.flat):
            rest = {k: v for k, v in flat.items() if section_of(k) not in DEFENCE and k != "federation.seed"}
            groups[repr(sorted(rest.items()))].append(i)
        yardsticks = {self.twin(i) for i in range(len(self.runs)) if not self.free[i]}
        chosen = [group for group in groups.values() if not yardsticks & set(group)]
        return chosen or list(groups.values())

    def twin(self, i: int) -> int | None:
        """Return the attack-free run most like run `i`: same data and model, then the fewest other differences."""
        key = self._except(i, ATTACK)
        if key not in self._twins:
            near = [(self._distance(i, j), j) for j in range(len(self.runs)) if self._comparable(i, j)]
            self._twins[key] = min(near)[1] if near else None
        return self._twins[key]

    def _comparable(self, i: int, j: int) -> bool:
        same = all(self.flat[i].get(k) == self.flat[j].get(k) for k in ("data.dataset.name", "model.name"))
        return same and self.free[j] and self.runs[j].rounds.size > 0

    def _distance(self, i: int, j: int) -> tuple[int, int, bool]:
        mine, theirs = self.flat[i], self.flat[j]
        apart = [section_of(k) for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)]
        setting = sum(section not in ATTACK + DEFENCE for section in apart)
        return setting, sum(section in DEFENCE for section in apart), theirs.get("filter.name") != "keep-all"

    def _label(self, i: int) -> str:
        parts = [self.defence(i), self.attack(i)]
        for key in self.varying:
            if key not in _TOLD and section_of(key) not in DEFENCE and key in self.flat[i]:
                value = self.flat[i][key]
                name = key.rpartition(".")[2]
                parts.append(str(value) if name == "name" else f"{name.replace('_', ' ')} {value}")
        return " · ".join(parts)

    def _except(self, i: int, sections: Sequence[str]) -> str:
        return repr(sorted((k, v) for k, v in self.flat[i].items() if section_of(k) not in sections))
