"""The class `ComparedRuns`: labels for the runs of a results file, and which runs to show next to each other.

The HTML page and the figures use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from flanders.report.run_data import RunData
from flanders.results.labels import relative_counts, varying
from flanders.results.spec_keys import (
    ATTACK_KEYS,
    ATTACK_NAMES,
    DATASET,
    DEFENCE,
    DEFENCE_KEYS,
    FRACTION,
    MODEL,
    SEED,
    THREAT,
    flat_spec,
    is_attacked,
    last_part,
    preaggregator_names,
    section_of,
)


def is_attack_free(run: RunData) -> bool:
    """Whether it is known that a run has no attack: its spec asks for none, and no client was malicious."""
    return run.truth and not run.totals.attacked and not is_attacked(run.spec)


def _words(key: str) -> str:
    """Return a dotted key as plain words.

    Examples
    --------
    >>> _words("look.name"), _words("num_malicious")
    ('look', 'num malicious')
    """
    return key.removesuffix(".name").replace(".", " ").replace("_", " ")


class ComparedRuns:
    """The runs of one results file, compared with each other.

    Most methods take the position `i` of a run in `runs`.

    Attributes
    ----------
    runs
        The runs, in the order of the results file.
    flat
        The values of each run's spec, the description of the run, by dotted keys such as `filter.name`.
    free
        For each run, whether the run is known to have no attack.
    varying
        The dotted keys in which the runs differ.
    labels
        A text for each run: its defence, its attack, and the other values in which the runs differ.
    """

    def __init__(self, runs: Sequence[RunData]) -> None:
        self.runs = runs
        self.flat = relative_counts([flat_spec(run.spec) for run in runs])
        self.free = [is_attack_free(run) for run in runs]
        self.varying = varying(self.flat)
        names = [self._label(i) for i in range(len(runs))]
        count = Counter(names)
        self.labels = [x if count[x] == 1 else f"{x} · {r.id[:6]}" for x, r in zip(names, runs, strict=True)]
        self._same_setting: dict[str, list[int]] = defaultdict(list)
        for i in range(len(runs)):
            self._same_setting[self._without(i, DEFENCE)].append(i)
        self._twins: dict[str, int | None] = {}

    def defence(self, i: int) -> str:
        """Return the filter and the aggregator of run `i` as text, e.g. `flanders (keep 6) + fedavg`.

        The filter `keep-all`, which drops nobody, is not named. Three things are named only if runs differ in them:
        the parameters, the fallback, and whether the aggregator is told the number of malicious clients
        (`informed`).
        """
        flat = self.flat[i]
        chain = preaggregator_names(self.runs[i].spec) if "aggregator.preaggregators" in flat else []
        named = [x for x in (self._part(i, "filter"), *chain, self._part(i, "aggregator")) if x and x != "keep-all"]
        words = " + ".join(named) or "no defence named"
        if any(section_of(key) == "fallback" for key in self.varying) and self._part(i, "fallback"):
            words += f", fallback {self._part(i, 'fallback')}"
        return f"{words}, informed" if "informed" in self.varying and "informed" in flat else words

    def _part(self, i: int, section: str) -> str:
        flat = self.flat[i]
        details = [
            f"{_words(key.removeprefix(f'{section}.'))} {flat[key]}"
            for key in self.varying
            if section_of(key) == section and key in flat and key not in (f"{section}.name", *DEFENCE_KEYS)
        ]
        return str(flat.get(f"{section}.name") or "") + (f" ({', '.join(details)})" if details else "")

    def attack(self, i: int) -> str:
        """Return the attack of run `i` and its share of malicious clients as text, e.g. `lie 80%`."""
        if self.free[i]:
            return "no attack"
        if not self.runs[i].truth:
            return "attacks unknown"
        flat = self.flat[i]
        names = " + ".join(str(flat[key]) for key in ATTACK_NAMES if key in flat)
        return f"{names or 'attack'} {flat[FRACTION]:.0%}" if FRACTION in flat else names or "attack"

    def setting(self, i: int) -> str:
        """Return as text the values of run `i` in which runs differ, e.g. `alpha 0.5`.

        Attack, defence and seed are left out.
        """
        return " · ".join(self._detail(key, value) for key, value in self.other_details(i) if key != SEED)

    def siblings(self, i: int) -> list[int]:
        """Return run `i` and the runs that differ from it only in their defence, in the order of `runs`."""
        return self._same_setting[self._without(i, DEFENCE)]

    def settings(self) -> list[list[int]]:
        """Return groups of runs. The runs of a group differ only in their defence and seed.

        A group is left out if one of its runs is the attack-free `twin` of a run with an attack. The figures of the
        run with the attack show the twin, too. If no group is left, all groups are returned.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, flat in enumerate(self.flat):
            rest = {k: v for k, v in flat.items() if section_of(k) not in DEFENCE and k != SEED}
            groups[repr(sorted(rest.items()))].append(i)
        twins = {self.twin(i) for i in range(len(self.runs)) if not self.free[i]}
        chosen = [group for group in groups.values() if not twins & set(group)]
        return chosen or list(groups.values())

    def twin(self, i: int) -> int | None:
        """Return the attack-free run that is most similar to run `i` and has the same dataset and model.

        Return None if there is no such run.
        """
        key = self._without(i, (THREAT,))
        if key not in self._twins:
            near = [(self._distance(i, j), j) for j in range(len(self.runs)) if self._comparable(i, j)]
            self._twins[key] = min(near)[1] if near else None
        return self._twins[key]

    def other_details(self, i: int) -> list[tuple[str, object]]:
        """Return the keys in which runs differ, except those of attack and defence, with the values of run `i`."""
        keys = [k for k in self.varying if k not in ATTACK_KEYS and section_of(k) not in DEFENCE]
        return [(key, self.flat[i][key]) for key in keys if key in self.flat[i]]

    def _comparable(self, i: int, j: int) -> bool:
        """Whether run `j` is attack-free, has begun, and has the same dataset and model as run `i`."""
        same = all(self.flat[i].get(k) == self.flat[j].get(k) for k in (DATASET, MODEL))
        return same and self.free[j] and self.runs[j].rounds.size > 0

    def _distance(self, i: int, j: int) -> tuple[int, int, bool]:
        """Return how much run `j` differs from run `i`, as a tuple. Smaller tuples mean more similar runs.

        Runs are compared by the first number, then by the second, then by the last entry. The first number counts
        the values that differ outside of attack and defence. The second number counts the values of the defence
        that differ. The last entry tells whether run `j` has a filter: a run without one is more similar.
        """
        first, second = self.flat[i], self.flat[j]
        differing = [section_of(k) for k in first.keys() | second.keys() if first.get(k) != second.get(k)]
        others = sum(section not in (THREAT, *DEFENCE) for section in differing)
        return others, sum(section in DEFENCE for section in differing), second.get("filter.name") != "keep-all"

    def _label(self, i: int) -> str:
        parts = [self.defence(i), self.attack(i)]
        parts += [self._detail(key, value) for key, value in self.other_details(i)]
        return " · ".join(parts)

    @staticmethod
    def _detail(key: str, value: object) -> str:
        name = last_part(key)
        return str(value) if name == "name" else f"{_words(name)} {value}"

    def _without(self, i: int, sections: Sequence[str]) -> str:
        """Return the spec of run `i` as text, without the sections in `sections`."""
        return repr(sorted((k, v) for k, v in self.flat[i].items() if section_of(k) not in sections))


def without_shared_aggregator(defences: Sequence[str]) -> list[str]:
    """Remove the aggregator from the names of defences if all defences have the same aggregator.

    The names are those of `ComparedRuns.defence`.

    Examples
    --------
    >>> without_shared_aggregator(["fedavg", "guard + fedavg", "krum + fedavg"])
    ['no filter', 'guard', 'krum']
    >>> without_shared_aggregator(["fedavg", "median"])
    ['fedavg', 'median']
    """
    ends = {name.rpartition(" + ")[2] for name in defences}
    if len(ends) > 1 or len(defences) < 2:
        return list(defences)
    return [name.rpartition(" + ")[0] or "no filter" for name in defences]
