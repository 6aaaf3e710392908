r"""The predictability study: are honest clients more predictable than malicious ones?

Section 4.2 of the FLANDERS paper asks this question. It measures predictability by the mutual information between
the values of a parameter in rounds t and t + 1, averaged over all parameters. But a parameter has only one value in
each round, and an estimate needs many values. The paper does not say which values it puts together. This module
puts values together in two ways. In a run of T rounds, the two ways are:

* `"parameters"`: one estimate for each pair of rounds (t, t + 1), from the values of all parameters. This gives
  T - 1 estimates per client. The paper's figure and t-test may have been made from such estimates.
* `"time"`: one estimate for each parameter, from its T - 1 pairs of consecutive values.

Both kinds of estimates are computed for the models, as in the paper, and for the displacements. A displacement is a
model minus the global model from which the client has started. So displacements do not contain what all models of a
round share.

In addition, this module measures how well each model can be forecast; see `forecast_errors`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.checks import InputError
from flanders.choices import registry
from flanders.experiments.engine import Datasets
from flanders.experiments.experiment import Experiment
from flanders.files import atomic, writing
from flanders.studies.information import ESTIMATORS
from flanders.studies.significance import compare_means
from flanders.studies.trajectories import Trajectories, follow

PUBLISHED = {"gauss": 5.67e-38, "lie": 8.33e-5, "opt": 6.70e-18, "agr-min-max": 4.20e-12}
"""The p-value that the paper prints for each attack on MNIST, in its table of t-tests."""
COORDINATES = 10_000
"""How many parameters are drawn at random for the slow estimates, to limit their time. The slow estimates are those
of `kraskov` and of `"time"`."""
ROUNDS = 4
"""The fewest rounds that a run may have. Four rounds have three pairs of consecutive rounds, as an estimate
needs."""
FORECAST = "forecast-error"
"""The name of the forecast error in a `Key`, in place of the name of an estimator."""
Key = tuple[str, str, str]
"""A way of measuring: the vectors ("models" or "displacements"), the values that are put together ("parameters" or
"time"), and the name of the estimator or `FORECAST`."""
Series = dict[Key, tuple[FloatVector, FloatVector]]
"""For each way of measuring, the values of the honest client and those of the malicious client."""


@dataclass(frozen=True)
class Finding:
    """The comparison of an honest with a malicious client in one run, by one way of measuring (see `Key`).

    The difference is positive if the honest client is more predictable: its mutual information is higher, or its
    forecast error is lower. The p-values test whether the difference is positive.
    """

    attack: str
    seed: int
    of: str
    """The vectors: "models" or "displacements"."""
    pooling: str
    """The values that are put together: "parameters" or "time"."""
    estimator: str
    values: int
    """The number of measured values of each client."""
    honest: float
    """The mean of the honest client's values."""
    malicious: float
    """The mean of the malicious client's values."""
    difference: float
    welch_p: float
    bootstrap_p: float
    low: float
    """The lower end of the bootstrap's 95% interval of the difference."""
    high: float
    """The upper end of the bootstrap's 95% interval of the difference."""
    published_p: float | None
    """The p-value in the paper, or None if the paper has none for this attack and this way of measuring."""


def measure(found: Trajectories, *, seed: int = 0, coordinates: int = COORDINATES) -> Series:
    """Return the values of both clients for every way of measuring.

    At most `coordinates` parameters are used for the slow estimates. They are drawn at random with the seed `seed`.
    """
    d = found.honest.shape[1]  # the number of parameters
    sampled = np.sort(np.random.default_rng([seed, 1]).choice(d, min(d, coordinates), replace=False))
    series: Series = {}
    for of, sent in (("models", found), ("displacements", found.displacements())):
        both = (sent.honest, sent.malicious)
        for name, estimate in ESTIMATORS.items():
            columns = sampled if name == "kraskov" else np.arange(d)
            honest, malicious = (estimate(x[:-1, columns], x[1:, columns]) for x in both)
            series[of, "parameters", name] = (honest, malicious)
            honest, malicious = (estimate(x[:-1, sampled].T, x[1:, sampled].T) for x in both)
            series[of, "time", name] = (honest, malicious)
        series[of, "parameters", FORECAST] = (forecast_errors(both[0]), forecast_errors(both[1]))
    return series


