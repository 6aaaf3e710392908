"""What every aggregator and pre-aggregator in the registries promises, whatever it does.

The cases come from the registries: a new entry is tested here without being named. The few tables below
say where an entry differs by its nature.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import array_api_compat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import Aggregator
from flanders.arrays import to_numpy
from flanders.catalog import AGGREGATORS, PREAGGREGATORS
from flanders.checks import InputError
from flanders.registry import Registry
from flanders.round import Round

NOT_ROBUST = {"fedavg", "robust-learning-rate", "crfl"}
"""A single client can pull these anywhere, or as far as the model may be long."""
ALWAYS_WEIGHTED = {"fedavg", "bucketing", "multi-krum-reference"}
RANDOM = [("dnc", {"sample": 8}), ("bucketing", {})]
NOISY = {"clipping-and-noise", "crfl", "flame"}
"""These add random noise, of the round's scale. It is switched off where results are compared."""
PLAIN = {
    **{name: {"noise": 0.0} for name in NOISY},
    "crfl": {"noise": 0.0, "radius": 1e9},  # the length of the whole model is bounded, which moves with all models
    "lasa": {"sparsity": 0.0},
    "sparsefed": {"share": 1.0},  # with less, most parameters stay as they are
    "minimum-spread": {"num_malicious": 3},  # it tries all subsets: a fifth of 31 clients would be too many
}
"""Parameters of the entries whose defaults do not suit every test."""
VARIANTS = [("flame", {"noise": 0.0, "angles": "updates"}), ("foolsgold", {"where": "all"})]
ABOUT_MODELS = [("flame", {"noise": 0.0})]
"""Entries that look at the angles between models, which change if all models move together."""
AGAINST_COPIES = {"foolsgold"}
"""Entries that take clients who agree for sybils."""

M, B, D = 15, 3, 37  # 15 clients suit every aggregator's default of a fifth malicious, Bulyan's 4b + 3 too


def cases(*registries: Registry[Any], extra: list[tuple[str, dict[str, Any]]] = RANDOM) -> list[Any]:
    """List every entry with its defaults, with `weighted=True` where there is one, and the extra ones."""
    found = [(name, plain(name)) for registry in registries for name in registry]
    found += [(n, {"weighted": True, **p}) for n, p in found if "weighted" in describe(n).parameters]
    found += [(n, p) for n, p in extra + VARIANTS if p and any(n in registry for registry in registries)]
    return [pytest.param(name, parameters, id=str(make(name, **parameters))) for name, parameters in found]


def plain(name: str) -> dict[str, Any]:
    """Return the parameters of an entry that suit every test."""
    return PLAIN.get(name, {})


def registry_of(name: str) -> Registry[Any]:
    return AGGREGATORS if name in AGGREGATORS else PREAGGREGATORS


def describe(name: str) -> Any:
    return registry_of(name).describe(name)


def make(name: str, **parameters: Any) -> Any:
    return registry_of(name).make(name, **parameters)


ALL = cases(AGGREGATORS, PREAGGREGATORS)
RULES = cases(AGGREGATORS)
each = pytest.mark.parametrize(("name", "parameters"), ALL)
each_rule = pytest.mark.parametrize(("name", "parameters"), RULES)


