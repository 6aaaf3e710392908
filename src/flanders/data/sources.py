"""Functions that find the files of a dataset, check them, and download missing files.

The files are looked for in the data directory. This is the value of the argument `data_dir` (`--data-dir` on the
command line). Without this argument, it is the value of the environment variable `FLANDERS_DATA`. If there are no
files, they are downloaded. The download needs the package Flower Datasets.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.checks import InputError
from flanders.extras import MissingExtra

LARGEST_FILE = 2**29
"""The most bytes that a file may have after decompression. The limit keeps a hostile compressed file from filling
the memory. It is more than three times the size of the largest file of these datasets."""
Labelled = tuple[list[NDArray[np.uint8]], NDArray[np.generic]]
"""A list of arrays of byte images, and the classes of all images. The shape of each array is (images, channels,
height, width)."""


@dataclass(frozen=True)
class Source:
    """Where the files of a dataset are looked for, and where they can be downloaded."""

    name: str
    folders: tuple[str, ...]
    """The folders to look in. Relative paths are relative to the data directory."""
    instructions: str
    """Which files to put into which folder. The error for a missing dataset shows this text."""
    hub: str
    """The name of the dataset on the Hugging Face hub."""
    columns: tuple[str, str]
    """The names of two columns on the hub: first the column of the images, then the column of the classes."""


def data_directory(data_dir: Path | str | None) -> Path | None:
    """Return the directory to read from, or None if none is set."""
    chosen = data_dir if data_dir is not None else os.environ.get("FLANDERS_DATA")
    if not chosen:
        return None
    directory = Path(chosen).expanduser()
    if not directory.is_dir():
        where = "" if data_dir is not None else " (from the environment variable FLANDERS_DATA)"
        raise InputError(f"The data directory {directory}{where} does not exist. Create it, or choose another.")
    return directory


def find_files(
    source: Source, spellings: Mapping[str, Sequence[str]], data_dir: Path | str | None
) -> dict[str, Path] | None:
    """Return the path of each file in the first folder that holds all files, or None if no folder holds any.

    It is an error if there are files, but no folder holds all of them. `spellings` maps each file to the names that
    it may have.
    """
    root = data_directory(data_dir)
    partial = ""
    for name in source.folders:
        if root is None and not Path(name).is_absolute():
            continue
        folder = Path(name) if root is None else root / name
        found = {}
        for file, names in spellings.items():
            path = next((folder / n for n in names if (folder / n).is_file()), None)
            if path is not None:
                found[file] = path
        if len(found) == len(spellings):
            return found
        if found and not partial:
            missing = [file for file in spellings if file not in found]
            partial = (
                f"{folder} holds only a part of {source.name}. Missing: {', '.join(missing)}. Add what is missing."
            )
    if partial:
        raise InputError(partial)
    return None


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if it ends in .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}). Get the file again.") from error
    if len(content) > LARGEST_FILE:
        raise InputError(
            f"{path} holds more than {LARGEST_FILE:,} bytes. No file of this dataset is so large. Get it again."
        )
    return content


def check_md5(path: Path, content: bytes, expected: str, known: Mapping[str, str] = {}) -> None:
    """Raise an error if the MD5 sum of the decompressed content is not `expected`.

    `known` maps MD5 sums to the names of files. If the content has one of these sums, the error names that file.
    """
    actual = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if actual != expected:
        guess = f" It is {known[actual]}." if actual in known else ""
        raise InputError(
            f"{path} is not the published file: its content has the MD5 sum {actual}, expected {expected}.{guess} "
            "Get the file again, or set `verify=False` on the dataset to use it as it is."
        )


def download(source: Source, data_dir: Path | str | None = None) -> tuple[Labelled, Labelled]:
    """Download the official training and test sets with Flower Datasets. If the download fails, say what to do."""
    looked = data_directory(data_dir)
    missing = f"No files of {source.name} were found" + (f" in {looked}" if looked else "")
    ways = (
        f"Either put {source.instructions} and name that directory with `data_dir`, --data-dir or the environment "
        'variable FLANDERS_DATA; or `pip install "flanders-fl[download]"` and be online. '
        "The dataset 'digits' needs neither."
    )
    try:
        from flwr_datasets import FederatedDataset
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{missing}. {ways}") from error
    try:
        hub = FederatedDataset(dataset=source.hub, partitioners={}, shuffle=False)
        train, test = (hub.load_split(split) for split in ("train", "test"))
        return from_hub(train, source.columns), from_hub(test, source.columns)
    except Exception as error:  # without a network, many kinds of errors are possible
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"{missing}, and downloading {source.hub} failed ({reason}). {ways}") from error


def from_hub(split: Any, columns: tuple[str, str]) -> Labelled:
    """Return the images of a Hugging Face dataset and their classes. The channels come before height and width."""
    pieces = []
    for rows in split.iter(batch_size=10_000):
        images = np.stack([np.asarray(image, dtype=np.uint8) for image in rows[columns[0]]])
        pieces.append(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2))
    return pieces, np.asarray(split[columns[1]])
