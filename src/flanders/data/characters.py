"""The dataset `characters`: text drawn from a small grammar. The task is to predict the next character."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_number
from flanders.data.dataset import Dataset, Images, Loader
from flanders.data.grammar import ALPHABET, Writer

TASTE = 1.0
"""How much an author prefers some words (the parameter `taste` of `Writer`). It is 1 so that authors differ
clearly: the most frequent of ten words is then about 20 times as frequent as the rarest one."""


@dataclass(frozen=True)
class Characters(Loader):
    """Characters: predict the next character of simple English text from the characters before it.

    There are 30 different characters. The sentences are drawn at random from a small grammar. An example is a
    matrix with a row for each character of the context and a column for each of the 30 characters. Each row has a 1
    in the column of its character and 0 elsewhere. If `authors` is above 0, each client has the text of one author,
    who prefers some words. The dataset needs no files.

    Parameters
    ----------
    context
        The number of characters before the one to predict.
    num_samples, num_test
        The number of training and of test examples.
    authors
        The number of authors. Each author is a client, so there must be as many clients as authors. With 0, there
        is one author, who prefers no words, and a partition divides the examples among the clients.
    seed
        The seed of the random text.
    normalise_test
        Not used, since the values are 0 and 1.

    Examples
    --------
    >>> data = Characters(num_samples=100, num_test=20).load()
    >>> data.x_train.shape, data.num_classes
    ((100, 10, 30), 30)
    >>> "".join(ALPHABET[i] for i in data.x_train[0].argmax(1)) + " -> " + ALPHABET[data.y_train[0]]
    'max counte -> d'
    """

    context: int = 10
    num_samples: int = 20_000
    num_test: int = 2_000
    authors: int = 0
    seed: int = 0
    normalise_test: bool = True

    def __post_init__(self) -> None:
        check_number("Characters", "context", self.context, 1, whole=True)
        check_number("Characters", "num_samples", self.num_samples, max(1, self.authors), whole=True)
        check_number("Characters", "num_test", self.num_test, 1, whole=True)
        check_number("Characters", "authors", self.authors, 0, whole=True)
        check_number("Characters", "seed", self.seed, 0, whole=True)

    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Draw the text. `data_dir` is not used."""
        streams = np.random.default_rng(self.seed).spawn(2 + self.authors)
        if self.authors:
            owners = np.sort(np.arange(self.num_samples, dtype=np.int64) % self.authors)
            sizes = np.bincount(owners)
            parts = [
                self.examples(Writer(stream, TASTE), int(count))
                for stream, count in zip(streams[2:], sizes, strict=True)
            ]
            x_train, y_train = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        else:
            owners = None
            x_train, y_train = self.examples(Writer(streams[0]), self.num_samples)
        x_test, y_test = self.examples(Writer(streams[1]), self.num_test)
        return Dataset("characters", x_train, y_train, x_test, y_test, len(ALPHABET), owners)

    def examples(self, writer: Writer, count: int) -> tuple[Images, IntVector]:
        """Draw a text. Return `count` contexts from it, and the character that follows each context."""
        text = writer.text(count + self.context)
        codes = np.array([ALPHABET.index(character) for character in text], dtype=np.int64)
        places = np.arange(count)[:, None] + np.arange(self.context)
        return np.eye(len(ALPHABET), dtype=np.float32)[codes[places]], codes[self.context :]
