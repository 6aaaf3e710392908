"""A server with examples of its own, for filters that need one: the loss is the distance to a known point."""

from __future__ import annotations

from typing import Any

import array_api_compat

from flanders import Defense, Round

POINT = 2.0


class Distances:
    """The squared distance of each parameter to `POINT`, as if each were an example of the server's."""

    def __call__(self, model: Any) -> float:
        return float(array_api_compat.array_namespace(model).mean((model - POINT) ** 2))

    def gradient(self, model: Any) -> Any:
        return 2 * (model - POINT) / model.shape[0]


def root_of(updates: Any) -> Any:
    """Return the server's own step: a tenth in every parameter."""
    xp = array_api_compat.array_namespace(updates)
    return xp.full(updates.shape[1], 0.1, dtype=updates.dtype, device=array_api_compat.device(updates))


def a_round(filter_: Any, updates: Any, **parts: Any) -> Round:
    """Return a round, with examples of the server's if the filter needs them."""
    if filter_.needs_examples:
        parts |= {"root": root_of(updates), "evaluate": Distances()}
    return Round(updates, **parts)


class OwnDefense(Defense):
    """A defence whose server has examples if its filter needs them."""

    def __init__(self, filter_: Any, *rest: Any, **options: Any) -> None:
        super().__init__(filter_, *rest, evaluate=Distances() if filter_.needs_examples else None, **options)

    def __call__(self, updates: Any, *rest: Any, **parts: Any) -> Any:
        if self.filter.needs_examples:
            parts |= {"root": root_of(updates)}
        return super().__call__(updates, *rest, **parts)