def numbers(m: int = M, d: int = D, seed: int = 0) -> dict[str, Any]:
    """Return the parts of a round of `m` honest clients as NumPy arrays."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=d)
    return {
        "updates": g + 0.3 + 0.5 * rng.normal(size=(m, d)),
        "clients": tuple(int(c) for c in rng.permutation(1000)[:m]),
        "weights": rng.integers(1, 9, size=m).astype(float),
        "global_model": g,
        "root": 0.3 + 0.1 * rng.normal(size=d),
    }


def as_round(parts: dict[str, Any], to: Any = np.asarray, dtype: str = "float64") -> Round:
    arrays = {k: to(parts[k].astype(dtype)) for k in ("updates", "global_model", "root") if k in parts}
    return Round(arrays.pop("updates"), parts.get("clients", ()), parts.get("weights"), **arrays)


def apply(aggregator: Any, round_: Round, seed: int = 0) -> Any:
    """Return the model of an aggregator, the rows of a pre-aggregator."""
    rng = np.random.default_rng(seed)
    return (
        aggregator.aggregate(round_, rng)
        if isinstance(aggregator, Aggregator)
        else aggregator.prepare(round_, rng).updates
    )


@each
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_result_is_the_same_kind_of_array_and_the_same_on_every_library(name, parameters, dtype, convert):
    aggregator, parts = make(name, **parameters), numbers()
    round_ = as_round(parts, convert, dtype)
    result = apply(aggregator, round_)
    assert type(result) is type(round_.updates)
    assert result.dtype == round_.updates.dtype
    assert array_api_compat.device(result) == array_api_compat.device(round_.updates)
    assert result.shape[-1] == D
    assert result.ndim == (1 if name in AGGREGATORS else 2)
    exact = to_numpy(apply(aggregator, as_round(parts)))
    np.testing.assert_allclose(to_numpy(result), exact, rtol=0, atol=2e-6 if dtype == "float32" else 1e-12)


@each
@pytest.mark.parametrize("m", [M, 2 * M + 1])
def test_the_order_in_which_clients_come_is_irrelevant(name, parameters, m):
    aggregator, parts = make(name, **parameters), numbers(m)
    order = np.random.default_rng(5).permutation(m)
    shuffled = {**parts, "updates": parts["updates"][order], "weights": parts["weights"][order]}
    shuffled["clients"] = tuple(parts["clients"][i] for i in order)
    if isinstance(aggregator, Aggregator):
        np.testing.assert_allclose(
            apply(aggregator, as_round(shuffled)), apply(aggregator, as_round(parts)), atol=1e-12
        )
        return
    before, after = (aggregator.prepare(as_round(p), np.random.default_rng(0)) for p in (parts, shuffled))
    assert set(before.clients) == set(after.clients)
    for client in before.clients:
        i, j = before.clients.index(client), after.clients.index(client)
        np.testing.assert_allclose(after.updates[j], before.updates[i], atol=1e-12)
        assert after.weights[j] == before.weights[i]


@pytest.mark.parametrize("name", ["krum", "multi-krum", "bulyan"])
@given(st.permutations(range(7)))
def test_a_tie_does_not_fall_to_who_came_first(name, order):
    """With m - b - 2 = 1 nearest neighbour two clients tie always: each is the other's."""
    rows = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0], [40.0]])
    few = {"multi-krum": {"num_malicious": 2, "keep": 1}, "krum": {"num_malicious": 2}}.get(
        name, {"num_malicious": 1}
    )
    models = [
        make(name, **few).aggregate(Round(rows[list(ids)], tuple(ids)), np.random.default_rng(0))
        for ids in (range(7), order)
    ]
    assert models[0] == models[1]


@each
def test_the_input_is_left_as_it_was(name, parameters, convert):
    aggregator, round_ = make(name, **parameters), as_round(numbers(), convert)
    arrays = (round_.updates, round_.global_model, round_.root, round_.weights)
    before = [to_numpy(a).tobytes() for a in arrays]
    apply(aggregator, round_)
    assert [to_numpy(a).tobytes() for a in arrays] == before


@each_rule
@pytest.mark.parametrize("m", [M, M + 5])
def test_the_model_shares_no_memory_with_the_input(name, parameters, m):
    round_ = as_round(numbers(m))
    model = apply(make(name, **parameters), round_)
    assert not np.shares_memory(model, round_.updates)
    assert not np.shares_memory(model, round_.global_model)


@each
def test_the_same_seed_gives_the_same_bytes(name, parameters):
    aggregator, round_ = make(name, **parameters), as_round(numbers(), dtype="float32")
    first, second = (apply(aggregator, round_, seed=3).tobytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("name", "parameters"), RANDOM + [(name, {}) for name in sorted(NOISY)])
