"""The possible results of a hostile input: no harm, or one of four kinds of harm."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import flanders

PACKAGE = Path(flanders.__file__).parent


class Verdict(StrEnum):
    """The result of one case."""

    FINE = "fine"
    """The input was used, or refused with a message for the user."""
    TRACEBACK = "traceback"
    """An error was raised that is no message for the user, or that ended the run."""
    NON_FINITE = "non-finite"
    """The new global model was not finite."""
    SILENCED = "silenced"
    """An honest client was refused because of what another client sent."""
    HANG = "hang"
    """The case took too long."""


class NonFiniteModel(Exception):
    """The new global model is not finite."""


class HonestRefused(Exception):
    """An honest client was refused."""


@dataclass(frozen=True)
class Case:
    """One hostile input, and its result."""

    target: str
    number: int
    tried: int
    """How many hostile parts the input had, e.g. replies."""
    verdict: Verdict
    words: str = ""
    """What went wrong, and where."""


def judged(target: str, number: int, tried: int, error: BaseException | None) -> Case:
    """Return the result of a case that ended with this error. None means that there was no error."""
    if error is None:
        return Case(target, number, tried, Verdict.FINE)
    verdict = Verdict.TRACEBACK
    if isinstance(error, NonFiniteModel):
        verdict = Verdict.NON_FINITE
    elif isinstance(error, HonestRefused):
        verdict = Verdict.SILENCED
    return Case(target, number, tried, verdict, f"{place_of(error)} {type(error).__name__}: {str(error)[:200]}")


def place_of(error: BaseException) -> str:
    """Return the file and the last line of this package in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    for frame in (ours or list(frames))[-1:]:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return "?"
