from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from flanders import Defense, InputError, layers_of, pack, unpack
from flanders.filters import DistanceToGlobal


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def test_state_dicts_go_through_a_defence_and_come_back_as_one_that_loads() -> None:
    models = [network(seed).state_dict() for seed in range(6)]
    start = network(99).state_dict()
    for client in models[:1]:
        client["0.weight"] = client["0.weight"] + 1000
    outcome = Defense(DistanceToGlobal(keep=5))(
        pack(models, like=start), global_model=pack([start])[0], layers=layers_of(start)
    )
    assert outcome.dropped == (0,)
    new = unpack(outcome.model, like=start)
    module = network(0)
    module.load_state_dict(new)
    torch.testing.assert_close(new["2.bias"], torch.stack([m["2.bias"] for m in models[1:]]).mean(0))
    assert new["1.num_batches_tracked"].dtype == torch.int64
    assert {name: tensor.shape for name, tensor in new.items()} == {n: t.shape for n, t in start.items()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_lists_of_layers_come_back_as_they_were(dtype) -> None:
    rng = np.random.default_rng(0)
    models = [[rng.normal(size=s).astype(dtype) for s in ((2, 3), (3,), ())] for _ in range(4)]
    rows = pack(models)
    assert rows.shape == (4, 10)
    assert rows.dtype == (np.float64 if dtype == np.float64 else np.float32)
    for row, model in zip(rows, models, strict=True):
        for found, expected in zip(unpack(row, like=models[0]), model, strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"w": np.zeros(3)}, "'w' has shape \\(3,\\) instead of \\(2,\\)"),
        ({"v": np.zeros(2)}, "missing or unexpected arrays: v, w"),
        ({}, "at least one array"),
        ({"w": "text"}, "'w' is str"),
    ],
)
def test_a_model_that_does_not_fit_is_an_error_or_refused_if_there_is_one_to_trust(bad, message, caplog) -> None:
    good = {"w": np.ones(2)}
    with pytest.raises(InputError, match=message):
        pack([good, bad])
    with caplog.at_level(logging.WARNING, logger="flanders"):
        rows = pack([good, bad], like=good)
    assert np.isnan(rows[1]).all()
    assert "the model in row 1 is refused" in caplog.text
    outcome = Defense()(rows)
    assert outcome.unusable == (1,)


def test_what_is_no_list_of_models_is_told() -> None:
    for wrong in ({"w": np.zeros(2)}, [], np.zeros((2, 3)).tolist()[0]):
        with pytest.raises(InputError, match=r"pack needs a list with one model for each client"):
            pack(wrong)
    with pytest.raises(InputError, match="unpack needs a vector of 2 numbers"):
        unpack(np.zeros(3), like=[np.zeros(2)])
