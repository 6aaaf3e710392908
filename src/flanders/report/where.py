"""Chooses the runs that fulfil the conditions of the option `--where`, such as `attack=lie`.

A condition names a value that the spec of a run must have. The spec is the description of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flanders.checks import InputError, did_you_mean
from flanders.results.spec_keys import (
    aggregator_name,
    attack_fraction,
    attack_name,
    dataset_name,
    filter_name,
    flat_spec,
    is_live,
    last_part,
)
from flanders.results.tree import Table, Tree

WORDS: dict[str, Callable[[Tree], object]] = {
    "attack": attack_name,
    "r": lambda spec: None if is_live(spec) else attack_fraction(spec),  # the share of malicious clients
    "filter": filter_name,
    "aggregator": aggregator_name,
    "dataset": dataset_name,
}
"""Short names for some values of a spec, with the functions that read these values.

A condition may use a short name or any key of a spec."""


def selected(specs: Sequence[Table], wheres: Sequence[str]) -> list[int]:
    """Return the positions in `specs` of the runs that fulfil all conditions.

    Each condition is `KEY=VALUE`, or `KEY=VALUE,VALUE` if one of several values is enough. The key is one of
    `WORDS`, a dotted key of a spec such as `federation.seed`, or the last part of such a key.

    Examples
    --------
    >>> specs = [{"filter": {"name": name}, "federation": {"seed": 0}} for name in ("guard", "krum")]
    >>> selected(specs, ["filter=krum", "seed=0,1"])
    [1]
    """
    flats = [flat_spec(spec) for spec in specs]
    keys = list(dict.fromkeys(key for flat in flats for key in flat))
    chosen = list(range(len(specs)))
    for where in wheres:
        name, sign, text = where.partition("=")
        if not sign or not text:
            raise InputError(f"--where needs KEY=VALUE, e.g. attack=lie or seed=0,1. Got {where!r} instead.")
        if not specs:
            raise InputError(f"--where {where} finds nothing, since this file has no runs: name a file with runs.")
        read = _reader(name, keys)
        wanted = text.split(",")
        values = [read(spec, flat) for spec, flat in zip(specs, flats, strict=True)]
        chosen = [i for i in chosen if any(_same(values[i], value) for value in wanted)]
        if not chosen:
            known = sorted({str(value) for value in values if value is not None})
            if known:
                message = f". Values of {name} in this file: {', '.join(known)}."
            else:
                message = f", since no run in this file has a value of {name}: name another key."
            raise InputError(f"--where {where} leaves no run{message}")
    return chosen


def _reader(name: str, keys: Sequence[str]) -> Callable[[Table, Table], object]:
    """Return a function that reads the value of the key `name` of a run.

    The function gets the spec of the run, and its values by dotted keys. `keys` are the dotted keys of all runs.
    """
    if name in WORDS:
        read = WORDS[name]
        return lambda spec, flat: read(spec)
    fitting = [key for key in keys if key == name] or [key for key in keys if last_part(key) == name]
    if len(fitting) == 1:
        return lambda spec, flat: flat.get(fitting[0])
    if fitting:
        raise InputError(f"--where {name}=... could mean {', '.join(fitting)}. Name one of them.")
    guess = did_you_mean(name, [*WORDS, *keys, *map(last_part, keys)])
    raise InputError(
        f"--where knows no key {name!r}.{guess} Name {', '.join(WORDS)}, or a key of the specs, e.g. {keys[-1]}."
    )


def _same(value: object, text: str) -> bool:
    """Whether a value of a spec is the value that a condition names."""
    if value is None:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == float(value)
        except ValueError:
            return False
    return str(value).lower() == text.strip().lower()
