"""What can go wrong when hostile input is tried."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import flanders

PACKAGE = Path(flanders.__file__).parent


class Verdict(StrEnum):
    """What came of one case."""

    FINE = "fine"
    """It was used, or refused with a message."""
    TRACEBACK = "traceback"
    """An error came through that says nothing to a user, or that ended the run."""
    NON_FINITE = "non-finite"
    """A global model came out that is not finite."""
    SILENCED = "silenced"
    """An honest client was refused because of what another client sent."""
    HANG = "hang"
    """It took too long."""


class NonFiniteModel(Exception):
    """A global model that is not finite came out."""


class HonestRefused(Exception):
    """An honest client was refused."""


@dataclass(frozen=True)
class Case:
    """One hostile input, and what came of it."""

    target: str
    number: int
    tried: int
    """How many hostile things it held."""
    verdict: Verdict
    words: str = ""
    """What went wrong, and where."""


def judged(target: str, number: int, tried: int, error: BaseException | None) -> Case:
    """Return what came of a case that has ended with this error, or with none."""
    if error is None:
        return Case(target, number, tried, Verdict.FINE)
    verdict = Verdict.TRACEBACK
    if isinstance(error, NonFiniteModel):
        verdict = Verdict.NON_FINITE
    elif isinstance(error, HonestRefused):
        verdict = Verdict.SILENCED
    return Case(target, number, tried, verdict, f"{place_of(error)} {type(error).__name__}: {str(error)[:200]}")


def place_of(error: BaseException) -> str:
    """Return the line of this package in which an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    for frame in (ours or list(frames))[-1:]:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return "?"
