"""The base class of all targets of the fuzzer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from hardening.choices import Choices

CORPUS = Path(__file__).parents[1] / "corpus"
"""The folder of inputs that are tried first, with a folder for each target."""


class Target(ABC):
    """A part of the package that takes input from others."""

    name: ClassVar[str]
    """The name of the input in tables, and of its folder in the corpus."""
    reads_files: ClassVar[bool] = True
    """Whether the corpus has whole input files. Otherwise it has the bytes from which a case is made."""

    @property
    def corpus(self) -> list[bytes]:
        """The inputs in the corpus, in the order of their names."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*")) if path.is_file()]

    def prepare(self, folder: Path) -> None:
        """Prepare what all cases need, in an empty folder."""
        self.folder = folder

    @abstractmethod
    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Try one hostile input, and return how many hostile parts it had. Raise an error if it does harm.

        `replay` is a file of the corpus to try as it is. If it is None, the input is made from `choices`.
        """
