"""What every attack in the registry promises, whatever it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_compat
import numpy as np
import pytest
import torch

from flanders.arrays import to_numpy
from flanders.attacks import Attack, View
from flanders.attacks.attack import Rehearsal
from flanders.catalog import ATTACKS
from flanders.checks import InputError
from flanders.state import load_state, save_state
from libraries import LIBRARIES

M, B, D = 9, 3, 12
OWN = {"gauss", "sign-flip", "static", "mar", "poisoned-fl", "delta-free-rider", "model-replacement", "neurotoxin"}
OWN |= {"layerwise"}
"""Attacks that use nothing but what the attacker's own clients know."""
USES_BENIGN = sorted(set(ATTACKS) - OWN)


def numbers(round_: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """Return a global model and the honest models that M clients made of it."""
    rng = np.random.default_rng(round_)
    g = rng.normal(size=D)
    return g.astype(dtype), (g + 0.3 + 0.5 * rng.normal(size=(M, D))).astype(dtype)


def make_view(
    round_: int = 0, library: str = "numpy", dtype: str = "float64", b: int = B, omniscient: bool = True
) -> View:
    to = LIBRARIES[library]
    g, models = numbers(round_, dtype)
    return View(
        own=to(models[:b]),
        global_model=to(g),
        num_clients=M,
        clients=tuple(range(b)),
        benign=to(models[b:]) if omniscient else None,
        benign_clients=tuple(range(b, M)) if omniscient else (),
        server_columns=np.array([0, 3, 3, 7]),
        last_layer=slice(8, D),
        rehearsal=Rehearsal(to(models[:b] - 0.5), lambda model: float(model[4]), {"body": 4, "neck": 4, "head": 4}),
    )


def run_rounds(attack: Attack, rounds: int = 3, **options: Any) -> tuple[Any, Any]:
    """Attack for some rounds in a row; return the last rows sent, and the memory."""
    memory, sent = None, None
    for t in range(rounds):
        view = replace(make_view(t, **options), memory=memory)
        sent = attack.craft(view, np.random.default_rng(t))
        memory = attack.remember(view, sent)
    return sent, memory


@pytest.fixture(params=list(ATTACKS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_rows_are_of_the_kind_the_attacker_was_given(name: str, library: str, dtype: str) -> None:
    view = make_view(library=library, dtype=dtype)
    rows = ATTACKS.make(name).craft(view, np.random.default_rng(0))
    assert type(rows) is type(view.own)
    assert rows.dtype == view.own.dtype
    assert array_api_compat.device(rows) == array_api_compat.device(view.own)
    assert tuple(rows.shape) == (B, D)


@pytest.mark.parametrize("library", ["torch", "strict"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("omniscient", [True, False])
def test_every_array_library_gives_the_same_numbers(
    name: str, library: str, dtype: str, tolerance: float, omniscient: bool
) -> None:
    expected, _ = run_rounds(ATTACKS.make(name), dtype=dtype, omniscient=omniscient)
    found, _ = run_rounds(ATTACKS.make(name), dtype=dtype, omniscient=omniscient, library=library)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(to_numpy(found), expected, rtol=tolerance, atol=tolerance * scale)


def test_one_seed_gives_the_same_bytes(name: str) -> None:
    first, _ = run_rounds(ATTACKS.make(name))
    second, _ = run_rounds(ATTACKS.make(name))
    assert first.tobytes() == second.tobytes()


def test_what_the_attacker_sees_is_not_changed_and_not_handed_back(name: str) -> None:
    attack, view = ATTACKS.make(name), make_view()
    g, models = numbers(0)
    sent = attack.craft(view, np.random.default_rng(0))
    memory = attack.remember(view, sent)
    again = attack.craft(replace(view, memory=memory), np.random.default_rng(0))
    for rows in (sent, again):
        rows[...] = np.nan  # as a caller may do with its own array
    assert view.benign is not None
    assert np.array_equal(view.own, models[:B])
    assert np.array_equal(view.benign, models[B:])
    assert np.array_equal(view.global_model, g)


@pytest.mark.parametrize("omniscient", [True, False])
@pytest.mark.parametrize("b", [1, B, M - 1, M])
def test_any_number_of_malicious_clients_gives_finite_models(name: str, b: int, omniscient: bool) -> None:
    sent, _ = run_rounds(ATTACKS.make(name), b=b, omniscient=omniscient)
    assert sent.shape == (b, D)
    assert np.all(np.isfinite(sent))


def test_models_that_all_agree_give_finite_models(name: str) -> None:
    g = np.full(D, 2.0)
    view = View(
        own=np.tile(g, (2, 1)),
        global_model=g,
        num_clients=5,
        clients=(0, 1),
        benign=np.tile(g, (3, 1)),
        benign_clients=(2, 3, 4),
        server_columns=np.arange(2),
        last_layer=slice(2, 4),
    )
    attack = ATTACKS.make(name)
    for _ in range(3):
        sent = attack.craft(view, np.random.default_rng(0))
        view = replace(view, memory=attack.remember(view, sent))
        assert np.all(np.isfinite(sent))


@pytest.mark.parametrize("name_", USES_BENIGN)
def test_an_omniscient_attacker_knows_more(name_: str) -> None:
    knowing = ATTACKS.make(name_).craft(make_view(), np.random.default_rng(0))
    guessing = ATTACKS.make(name_).craft(make_view(omniscient=False), np.random.default_rng(0))
    assert not np.allclose(knowing, guessing)


def test_an_attacker_who_knows_its_own_models_only_gets_along_without_the_others(name: str) -> None:
    sent, _ = run_rounds(ATTACKS.make(name), omniscient=False)
    assert np.all(np.isfinite(sent))


@pytest.mark.parametrize("name_", sorted(set(ATTACKS) - {"opt-reference"}))
def test_the_order_of_the_benign_clients_is_irrelevant(name_: str) -> None:
    view = make_view()
    assert view.benign is not None
    turned = replace(view, benign=view.benign[::-1].copy(), benign_clients=view.benign_clients[::-1])
    attack = ATTACKS.make(name_)
    first = attack.craft(view, np.random.default_rng(0))
    np.testing.assert_allclose(attack.craft(turned, np.random.default_rng(0)), first, rtol=1e-9, atol=1e-12)


def test_the_memory_survives_a_file(name: str, tmp_path: Any) -> None:
    attack = ATTACKS.make(name)
    _, memory = run_rounds(attack)
    save_state(tmp_path / "memory.npz", memory)
    restored = load_state(tmp_path / "memory.npz")
    view = make_view(9)
    expected = attack.craft(replace(view, memory=memory), np.random.default_rng(0))
    found = attack.craft(replace(view, memory=restored), np.random.default_rng(0))
    assert found.tobytes() == expected.tobytes()


def test_everything_comes_in_the_dtype_of_the_attackers_own_models(name: str) -> None:
    view = make_view(dtype="float32")
    wide = replace(view, global_model=view.global_model.astype(np.float64), benign=view.benign.astype(np.float64))
    sent = ATTACKS.make(name).craft(wide, np.random.default_rng(0))
    assert sent.dtype == np.float32
    assert sent.tobytes() == ATTACKS.make(name).craft(view, np.random.default_rng(0)).tobytes()


def test_an_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="has no parameter 'strenght'"):
        ATTACKS.make(name, strenght=1)


def test_an_entry_describes_itself_in_one_sentence(name: str) -> None:
    summary = ATTACKS.describe(name).summary
    assert summary.endswith(".")
    assert len(summary) <= 110


@pytest.mark.parametrize(
    ("name_", "parameters"),
    [
        ("gauss", {"sigma": -1}),
        ("sign-flip", {"scale": -1}),
        ("lie", {"z": -0.1}),
        ("ipm", {"epsilon": "a lot"}),
        ("opt", {"tau": -1}),
        ("opt-trmean", {"factor": 0.5}),
        ("agr-min-max", {"direction": "up"}),
        ("agr-min-sum", {"direction": "up"}),
        ("agr-tailored", {"target": "median"}),
        ("optimal-ipm", {"evaluations": 0}),
        ("layerwise", {"enough": 1.5}),
        ("layerwise", {"scale": -1}),
        ("agr-tailored", {"direction": "up"}),
        ("kept-signature", {"z": -0.1}),
        ("noisy-clones", {"noise": -0.1}),
        ("noisy-clones", {"base": "agr-mix-max"}),
        ("slow-drift", {"rate": -0.1}),
        ("slow-drift", {"cap": -1}),
        ("on-off", {"on": 0}),
        ("on-off", {"off": 1.5}),
        ("on-off", {"base": "agr-mix-max"}),
        ("mar", {"window": 0}),
        ("mar", {"window": 1.5}),
        ("blind-spot", {"scale": -1}),
        ("static", {"base": "sign-flop"}),
        ("budget", {"rho": -1}),
        ("budget", {"c": -1}),
        ("opt-reference", {"num_tensors": 0}),
        ("opt-reference", {"layer_sizes": (0,)}),
        ("opt-reference", {"num_tensors": 3, "layer_sizes": (4, 8)}),
        ("agr-min-max-reference", {"gamma_init": -1}),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(name_: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ATTACKS.make(name_, **parameters)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"num_clients": "15"}, "`num_clients` parameter of View must be a whole number"),
        ({"num_clients": M + 0.5}, "`num_clients` parameter of View must be a whole number"),
        ({"benign": [[1.0] * D] * (M - B)}, r"`benign` must have shape .* Got \('list',\)"),
        ({"benign": np.ones((M - B + 1, D))}, "`benign` must have shape"),
        ({"benign": torch.ones(M - B, D)}, "`benign` must be the same kind of array"),
        ({"benign_clients": (5, 6)}, "`benign_clients` must name the .* other clients"),
        ({"benign_clients": tuple(range(B - 1, M - 1))}, "`benign_clients` must name the .* other clients"),
        ({"server_columns": np.array([D])}, f"`server_columns` must be indices of parameters, from 0 to {D - 1}"),
        ({"server_columns": np.array([-1])}, "`server_columns` must be indices of parameters"),
        ({"server_columns": np.array([0.5])}, "`server_columns` must be indices of parameters"),
    ],
    ids=str,
)
def test_a_view_that_contradicts_itself_is_an_error(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(make_view(), **parts)