def forecast_errors(models: FloatMatrix) -> FloatVector:
    """Return the error of the forecast of each model, from the third round on.

    `models` has the models of one client, a row per round. First a straight line is fitted by least squares. It
    maps the parameters of round t - 1 to the parameters of round t. The same line then maps the parameters of round
    t to a forecast of round t + 1. The error is the mean squared error of all parameters, divided by their
    variance. A perfect forecast has the error 0. If the forecast of all parameters were their mean, the error would
    be 1.
    """
    before, last, now = models[:-2], models[1:-1], models[2:]
    centred = before - before.mean(axis=1, keepdims=True)
    spread = np.sum(centred**2, axis=1)
    slope = np.divide(np.sum(centred * last, axis=1), spread, out=np.zeros_like(spread), where=spread > 0)
    level = last.mean(axis=1) - slope * before.mean(axis=1)
    errors = np.mean((now - slope[:, None] * last - level[:, None]) ** 2, axis=1)
    variance = now.var(axis=1)
    share: FloatVector = np.divide(errors, variance, out=np.ones_like(errors), where=variance > 0)
    return share


def measured(experiment: Experiment, folder: Path, datasets: Datasets) -> Series:
    """Return the series of one run. If the folder has a file of the run, read it. Otherwise carry out the run."""
    path = Path(folder) / f"{experiment.id}.npz"
    if path.exists():
        return read_series(path)
    rounds = experiment.setting.federation.rounds
    if rounds < ROUNDS:
        raise InputError(
            f"The predictability study needs at least {ROUNDS} rounds to follow clients. Got {rounds}."
        )
    trajectories = follow(experiment.setting, datasets.of(experiment))
    series = measure(trajectories, seed=experiment.setting.federation.seed)
    write_series(path, series)
    return series


def findings_of(experiment: Experiment, series: Series) -> list[Finding]:
    """Return the findings of one run, one for each way of measuring.

    A client has n measured values, one for each pair of rounds or each parameter. The bootstrap of `compare_means`
    draws blocks of about sqrt(n) values.
    """
    attack, seed = attack_of(experiment), experiment.setting.federation.seed
    findings = []
    for (of, pooling, estimator), (honest, malicious) in series.items():
        rng, block = np.random.default_rng([seed, 2]), max(1, round(np.sqrt(honest.size)))
        pair = (malicious, honest) if estimator == FORECAST else (honest, malicious)
        comparison = compare_means(*pair, block=block, rng=rng)
        means = float(honest.mean()), float(malicious.mean())
        comparable = of == "models" and pooling == "parameters" and estimator != FORECAST
        published_p = PUBLISHED.get(attack.removesuffix("-reference")) if comparable else None
        rest = {**asdict(comparison), "published_p": published_p}
        findings.append(Finding(attack, seed, of, pooling, estimator, honest.size, *means, **rest))
    return findings


def attack_of(experiment: Experiment) -> str:
    """Return the name of the attack of a run."""
    return registry("attacks").name_of(experiment.setting.threat.attack)


def summarise(findings: Sequence[Finding]) -> list[dict[str, str | float | None]]:
    """Return a line for each attack and each way of measuring, with means and median p-values over the seeds."""
    ways = list(dict.fromkeys((f.of, f.pooling, f.estimator) for f in findings))
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for f in sorted(findings, key=lambda f: ways.index((f.of, f.pooling, f.estimator))):
        groups.setdefault((f.of, f.pooling, f.estimator, f.attack), []).append(f)
    return [
        {
            "of": of,
            "pooled over": pooling,
            "estimator": estimator,
            "attack": attack,
            "honest": float(np.mean([f.honest for f in group])),
            "malicious": float(np.mean([f.malicious for f in group])),
            "honest ahead": f"{sum(f.difference > 0 for f in group)} of {len(group)}",
            "Welch p": float(np.median([f.welch_p for f in group])),
            "bootstrap p": float(np.median([f.bootstrap_p for f in group])),
            "published p": group[0].published_p,
        }
        for (of, pooling, estimator, attack), group in groups.items()
    ]


def write_series(path: Path, series: Mapping[Key, tuple[FloatVector, FloatVector]]) -> None:
    """Write series to a file. If writing fails, no file is left."""
    arrays: dict[str, Any] = {"/".join(key): np.stack(pair) for key, pair in series.items()}
    with writing(path.parent, str(path)), atomic(path) as file:
        np.savez(file, **arrays)


def read_series(path: Path) -> Series:
    """Return the series in a file that `write_series` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            pairs = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}). Delete it, and it will be measured again.") from error
    series: Series = {}
    for name, (honest, malicious) in pairs.items():
        of, pooling, estimator = name.split("/")
        series[of, pooling, estimator] = (honest, malicious)
    return series
