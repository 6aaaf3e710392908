"""The target `arrays`: hostile arrays that are passed to a `Defense`."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flanders.catalog import AGGREGATORS, FILTERS
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.registry import Registry
from hardening.choices import FLOATS, INTS, TEXTS, Choices
from hardening.federation import quiet
from hardening.targets.target import Target
from hardening.verdicts import NonFiniteModel

T = TypeVar("T")
TYPES = ("f8", "f4", "f2", "g", "i8", "u1", "?", "F", "U2", "O", "M8[s]", ">f8")


class Arrays(Target):
    """Four rounds of a `Defense` with any filter and any aggregator, on arrays with hostile rows."""

    name = "arrays"
    reads_files = False

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Pass four arrays. Each must be refused with an `InputError` or give a finite model."""
        tried = 0
        with quiet(), np.errstate(all="ignore"):
            defense = Defense(made(choices, FILTERS, "guard"), made(choices, AGGREGATORS, "fedavg"), seed=0)
            m, d = 1 + choices.below(10), 1 + choices.below(30)
            for _ in range(4):
                updates = hostile_matrix(choices, m, d)
                options = hostile_options(choices, m, d)
                tried += 1
                try:
                    outcome = defense(updates, **options)
                except InputError:
                    continue
                model = np.asarray(outcome.model)
                if model.shape != np.shape(updates)[1:] or not np.isfinite(model).all():
                    raise NonFiniteModel(f"{defense.filter!r}, {defense.aggregator!r}: {str(model)[:60]}")
        return tried


def made(choices: Choices, registry: Registry[T], usual: str) -> T:
    """Return an entry of a registry: `usual` in half of the cases, and otherwise a random one."""
    names = list(registry)
    name = usual if choices.chance(50) else choices.pick(names)
    parameters = registry.describe(name).parameters
    given = {key: value for key, value in {"keep": 2, "num_malicious": 1, "trim": 1}.items() if key in parameters}
    try:
        return registry.make(name, **given)
    except (InputError, TypeError):  # the entry needs other parameters, e.g. another filter
        return registry.make(usual)


def hostile_matrix(choices: Choices, m: int, d: int) -> Any:
    """Return the updates of a round, some or all of them hostile."""
    rng = choices.generator()
    updates: NDArray[np.float64] = 0.1 * rng.normal(size=(m, d)) + rng.normal(size=d)
    for _ in range(choices.below(4)):
        row, kind = choices.below(m), choices.below(4)
        if kind == 0:
            updates[row] = choices.pick(FLOATS)
        elif kind == 1:
            updates[row, choices.below(d)] = choices.pick(FLOATS)
        elif kind == 2:
            updates[row] *= choices.pick(FLOATS)
        else:
            updates[row] = updates[choices.below(m)]
    kind = choices.below(12)
    if kind == 0:
        return updates.astype(choices.pick(TYPES), casting="unsafe")
    if kind == 1:
        return choices.pick((updates[0], updates[:, :0], updates[:0], updates[None], updates.T, updates[:, ::-1]))
    if kind == 2:
        return choices.pick((updates.tolist(), None, "x", 3, {}, [[1], [1, 2]]))
    if kind == 3:
        return updates[:, : 1 + choices.below(d)]
    return updates.astype(np.float32) if kind < 8 else updates


def hostile_options(choices: Choices, m: int, d: int) -> dict[str, Any]:
    """Return hostile values for the other arguments of a round, such as weights."""
    options: dict[str, Any] = {}
    if choices.chance(20):
        options["weights"] = [choices.pick((*FLOATS, *INTS)) for _ in range(m)]
    if choices.chance(20):
        options["clients"] = [choices.pick((*TEXTS, *INTS, None, 1.5)) for _ in range(m)]
    if choices.chance(10):
        options["global_model"] = np.full(choices.pick((d, d, d, 0, d + 1)), choices.pick(FLOATS))
    if choices.chance(10):
        options["root"] = np.full(d, choices.pick(FLOATS))
    if choices.chance(10):
        options["layers"] = {"a": choices.pick(INTS), "b": choices.below(d)}
    return options