def test_what_is_random_depends_on_the_seed(name, parameters):
    aggregator, round_ = make(name, **parameters), as_round(numbers())
    assert len({apply(aggregator, round_, seed=seed).tobytes() for seed in range(8)}) > 1


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
def test_an_unknown_parameter_is_an_error_with_a_guess(name):
    known = list(describe(name).parameters)
    misspelt = known[0][:-1] if known else "weighted"
    with pytest.raises(InputError, match=re.escape(f"{name!r} has no parameter {misspelt!r}")) as caught:
        make(name, **{misspelt: 1})
    assert (f"Did you mean {known[0]!r}?" if known else "It has none.") in str(caught.value)


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
def test_an_entry_is_a_frozen_dataclass_with_a_summary_that_knows_its_name(name):
    aggregator = make(name)
    assert aggregator == make(name)
    assert hash(aggregator) == hash(make(name))
    assert registry_of(name).name_of(aggregator) == name
    assert describe(name).summary.endswith((".", ")"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        aggregator.anything = 1


def bad_values(name: str) -> list[Any]:
    return [
        pytest.param(name, parameter, bad, id=f"{name}-{parameter}-{bad}")
        for parameter in describe(name).parameters
        if parameter not in ("weighted", "angles", "where")
        for bad in (-1, "two", float("nan"), True)
    ]


@pytest.mark.parametrize(
    ("name", "parameter", "bad"), [case for n in [*AGGREGATORS, *PREAGGREGATORS] for case in bad_values(n)]
)
def test_a_parameter_out_of_range_is_named_with_its_value(name, parameter, bad):
    with pytest.raises(InputError, match=rf"The `{parameter}` parameter of \w+ must be .* Got {bad!r} instead"):
        make(name, **{parameter: bad})


def smallest(aggregator: Any, d: int = 3) -> int:
    """Return the least number of clients the aggregator accepts."""
    for m in range(1, 30):
        try:
            apply(aggregator, as_round(numbers(m, d)))
        except InputError as error:
            assert str(m) in str(error), "the message must say how many there were"  # noqa: PT017
        else:
            return m
    raise AssertionError(f"{aggregator} accepts no round of up to 29 clients")


AWKWARD = {
    "huge": lambda rng, m, d: rng.choice([-1e30, 1e30], size=(m, d)) * rng.uniform(1, 2, size=(m, d)),
    "one huge row": lambda rng, m, d: np.concatenate([np.full((1, d), 1e30), rng.normal(size=(m - 1, d))]),
    "tiny": lambda rng, m, d: rng.normal(size=(m, d)) * 1e-40,
    "zeros": lambda rng, m, d: np.zeros((m, d)),
    "all equal": lambda rng, m, d: np.full((m, d), 7.0),
    "two camps": lambda rng, m, d: np.where(np.arange(m)[:, None] < m // 2, -1.0, 1.0) * np.ones((m, d)),
    "half at the start": lambda rng, m, d: np.where(np.arange(m)[:, None] % 2, 0.0, 1.0) * np.ones((m, d)),
}


@each
@pytest.mark.parametrize("content", list(AWKWARD))
@pytest.mark.parametrize("size", ["usual", "smallest", "one parameter"])
def test_finite_models_give_a_finite_one(name, parameters, content, size):
    aggregator = make(name, **parameters)
    m = smallest(aggregator) if size == "smallest" else M
    d = 1 if size == "one parameter" else D
    rows = AWKWARD[content](np.random.default_rng(1), m, d).astype(np.float32)
    for start in (np.zeros(d), rows[-1]):
        for root in (np.ones(d), np.zeros(d), np.full(d, 1e30)):
            parts = {"updates": rows, "global_model": start, "root": root, "weights": np.arange(1.0, m + 1)}
            assert np.all(np.isfinite(apply(aggregator, as_round(parts, dtype="float32"))))


@pytest.mark.parametrize(("name", "parameters"), [case for case in ALL if case.values[0] not in AGAINST_COPIES])
def test_clients_that_agree_get_what_they_agree_on(name, parameters):
    point, g = np.random.default_rng(2).normal(size=(2, D))
    parts = {
        "updates": np.tile(point, (M, 1)),
        "global_model": g,
        "root": point - g,
        "weights": np.arange(1.0, M + 1),
    }
    result = apply(make(name, **parameters), as_round(parts))
    np.testing.assert_allclose(result, np.broadcast_to(point, result.shape), atol=1e-12)


@pytest.mark.parametrize(("name", "parameters"), [case for case in ALL if case.values not in ABOUT_MODELS])
@pytest.mark.parametrize("seed", range(3))
def test_moving_everything_moves_the_result(name, parameters, seed):
    aggregator, parts = make(name, **parameters), numbers(seed=seed)
    shift = 10 * np.random.default_rng(9).normal(size=D)
    moved = {**parts, "updates": parts["updates"] + shift, "global_model": parts["global_model"] + shift}
    np.testing.assert_allclose(
        apply(aggregator, as_round(moved)), apply(aggregator, as_round(parts)) + shift, atol=1e-9
    )


@each
@pytest.mark.parametrize("factor", [2.0**-20, -1.0, 3.0e6])
def test_scaling_everything_scales_the_result(name, parameters, factor):
    aggregator, parts = make(name, **parameters), numbers()
    scaled = {**parts, **{k: parts[k] * factor for k in ("updates", "global_model", "root")}}
    np.testing.assert_allclose(
        apply(aggregator, as_round(scaled)), apply(aggregator, as_round(parts)) * factor, rtol=1e-7
    )


def poisoned(size: float, kind: str) -> tuple[dict[str, Any], np.ndarray]:
    """Return a round whose first B rows are malicious, with a fifth of the clients and of the weight."""
    parts = numbers()
    honest = parts["updates"][B:]
    direction = np.ones(D) if kind == "one camp" else np.random.default_rng(4).normal(size=(B, D))
    rows = parts["global_model"] + size * direction * np.ones((B, 1))
    weights = np.concatenate([np.full(B, 4.0), np.tile([2.0, 4.0, 6.0], 4)])
    return {**parts, "updates": np.concatenate([rows, honest]), "weights": weights}, honest


@pytest.mark.parametrize(("name", "parameters"), [case for case in RULES if case.values[0] not in NOT_ROBUST])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e3, 1e6, -1e6, 1e30])
def test_a_fifth_of_malicious_clients_cannot_pull_a_robust_aggregator_away(name, parameters, size, dtype):
    parts, honest = poisoned(size, "one camp")
    model = apply(make(name, **parameters), as_round(parts, dtype=dtype)).astype(np.float64)
    radius = np.linalg.norm(honest - honest.mean(axis=0), axis=1).max()
    assert np.linalg.norm(model - honest.mean(axis=0)) < 2 * radius


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "mean-around-median", "krum", "multi-krum", "bulyan"])
@pytest.mark.parametrize("kind", ["one camp", "scattered"])
def test_aggregators_that_pick_values_stay_in_the_honest_range(name, kind):
    parts, honest = poisoned(1e6, kind)
    model = apply(make(name), as_round(parts))
    assert np.all(model >= honest.min(axis=0) - 1e-12)
    assert np.all(model <= honest.max(axis=0) + 1e-12)


