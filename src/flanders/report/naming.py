"""What to call a run, which runs belong side by side, and which one shows the world without the attack."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flanders.experiments.grid import flatten
from flanders.report.data import RunData

ATTACK = ("attack", "poison")
DEFENCE = ("filter", "aggregator", "fallback")
_TOLD = {"filter.name", "aggregator.name", "attack.name", "poison.name", "attack.fraction", "poison.fraction"}


def told(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's values under dotted keys, without those that say nothing.

    Examples
    --------
    >>> told({"attack": {"name": "lie", "start": 2}, "poison": None})
    {'attack.name': 'lie', 'attack.start': 2}
    """
    return {key: value for key, value in flatten(spec).items() if value is not None and value != []}


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
        self.varying = self._varying()
        named = [self._label(i) for i in range(len(runs))]
        often = Counter(named)
        self.labels = [x if often[x] == 1 else f"{x} · {r.id[:6]}" for x, r in zip(named, runs, strict=True)]
        self._kin: dict[str, list[int]] = defaultdict(list)
        for i in range(len(runs)):
            self._kin[self._except(i, DEFENCE)].append(i)
        self._twins: dict[str, int | None] = {}

    def defence(self, i: int) -> str:
        """Return filter and rule in words: `flanders + fedavg`, or the rule alone if everyone is kept."""
        filter_, rule = (self.flat[i].get(f"{part}.name") for part in ("filter", "aggregator"))
        before = self.flat[i].get("aggregator.preaggregators") or []
        chain = [str(link.get("name") if isinstance(link, Mapping) else link) for link in before]
        named = [str(x) for x in (filter_, *chain, rule) if x and x != "keep-all"]
        return " + ".join(named) or "no defence named"

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
            rest = {k: v for k, v in flat.items() if _section(k) not in DEFENCE and k != "federation.seed"}
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
        apart = [_section(k) for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)]
        setting = sum(section not in ATTACK + DEFENCE for section in apart)
        return setting, sum(section in DEFENCE for section in apart), theirs.get("filter.name") != "keep-all"

    def _varying(self) -> list[str]:
        """Return the keys whose values differ between runs that make the same choice of what they belong to."""
        seen: dict[tuple[str, Any], set[str]] = defaultdict(set)
        keys = dict.fromkeys(key for flat in self.flat for key in flat)
        for flat in self.flat:
            for key in keys:
                owner = f"{key.rpartition('.')[0]}.name"
                if key == owner or owner not in keys or owner in flat:
                    seen[key, flat.get(owner) if key != owner else None].add(repr(flat.get(key)))
        differ = {key for (key, _), values in seen.items() if len(values) > 1}
        return [key for key in keys if key in differ]

    def _label(self, i: int) -> str:
        parts = [self.defence(i), self.attack(i)]
        for key in self.varying:
            if key not in _TOLD and key in self.flat[i]:
                value = self.flat[i][key]
                name = key.rpartition(".")[2]
                parts.append(str(value) if name == "name" else f"{name.replace('_', ' ')} {value}")
        return " · ".join(parts)

    def _except(self, i: int, sections: Sequence[str]) -> str:
        return repr(sorted((k, v) for k, v in self.flat[i].items() if _section(k) not in sections))


def _section(key: str) -> str:
    return key.partition(".")[0]
