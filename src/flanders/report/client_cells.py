"""Encodes what happened to the clients of a run, as compact JSON for the HTML page.

The script `cells.js` of the page decodes this JSON.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, IntVector
from flanders.client_ids import ClientId
from flanders.report.run_data import RunData, TextMatrix
from flanders.report.run_reading import FIELDS, choose_rows

ENCODINGS = {"float64": "number", "int64": "number", "bool": "answer", "string": "text"}
"""How a field of `ClientRecord` is encoded for the page, by the type of its column (`Column.kind`).

An answer is yes, no or unknown.
"""
SCORE_REASON = re.compile(r"score [-+.\dainfe]+")
"""The pattern of reasons that only repeat the score. In place of such a reason the page gets the word `score`. The
page has the number anyway."""

PageData = dict[str, Any]
"""A part of the page's data, ready for JSON."""


def encode_clients(run: RunData, rows: int, characters: int, since: int = 0, until: int | None = None) -> PageData:
    """Return all fields of `ClientRecord` for at most `rows` clients of a run.

    Only the rounds from position `since` to position `until - 1` are returned. If `until` is None, all rounds from
    `since` on are returned. If the run has more clients than `rows`, `choose_rows` chooses some of them. If the
    different texts of a field have more than `characters` characters together, the rarest texts are left out.
    """
    total = run.totals.clients
    if rows == 0 or run.rounds.size == 0:
        return {"shown": 0, "total": total, "shortened": False}
    all_fit = len(run.clients) <= rows
    chosen, evenly = np.arange(len(run.clients)), np.ones(len(run.clients), dtype=bool)
    if not all_fit:
        chosen, evenly = choose_rows(run.not_kept, rows)
    if run.evenly_chosen is not None:
        both = evenly & run.evenly_chosen
        evenly = both if both.any() else evenly
    columns = slice(since, until)
    fields: dict[str, PageData | None] = {}
    shortened = False
    for column in FIELDS:
        name, encoding = column.name, ENCODINGS[column.kind]
        if encoding == "text":
            fields[name], cut = _text_field(run.texts[name], chosen, columns, characters)
            shortened |= cut
        elif encoding == "answer":
            fields[name] = {"kind": encoding, "data": _pack(run.answers[name][chosen, columns])}
        else:
            fields[name] = _number_field(run.numbers[name][chosen, columns])
    return {
        "shown": int(chosen.size),
        "total": total,
        "ids": [page_id(run.clients[i]) for i in chosen],
        "spread": None if all_fit and run.evenly_chosen is None else np.flatnonzero(evenly[chosen]).tolist(),
        "since": since,
        "fields": fields,
        "shortened": shortened,
    }


def page_id(client: ClientId) -> ClientId:
    """Return an id for the page. Whole numbers from 2^53 on become text, since JavaScript would round them."""
    return str(client) if isinstance(client, int) and abs(client) >= 2**53 else client


def _pack(array: NDArray[Any]) -> str:
    """Return the bytes of an array as base64, little-endian."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _number_field(values: FloatMatrix) -> PageData | None:
    """Return numbers for the page as float32. Finite numbers stay finite. Return None if no number is finite."""
    if not np.isfinite(values).any():
        return None
    largest = float(np.finfo(np.float32).max)
    clipped = np.where(np.isinf(values), values, values.clip(-largest, largest))
    return {"kind": "number", "data": _pack(clipped.astype(np.float32))}


def _text_field(texts: TextMatrix, chosen: IntVector, columns: slice, characters: int) -> tuple[PageData, bool]:
    """Return the texts for the page, and whether some were left out.

    If the different texts have more than `characters` characters together, the rarest texts are left out.
    """
    cells = texts.codes[chosen, columns]
    codes, places, counts = np.unique(cells, return_inverse=True, return_counts=True)
    plain = ["score" if SCORE_REASON.fullmatch(texts.words[code]) else texts.words[code] for code in codes]
    frequency: dict[str, int] = {}
    for word, count in zip(plain, counts.tolist(), strict=True):
        frequency[word] = frequency.get(word, 0) + count
    place, room = {"": 0}, characters
    for word in sorted(frequency, key=lambda word: -frequency[word]):
        room -= len(word)
        if word and room >= 0:
            place[word] = len(place)
    new = np.array([place.get(word, 0) for word in plain], dtype=np.int64)
    width = next(kind for kind in (np.uint8, np.uint16, np.uint32) if len(place) <= np.iinfo(kind).max)
    field = {
        "kind": "text",
        "words": list(place),
        "bytes": np.dtype(width).itemsize,
        "data": _pack(new[places.reshape(cells.shape)].astype(width)),
    }
    return field, room < 0