@pytest.mark.parametrize("name", ["multi-krum", "dnc", "mean-around-median"])
def test_aggregators_that_drop_as_many_as_are_malicious_return_the_honest_mean(name):
    parts, honest = poisoned(1e6, "one camp")
    np.testing.assert_allclose(apply(make(name), as_round(parts)), honest.mean(axis=0), atol=1e-9)


def test_the_plain_average_is_no_defence():
    parts, honest = poisoned(1e6, "one camp")
    assert np.all(apply(make("fedavg"), as_round(parts)) > honest.max(axis=0) + 1e5)


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
def test_weights_count_only_where_they_are_asked_for(name):
    parts = numbers()
    alike = {**parts, "weights": np.ones(M)}
    aggregator = make(name, **plain(name))
    same = apply(aggregator, as_round(parts)).tobytes() == apply(aggregator, as_round(alike)).tobytes()
    assert same is (name not in ALWAYS_WEIGHTED)


@pytest.mark.parametrize("name", [n for n in AGGREGATORS if "weighted" in describe(n).parameters])
def test_weights_count_where_they_are_asked_for(name):
    parts = numbers()
    by_weight, without = make(name, weighted=True, **plain(name)), make(name, **plain(name))
    assert not np.allclose(apply(by_weight, as_round(parts)), apply(without, as_round(parts)))
    alike = as_round({**parts, "weights": np.full(M, 7.0)})
    np.testing.assert_allclose(apply(by_weight, alike), apply(without, alike), atol=1e-12)


REPEATABLE = {
    "fedavg": {},
    "median": {"weighted": True},
    "geometric-median": {"weighted": True},
    "centered-clipping": {"weighted": True, "radius": 0.7},
}
"""Rules in which a client of weight n is n clients of weight 1. Not Multi-Krum and DnC: there weights
enter the average, not the choice."""


@pytest.mark.parametrize("name", list(REPEATABLE))
@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.integers(0, 2**32))
def test_a_weight_of_n_is_the_client_n_times(name, counts, seed):
    rows = np.random.default_rng(seed).normal(size=(len(counts), 3))
    aggregator = make(name, **REPEATABLE[name])
    repeated = aggregator(np.repeat(rows, counts, axis=0))
    np.testing.assert_allclose(aggregator(rows, np.array(counts)), repeated, atol=1e-9)


