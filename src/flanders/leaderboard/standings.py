"""The standings of the leaderboard: one line for each defence, computed from the rows (one for each run).

A case is one threat: an attack, its first round, the share of malicious clients, and whether these clients rotate.
Every number of a line is computed for each seed. The line has the mean over the seeds and its 95% confidence
interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from flanders.checks import InputError
from flanders.leaderboard.board_rows import MeasuredRun
from flanders.leaderboard.entrants import title_of
from flanders.leaderboard.protocol import NOBODY, Case
from flanders.report.spread import CI, half_width

PLAIN, ORACLE = "fedavg", "oracle"
"""All defences are compared with two references. One is no defence. The other is the oracle, a filter that knows
the malicious clients."""
REFERENCES = (PLAIN, ORACLE)
NEAR = 0.05
"""A defence holds in a case if its `MeasuredRun.score` is at most this much below that of the oracle, with the same
seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its 95% confidence interval."""

    value: float
    half: float
    """Half the width of the interval. NaN if there is only one seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the estimate from one value per seed."""
        return cls(fmean(values), half_width(values, CI) if len(values) > 1 else math.nan)


@dataclass(frozen=True)
class Standing:
    """One line of the table: the results of a defence over all cases. `MeasuredRun.score` defines the score."""

    name: str
    told: bool
    """Whether the defence is told how many clients are malicious."""
    worst: Estimate
    """The lowest score in any case."""
    worst_case: Case
    """The case with the lowest mean score."""
    accuracy: Estimate
    """The lowest accuracy in any case. Unlike the score, it does not depend on the attacker's success."""
    mean: Estimate
    """The mean score over all cases."""
    rank: Estimate | None
    """The mean rank among all defences over all cases. The best defence has rank 1. None for a reference."""
    holds: Estimate | None
    """The share of cases in which the defence holds; see `NEAR`. None if the oracle was not run."""
    cost: Estimate
    """The accuracy of plain averaging minus the accuracy of the defence, both without an attack."""
    dropped: Estimate
    """The share of clients that are dropped without an attack."""
    milliseconds: Estimate
    """The mean time of the filter and the aggregator per round, in milliseconds."""

    @property
    def title(self) -> str:
        """The name of the defence in the table."""
        return title_of(self.name, self.told)


@dataclass(frozen=True)
class Standings:
    """The table of one data set, and the defences that have no line in it since some of their runs are missing."""

    lines: tuple[Standing, ...]
    """First the references, then the defences, the best first."""
    cases: tuple[Case, ...]
    """The cases from which the numbers are computed. The case without an attack is not among them."""
    seeds: tuple[int, ...]
    incomplete: Mapping[str, int]
    """The number of missing runs of each defence without a line."""


Scores = dict[int, dict[Case, MeasuredRun]]
"""The runs of one defence, by seed and case."""


def standings_of(rows: Collection[MeasuredRun], dataset: str, cases: Collection[Case]) -> Standings:
    """Return the standings on a data set, computed from the given cases.

    A seed is used if there is a run of plain averaging with this seed and without an attack. A case is used if
    there is a run of plain averaging in this case with each of these seeds. A defence needs a run for each of these
    cases and seeds. Otherwise it has no line.
    """
    found: dict[tuple[str, bool], Scores] = {}
    for row in rows:
        if row.cell.dataset == dataset:
            at = found.setdefault((row.cell.defence, row.cell.told), {}).setdefault(row.cell.seed, {})
            if row.cell.case in at:
                title = title_of(row.cell.defence, row.cell.told)
                raise InputError(f"Two files have rows of {title!r} on {dataset}. Leave one of them out.")
            at[row.cell.case] = row
    plain = found.get((PLAIN, False), {})
    seeds = sorted(seed for seed, at in plain.items() if Case() in at)
    shared = set.intersection(*(set(plain[seed]) for seed in seeds)) if seeds else set()
    attacked = [case for case in cases if case.attack != NOBODY and case in shared]
    if not attacked:
        raise InputError(
            f"There are no rows of {PLAIN} on {dataset} in these cases, and every defence is compared with it. "
            f"Run it: flanders leaderboard run {dataset} --where defence={PLAIN}"
        )
    needed = [(seed, case) for seed in seeds for case in (Case(), *attacked)]
    lacking = {defence: sum(case not in at.get(seed, {}) for seed, case in needed) for defence, at in found.items()}
    complete = {defence: at for defence, at in found.items() if lacking[defence] == 0}
    ranked = {defence: at for defence, at in complete.items() if defence[0] not in REFERENCES}
    ranks = _ranks(ranked, seeds, attacked)
    lines = [_line(defence, at, complete, ranks.get(defence), seeds, attacked) for defence, at in complete.items()]
    lines.sort(key=lambda line: (line.rank is not None, line.rank.value if line.rank else 0.0, line.title))
    missing = {title_of(*defence): count for defence, count in lacking.items() if count}
    return Standings(tuple(lines), tuple(attacked), tuple(seeds), missing)


def _line(
    defence: tuple[str, bool],
    at: Scores,
    complete: Mapping[tuple[str, bool], Scores],
    ranks: Sequence[float] | None,
    seeds: Sequence[int],
    cases: Sequence[Case],
) -> Standing:
    plain, oracle = complete[PLAIN, False], complete.get((ORACLE, False))
    score = {seed: [at[seed][case].score for case in cases] for seed in seeds}
    holds = None
    if oracle is not None:
        best = {seed: [oracle[seed][case].score for case in cases] for seed in seeds}
        near = [[a >= b - NEAR for a, b in zip(score[seed], best[seed], strict=True)] for seed in seeds]
        holds = Estimate.of([fmean(each) for each in near])
    return Standing(
        *defence,
        worst=Estimate.of([min(score[seed]) for seed in seeds]),
        worst_case=min(cases, key=lambda case: fmean(at[seed][case].score for seed in seeds)),
        accuracy=Estimate.of([min(at[seed][case].accuracy for case in cases) for seed in seeds]),
        mean=Estimate.of([fmean(score[seed]) for seed in seeds]),
        rank=None if ranks is None else Estimate.of(ranks),
        holds=holds,
        cost=Estimate.of([plain[seed][Case()].accuracy - at[seed][Case()].accuracy for seed in seeds]),
        dropped=Estimate.of([at[seed][Case()].honest_dropped or 0.0 for seed in seeds]),
        milliseconds=Estimate.of([fmean(run.milliseconds for run in at[seed].values()) for seed in seeds]),
    )


def _ranks(
    ranked: Mapping[tuple[str, bool], Scores], seeds: Sequence[int], cases: Sequence[Case]
) -> dict[tuple[str, bool], list[float]]:
    """Return the mean rank of each defence over all cases, for each seed.

    Defences with equal scores all get the mean of their ranks.
    """
    means: dict[tuple[str, bool], list[float]] = {defence: [] for defence in ranked}
    for seed in seeds:
        places: dict[tuple[str, bool], list[float]] = {defence: [] for defence in ranked}
        for case in cases:
            scores = {defence: at[seed][case].score for defence, at in ranked.items()}
            for defence, score in scores.items():
                above = sum(other > score for other in scores.values())
                equal = sum(other == score for other in scores.values())
                places[defence].append(above + (equal + 1) / 2)
        for defence, found in places.items():
            means[defence].append(fmean(found))
    return means
