r"""Are honest clients more predictable than malicious ones? The question of the paper's Section 4.2.

The paper averages over all parameters the mutual information between the values of a parameter in rounds t and
t + 1. A parameter has only one value in each round, so values must be pooled to estimate anything. The paper does
not say how. Both ways are computed:

* `"parameters"`: one estimate for each pair of rounds (t, t + 1), from the values of all parameters. This gives
  T - 1 estimates per client, from which the paper's figure and t-test may have been made.
* `"time"`: one estimate for each parameter, from its T - 1 pairs of consecutive values.

Both are computed for the models, as in the paper, and for their displacements from the global model of the round,
which do not contain what all models share. In addition each model is forecast. A straight line is fitted that maps
the parameters of round t - 1 to those of round t. The same line then maps round t to a forecast of round t + 1. The
squared error is divided by the variance of the model that is forecast.
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
"""The paper's p-values (its table tab:t-test, MNIST)."""
COORDINATES = 10_000
"""How many parameters are drawn for the slow estimates: nearest neighbours over parameters, and all over time."""
ROUNDS = 4
"""The fewest rounds to estimate from, since a pair of rounds needs other pairs as neighbours."""
FORECAST = "forecast-error"
Key = tuple[str, str, str]
"""The vectors ("models" or "displacements"), the pooling ("parameters" or "time"), and the estimator."""
Series = dict[Key, tuple[FloatVector, FloatVector]]
"""The values of the honest client, and those of the malicious one."""


@dataclass(frozen=True)
class Finding:
    """One comparison of an honest with a malicious client.

    The difference is positive if the honest client is more predictable: its mutual information is higher, or its
    forecast error is lower. The p-values test this claim.
    """

    attack: str
    seed: int
    of: str
    pooling: str
    estimator: str
    values: int
    honest: float
    malicious: float
    difference: float
    welch_p: float
    bootstrap_p: float
    low: float
    high: float
    published_p: float | None


def measure(found: Trajectories, *, seed: int = 0, coordinates: int = COORDINATES) -> Series:
    """Return the mutual information and the forecast errors of both clients, for every `Key`."""
    d = found.honest.shape[1]
    some = np.sort(np.random.default_rng([seed, 1]).choice(d, min(d, coordinates), replace=False))
    series: Series = {}
    for of, sent in (("models", found), ("displacements", found.displacements())):
        both = (sent.honest, sent.malicious)
        for name, estimate in ESTIMATORS.items():
            seen = some if name == "kraskov" else np.arange(d)
            honest, malicious = (estimate(x[:-1, seen], x[1:, seen]) for x in both)
            series[of, "parameters", name] = (honest, malicious)
            honest, malicious = (estimate(x[:-1, some].T, x[1:, some].T) for x in both)
            series[of, "time", name] = (honest, malicious)
        series[of, "parameters", FORECAST] = (forecast_errors(both[0]), forecast_errors(both[1]))
    return series


def forecast_errors(models: FloatMatrix) -> FloatVector:
    """Return the error of each forecast, as a share of the variance of the model that is forecast.

    A straight line is fitted by least squares. It maps the parameters of round t - 1 to those of round t. Then it
    maps those of round t to a forecast of round t + 1. A perfect forecast has the error 0. The mean as a forecast
    has 1.
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
    """Return the series of one run, from the folder if it was measured before, else by running it."""
    path = Path(folder) / f"{experiment.id}.npz"
    if path.exists():
        return read_series(path)
    rounds = experiment.setting.federation.rounds
    if rounds < ROUNDS:
        raise InputError(
            f"The predictability study needs at least {ROUNDS} rounds to follow clients. Got {rounds}."
        )
    found = follow(experiment.setting, datasets.of(experiment))
    series = measure(found, seed=experiment.setting.federation.seed)
    write_series(path, series)
    return series


def findings_of(experiment: Experiment, series: Series) -> list[Finding]:
    """Return the findings of one run, one for each series.

    A series has a value for each of n rounds or parameters. A block of the bootstrap has about sqrt(n) of them.
    """
    attack, seed = attack_of(experiment), experiment.setting.federation.seed
    findings = []
    for (of, pooling, estimator), (honest, malicious) in series.items():
        rng, block = np.random.default_rng([seed, 2]), max(1, round(np.sqrt(honest.size)))
        pair = (malicious, honest) if estimator == FORECAST else (honest, malicious)
        found = compare_means(*pair, block=block, rng=rng)
        means = float(honest.mean()), float(malicious.mean())
        comparable = of == "models" and pooling == "parameters" and estimator != FORECAST
        theirs = PUBLISHED.get(attack.removesuffix("-reference")) if comparable else None
        findings.append(
            Finding(attack, seed, of, pooling, estimator, honest.size, *means, **asdict(found), published_p=theirs)
        )
    return findings


def attack_of(experiment: Experiment) -> str:
    """Return the name of the attack of a run."""
    return registry("attacks").name_of(experiment.setting.threat.attack)


def summarise(findings: Sequence[Finding]) -> list[dict[str, str | float | None]]:
    """Return one line for each attack and way of measuring: means and median p-values over the seeds."""
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
    """Write series to a file, all of them or none."""
    arrays: dict[str, Any] = {"/".join(key): np.stack(pair) for key, pair in series.items()}
    with writing(path.parent, str(path)), atomic(path) as file:
        np.savez(file, **arrays)


def read_series(path: Path) -> Series:
    """Read series back."""
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