@given(st.lists(st.integers(1, 5), min_size=3, max_size=9), st.integers(0, 2**32), st.data())
def test_a_weight_of_n_is_the_client_n_times_in_the_trimmed_mean_where_the_cut_falls_between_clients(
    counts, seed, data
):
    m = len(counts)
    trim = data.draw(st.integers(0, (m - 1) // 2))
    rows = np.random.default_rng(seed).normal(size=(m, 3))
    weighted = make("trimmed-mean", trim=trim, weighted=True)(rows, np.array(counts))
    # trim / m of the weight is a whole number of clients once each is there m times as often.
    repeated = make("trimmed-mean", trim=trim * sum(counts))(np.repeat(rows, np.array(counts) * m, axis=0))
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "median", "geometric-median", "centered-clipping"])
def test_a_client_without_weight_is_not_there(name):
    rows = np.random.default_rng(6).normal(size=(6, 4))
    aggregator = make(name, **REPEATABLE[name])
    with_it = aggregator(np.concatenate([rows, np.full((1, 4), 1e3)]), np.array([3, 1, 2, 2, 1, 3, 0]))
    np.testing.assert_allclose(with_it, aggregator(rows, np.array([3, 1, 2, 2, 1, 3])), atol=1e-9)


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e160])
def test_rows_that_no_aggregator_can_use_are_named_where_it_is_called_by_itself(name, bad, convert):
    rows = numbers()["updates"]
    rows[3, 5] = rows[9, 0] = bad
    with pytest.raises(
        InputError, match=r"needs finite rows .* cannot be used: 3, 9\. Leave them out, or let Defense"
    ):
        make(name)(convert(rows))


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_rows_in_float32_are_named_too(name, bad, convert):
    rows = numbers()["updates"].astype(np.float32)
    rows[3, 5] = rows[9, 0] = bad
    with pytest.raises(InputError, match=r"cannot be used: 3, 9\."):
        make(name)(convert(rows))
    if name in AGGREGATORS:
        with pytest.raises(InputError, match=r"cannot be used: 3, 9\."):
            make(name)(convert(rows), np.arange(M) != 3)


@pytest.mark.parametrize("name", [*AGGREGATORS, *PREAGGREGATORS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("bad_row", [False, True])
def test_a_bad_global_model_is_named_even_if_rows_are_bad_too(name, dtype, bad, bad_row, convert):
    rows, model = numbers()["updates"].astype(dtype), np.zeros(D, dtype=dtype)
    model[2] = bad
    if bad_row:
        rows[3, 5] = bad
    with pytest.raises(InputError, match="`global_model` holds NaN or infinite values"):
        make(name)(convert(rows), global_model=convert(model))


def test_a_single_bad_row_or_a_bad_global_model_beside_it_is_named():
    row, nnm = np.ones((1, D), dtype=np.float32), make("nnm", num_malicious=0)
    with pytest.raises(InputError, match="`global_model` holds NaN or infinite values"):
        nnm(row, global_model=np.full(D, np.inf, dtype=np.float32))
    with pytest.raises(InputError, match=r"cannot be used: 0\."):
        nnm(row * np.nan)
    np.testing.assert_array_equal(nnm(row), row)


@pytest.mark.parametrize("name", list(PREAGGREGATORS))
def test_the_rows_of_a_pre_aggregator_share_no_memory_with_the_input(name):
    rows = np.ones((M, D))
    assert not np.shares_memory(make(name)(rows), rows)


@pytest.mark.parametrize("first", list(PREAGGREGATORS))
@pytest.mark.parametrize("then", list(AGGREGATORS))
def test_every_pre_aggregator_composes_with_every_aggregator(first, then):
    parts = numbers(32)  # 16 buckets of 2: enough for Bulyan with three malicious
    aggregator = make(then, **({"num_malicious": 3} if then == "bulyan" else plain(then)))
    chain = make(first) | aggregator
    prepared = make(first).prepare(as_round(parts), np.random.default_rng(0))
    model = chain.aggregate(as_round(parts), np.random.default_rng(0))
    # The aggregator draws on after the pre-aggregator; with 37 parameters DnC looks at all and draws nothing.
    assert model.tobytes() == aggregator.aggregate(prepared, np.random.default_rng(1)).tobytes()


def test_pre_aggregators_chain_from_the_right_and_take_only_aggregators():
    chain = make("norm-clipping", radius=1.0) | (make("nnm", num_malicious=1) | make("median"))
    assert np.linalg.norm(chain(np.array([[0.0, 0.5], [0.5, 0.0], [300.0, 400.0]]))) <= 1.0
    with pytest.raises(TypeError):
        make("nnm") | np.median
