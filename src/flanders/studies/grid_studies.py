"""The list of all studies, with the question of each study and the keys that it varies.

The keys are those of a spec, the TOML file that describes runs. This module needs no optional package, since the
help text of `flanders study` uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flanders.checks import InputError, did_you_mean


@dataclass(frozen=True)
class GridStudy:
    """A question, and the keys of the spec that are varied to answer it.

    There is a run for each combination of values of these keys.
    """

    name: str
    question: str
    axes: tuple[str, ...]
    """The keys of the spec that are varied."""
    label: str
    """The label of the horizontal axis of the figure."""
    specs: tuple[str, ...]
    """The names of the spec files."""

    def point(self, spec: Mapping[str, object]) -> str:
        """Return in words which values a run has for the varied keys, e.g. "cosine, centred"."""
        return ", ".join(word for axis in self.axes if (word := value_in_words(axis, _at(spec, axis))))


def _study(name: str, question: str, axes: str, label: str, specs: str = "") -> GridStudy:
    return GridStudy(name, question, tuple(axes.split()), label, tuple((specs or name).split()))


PREDICTABILITY = _study("predictability", "Are honest clients more predictable?", "threat.attack.name", "attack")
"""The study that measures what single clients send; see `flanders.studies.predictability`. All other studies
compare the results of runs."""

STUDIES = {
    study.name: study
    for study in (
        _study(
            "sampled-parameters",
            "How many parameters must the filter look at?",
            "filter.look.size",
            "sampled parameters",
        ),
        _study(
            "refit",
            "How often must the forecasting model be fitted?",
            "filter.solver.refit_every",
            "rounds between fits",
        ),
        _study(
            "distance",
            "Which distance between a model and its forecast is best?",
            "filter.distance filter.center",
            "distance",
        ),
        _study("window", "To how many rounds should the forecasting model be fitted?", "filter.window", "window l"),
        _study("order", "Of which order should the forecasting model be?", "filter.order", "order w (l = 6)"),
        _study(
            "alpha",
            "How different may the data of the clients be?",
            "data.partition.alpha",
            "Dirichlet concentration",
        ),
        _study(
            "selection",
            "Which parameters should the filter look at?",
            "filter.look.choose filter.look.size",
            "sample",
        ),
        _study(
            "fldetector",
            "How good is FLDetector with fixed malicious clients, as in its own paper, and with rotating ones?",
            "training.optimizer threat.rotating",
            "training and attackers",
            "fldetector fldetector-backdoor fldetector-epochs",
        ),
    )
}
"""The studies that compare the results of runs, by their names. Most of them are about the filter `flanders`."""

QUESTIONS = {PREDICTABILITY.name: PREDICTABILITY, **STUDIES}
"""All studies by their names."""


def find(name: str) -> GridStudy:
    """Return the study with the given name."""
    if name not in QUESTIONS:
        guess = did_you_mean(name, QUESTIONS)
        raise InputError(f"There is no study {name!r}.{guess} Known: {', '.join(QUESTIONS)}.")
    return QUESTIONS[name]


def value_in_words(axis: str, value: object) -> str:
    """Return a value of a varied key in words. `axis` is the key.

    Examples
    --------
    >>> value_in_words("filter.look.size", None), value_in_words("threat.rotating", False)
    ('all', 'fixed')
    >>> value_in_words("filter.distance", 0.5)
    '0.5'
    """
    words: dict[str, dict[object, str]] = {
        "filter.look.size": {None: "all"},
        "filter.center": {True: "centred", False: "", None: ""},
        "threat.rotating": {True: "rotating", False: "fixed"},
        "training.optimizer": {"sgd": "one step", "adam": "one epoch"},  # how the specs of `fldetector` train
    }
    known = words.get(axis, {})
    return known[value] if value in known else f"{value:g}" if isinstance(value, float) else str(value)


def _at(spec: Mapping[str, object], key: str) -> object:
    """Return the value of a spec at a dotted key, or None if there is no such key."""
    value: object = spec
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
