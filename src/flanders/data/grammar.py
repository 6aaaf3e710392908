"""A small grammar of English sentences, and `Writer`, which draws text from it.

The dataset `characters` uses the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NAMES = ("anna", "ben", "clara", "david", "emma", "felix", "grace", "henry", "iris", "jacob", "kate", "max", "zoe")
PLACES = ("market", "harbour", "station", "garden", "school", "library", "village", "river", "bridge", "castle")
THINGS = ("apples", "books", "candles", "letters", "lamps", "boxes", "stones", "flowers", "tickets", "blankets")
QUALITIES = ("small", "heavy", "yellow", "broken", "quiet", "expensive", "wooden", "old", "bright", "strange")
VERBS = ("bought", "carried", "counted", "found", "forgot", "painted", "sold", "wanted", "brought", "noticed")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
TIMES = ("yesterday", "in the morning", "after lunch", "before noon", "at night", "last summer")
SMALL = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ALPHABET = " abcdefghijklmnopqrstuvwxyz,.-"
"""All characters that occur in the text. The number of a character in the dataset is its position here, from 0."""


class Writer:
    """An author who writes random sentences, and who may prefer some words to others.

    Parameters
    ----------
    rng
        The random generator.
    taste
        How much the author prefers some words of a list, e.g. of `NAMES`, to others. With 0, all words of a list
        are equally frequent. Otherwise the frequency of a word is proportional to exp(taste * z), where z is drawn
        for each word from a normal distribution with mean 0 and variance 1.

    Examples
    --------
    >>> Writer(np.random.default_rng(0)).text(60)
    'anna sold twenty-three lamps at the bridge on tuesday. at ni'
    """

    def __init__(self, rng: np.random.Generator, taste: float = 0.0) -> None:
        self._rng, self._taste = rng, taste
        self._cumulative: dict[Sequence[str], np.ndarray] = {}

    def text(self, length: int) -> str:
        """Return `length` characters of text. The last sentence may be cut off."""
        sentences: list[str] = []
        written = 0
        while written <= length:
            sentences.append(self.sentence())
            written += len(sentences[-1]) + 1
        return " ".join(sentences)[:length]

    def sentence(self) -> str:
        """Return a sentence, such as "anna sold forty-two old books at the market on monday."."""
        name, verb, many = self._word(NAMES), self._word(VERBS), self.number()
        what = self._word(THINGS)
        if self._rng.random() < 0.5:
            what = f"{self._word(QUALITIES)} {what}"
        where = f"{self._word(('at', 'near', 'behind'))} the {self._word(PLACES)}"
        if self._rng.random() < 0.5:
            return f"{name} {verb} {many} {what} {where} on {self._word(DAYS)}."
        return f"{self._word(TIMES)}, {name} {verb} {many} {what} {where}."

    def number(self) -> str:
        """Return a number from 2 to 998 in words. Small numbers are more frequent than large ones."""
        number = 2 + int(997 * self._rng.random() ** 4)
        return spelled(number)

    def _word(self, words: Sequence[str]) -> str:
        if words not in self._cumulative:
            frequencies = np.exp(self._taste * self._rng.normal(size=len(words)))
            self._cumulative[words] = np.cumsum(frequencies / frequencies.sum())
        return words[int(np.searchsorted(self._cumulative[words], self._rng.random()))]


def spelled(number: int) -> str:
    """Return a number from 2 to 999 in words.

    Examples
    --------
    >>> spelled(342), spelled(100)
    ('three hundred and forty-two', 'one hundred')
    """
    hundreds, rest = divmod(number, 100)
    parts = [] if hundreds == 0 else [f"{'one' if hundreds == 1 else SMALL[hundreds - 2]} hundred"]
    if rest >= 20:
        ten, one = divmod(rest, 10)
        parts.append(TENS[ten - 2] + ("" if one == 0 else f"-{'one' if one == 1 else SMALL[one - 2]}"))
    elif rest:
        parts.append("one" if rest == 1 else SMALL[rest - 2])
    return " and ".join(parts)
