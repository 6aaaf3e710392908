from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal
from flanders.checks import InputError
from flanders.flower import FilteredStrategy
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.round_matrix import ReusedMemory, SketchedMatrix, WholeMatrix
from flanders.linalg.sketch import STREAMED
from flower.federation import app, grid_of, model, play, strategies, trained


def entered(matrix, records):
    for row, record in enumerate(records):
        matrix.prepare_row(row)
        for place, numbers in matrix.model.scored(record):
            matrix.put(row, place, numbers, record[place.name])
    return matrix.numbers


def test_a_sketch_keeps_distances_and_another_secret_makes_another_sketch(rng) -> None:
    start = model((200, 300), (300,))
    arrays = ModelArrays.of(start)
    records = [trained(start, client, rng) for client in range(4)]
    whole = entered(WholeMatrix(arrays, 4), records).astype(np.float64)
    sketches = [entered(SketchedMatrix(arrays, 4, 4096, secret), records).copy() for secret in (1, 1, 2)]
    np.testing.assert_array_equal(sketches[0], sketches[1])
    assert not np.allclose(sketches[0], sketches[2])
    for i, j in ((0, 1), (1, 3), (2, 3)):
        true = np.sum((whole[i] - whole[j]) ** 2)
        assert np.sum((sketches[0][i] - sketches[0][j]) ** 2) == pytest.approx(true, rel=0.15)


def test_a_whole_matrix_knows_its_layers_by_name_and_a_sketched_one_does_not() -> None:
    arrays = ModelArrays.of(model((4, 5), (5,), (5,), names=["w", "bn.weight", "bn.running_var"]))
    assert WholeMatrix(arrays, 2).layers == {"w": 20, "bn.weight": 5}
    assert SketchedMatrix(arrays, 2, 64, 5).layers == {}


def test_a_sketch_is_linear_and_a_row_can_be_used_again(rng) -> None:
    """What a refused reply has left in a row does not count for the next one."""
    start = model((30, 20), (20,))
    arrays = ModelArrays.of(start)
    matrix = SketchedMatrix(arrays, 1, 64, 5)
    once = entered(matrix, [start]).copy()
    np.testing.assert_array_equal(entered(matrix, [start]), once)
    np.testing.assert_array_equal(matrix.row_of(start), once[0])
    doubled = app.ArrayRecord({n: app.Array(2 * a.numpy()) for n, a in start.items()})
    np.testing.assert_allclose(matrix.row_of(doubled), 2 * once[0])


def test_a_sketch_of_an_array_of_many_blocks_is_that_of_all_its_parameters() -> None:
    big = np.zeros(2 * STREAMED + 5, dtype=np.float32)
    big[[3, STREAMED + 3, 2 * STREAMED + 4]] = [1.0, 2.0, 4.0]
    record = app.ArrayRecord({"w": app.Array(big)})
    found = SketchedMatrix(ModelArrays.of(record), 1, 1024, 9).row_of(record)
    assert sorted(np.abs(found[found != 0])) == [1.0, 2.0, 4.0]


def test_memory_is_used_again_unless_somebody_holds_a_part_of_it() -> None:
    memory = ReusedMemory()
    first = memory.matrix(3, 5)
    address = first.ctypes.data
    del first
    second = memory.matrix(2, 5)
    assert second.ctypes.data == address
    kept = second[0, 1:3]
    del second
    third = memory.matrix(3, 5)
    assert not np.shares_memory(third, kept)
    assert memory.matrix(3, 6).shape == (3, 6)


def test_a_filter_that_keeps_views_of_the_rounds_is_not_overwritten() -> None:
    class Hoarder(DistanceToGlobal):
        def init(self, rng=None):
            return ()

        def amend(self, state, round_, kept, model, scores=None):
            return (*state, round_.updates)

    strategy = FilteredStrategy(strategies.FedAvg(), Hoarder(keep=0.5))
    copies = []
    for number in (1, 2, 3):
        play(strategy, grid_of(3), model((6, 7), seed=number), 1, first=number)
        copies.append(strategy.defense.state[-1].copy())
    for held, copy in zip(strategy.defense.state, copies, strict=True):
        np.testing.assert_array_equal(held, copy)


@pytest.mark.parametrize("wrong", [1, 0.5, "many"])
def test_a_sketch_needs_a_width(wrong) -> None:
    with pytest.raises(InputError, match="The `sketch` parameter of FilteredStrategy"):
        FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=0.5), sketch=wrong)
