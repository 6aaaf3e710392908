"""The form of a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from hardening.choices import Choices

CORPUS = Path(__file__).parents[1] / "corpus"
"""Inputs that are tried first, and changed to make others: a folder for each target."""


class Target(ABC):
    """A part of the package that takes input from others."""

    name: ClassVar[str]
    """What the input is called in tables."""
    reads_files: ClassVar[bool] = True
    """Whether the corpus holds files. Otherwise it holds the bytes that decide a case."""

    @property
    def corpus(self) -> list[bytes]:
        """The committed inputs, in the order of their names."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*")) if path.is_file()]

    def prepare(self, folder: Path) -> None:
        """Make what all cases need, in a folder that is empty at first."""
        self.folder = folder

    @abstractmethod
    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Try one hostile input, and return how many hostile things it held. Raise if it does harm.

        `replay` is a file of the corpus that has to be tried as it is; None if there is none.
        """
