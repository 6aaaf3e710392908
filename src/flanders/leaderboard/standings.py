"""The standings of the leaderboard, a table with one line for each defence, computed from the rows of all runs.

A case is one threat: an attack, its first round, the share of malicious clients, and whether these clients change
from round to round. Every number of a line is first computed for each seed. The line shows the mean over the seeds,
and the 95% confidence interval of this mean.
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
"""The two references with which all defences are compared: plain averaging, which is no defence, and the oracle, a
filter that knows the malicious clients."""
REFERENCES = (PLAIN, ORACLE)
NEAR = 0.05
"""A defence holds in a case if its score (`MeasuredRun.score`) is at most this much below the oracle's score with
the same seed. So a defence that holds fails on at most one more example in 20 than the oracle."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its 95% confidence interval."""

    value: float
    half: float
    """Half the width of the interval. It is NaN if there is only one seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the estimate from one value per seed."""
        return cls(fmean(values), half_width(values, CI) if len(values) > 1 else math.nan)


@dataclass(frozen=True)
class Standing:
    """One line of the table: the results of a defence over all cases. The score of a run is `MeasuredRun.score`."""

    name: str
    told: bool
    """Whether the defence is told how many clients are malicious."""
    worst: Estimate
    """The lowest score in any case."""
    worst_case: Case
    """The case in which the mean score over the seeds is lowest."""
    accuracy: Estimate
    """The lowest accuracy in any case. Unlike the score, the accuracy does not count the attack success."""
    mean: Estimate
    """The mean score over all cases."""
    rank: Estimate | None
    """The mean rank among all defences over all cases. The best rank is 1. The rank of a reference is None."""
    holds: Estimate | None
    """The share of cases in which the defence holds; see `NEAR`. It is None if the oracle was not run."""
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
    """The table of one dataset. A defence has no line in it if some of its runs are missing."""

    lines: tuple[Standing, ...]
    """The lines of the references, and then the lines of the defences, from the best to the worst."""
    cases: tuple[Case, ...]
    """The cases from which the numbers are computed. The case without an attack is not among them."""
    seeds: tuple[int, ...]
    incomplete: Mapping[str, int]
    """The number of missing runs of each defence without a line."""


RunsOfDefence = dict[int, dict[Case, MeasuredRun]]
"""The runs of one defence, first by seed and then by case."""


def standings_of(rows: Collection[MeasuredRun], dataset: str, cases: Collection[Case]) -> Standings:
    """Return the standings on a dataset, computed from the given cases.

    The runs of plain averaging say which seeds and cases are used. A seed is used if plain averaging has a run with
    this seed and without an attack. A case is used if plain averaging has a run in this case with each used seed. A
    defence has a line only if it has a run for each used case and seed.
    """
    runs: dict[tuple[str, bool], RunsOfDefence] = {}
    for row in rows:
        if row.cell.dataset == dataset:
            by_case = runs.setdefault((row.cell.defence, row.cell.told), {}).setdefault(row.cell.seed, {})
            if row.cell.case in by_case:
                title = title_of(row.cell.defence, row.cell.told)
                raise InputError(f"Two files have rows of {title!r} on {dataset}. Leave one of them out.")
            by_case[row.cell.case] = row
    plain = runs.get((PLAIN, False), {})
    seeds = sorted(seed for seed, by_case in plain.items() if Case() in by_case)
    shared = set.intersection(*(set(plain[seed]) for seed in seeds)) if seeds else set()
    attacked = [case for case in cases if case.attack != NOBODY and case in shared]
    if not attacked:
        raise InputError(
            f"There are no rows of {PLAIN} on {dataset} in these cases, and every defence is compared with it. "
            f"Run it: flanders leaderboard run {dataset} --where defence={PLAIN}"
        )
    needed = [(seed, case) for seed in seeds for case in (Case(), *attacked)]
    lacking = {
        defence: sum(case not in by_seed.get(seed, {}) for seed, case in needed)
        for defence, by_seed in runs.items()
    }
    complete = {defence: by_seed for defence, by_seed in runs.items() if lacking[defence] == 0}
    ranked = {defence: by_seed for defence, by_seed in complete.items() if defence[0] not in REFERENCES}
    ranks = _ranks(ranked, seeds, attacked)
    lines = [_line(defence, complete, ranks.get(defence), seeds, attacked) for defence in complete]
    lines.sort(key=lambda line: (line.rank is not None, line.rank.value if line.rank else 0.0, line.title))
    missing = {title_of(*defence): count for defence, count in lacking.items() if count}
    return Standings(tuple(lines), tuple(attacked), tuple(seeds), missing)


def _line(
    defence: tuple[str, bool],
    complete: Mapping[tuple[str, bool], RunsOfDefence],
    ranks: Sequence[float] | None,
    seeds: Sequence[int],
    cases: Sequence[Case],
) -> Standing:
    runs, plain, oracle = complete[defence], complete[PLAIN, False], complete.get((ORACLE, False))
    score = {seed: [runs[seed][case].score for case in cases] for seed in seeds}
    holds = None
    if oracle is not None:
        best = {seed: [oracle[seed][case].score for case in cases] for seed in seeds}
        near = [[a >= b - NEAR for a, b in zip(score[seed], best[seed], strict=True)] for seed in seeds]
        holds = Estimate.of([fmean(near_in_cases) for near_in_cases in near])
    return Standing(
        *defence,
        worst=Estimate.of([min(score[seed]) for seed in seeds]),
        worst_case=min(cases, key=lambda case: fmean(runs[seed][case].score for seed in seeds)),
        accuracy=Estimate.of([min(runs[seed][case].accuracy for case in cases) for seed in seeds]),
        mean=Estimate.of([fmean(score[seed]) for seed in seeds]),
        rank=None if ranks is None else Estimate.of(ranks),
        holds=holds,
        cost=Estimate.of([plain[seed][Case()].accuracy - runs[seed][Case()].accuracy for seed in seeds]),
        dropped=Estimate.of([runs[seed][Case()].honest_dropped or 0.0 for seed in seeds]),
        milliseconds=Estimate.of([fmean(run.milliseconds for run in runs[seed].values()) for seed in seeds]),
    )


def _ranks(
    ranked: Mapping[tuple[str, bool], RunsOfDefence], seeds: Sequence[int], cases: Sequence[Case]
) -> dict[tuple[str, bool], list[float]]:
    """Return the mean rank of each defence over all cases, for each seed.

    Defences with equal scores share their ranks: each gets the mean of these ranks.
    """
    means: dict[tuple[str, bool], list[float]] = {defence: [] for defence in ranked}
    for seed in seeds:
        ranks: dict[tuple[str, bool], list[float]] = {defence: [] for defence in ranked}
        for case in cases:
            scores = {defence: by_seed[seed][case].score for defence, by_seed in ranked.items()}
            for defence, score in scores.items():
                above = sum(other > score for other in scores.values())
                equal = sum(other == score for other in scores.values())
                ranks[defence].append(above + (equal + 1) / 2)
        for defence, ranks_in_cases in ranks.items():
            means[defence].append(fmean(ranks_in_cases))
    return means
