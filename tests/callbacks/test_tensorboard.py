from __future__ import annotations

import pytest

from flanders.callbacks import RunInfo, TensorBoard
from round_records import round_record

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
)
event_file_writer = pytest.importorskip(
    "tensorboard.summary.writer.event_file_writer", reason="TensorBoard is not installed"
)


def read(folder):
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return found


def test_curves_and_reasons_can_be_read_back_with_tensorboard(tmp_path) -> None:
    board = TensorBoard(tmp_path)
    board.on_start(RunInfo("run", settings={"filter.name": "guard"}))
    for number, accuracy in enumerate((0.5, 0.75), start=1):
        record = round_record(number, ["ann", "eve"], kept=[1, 0], reason=["", "too long"], accuracy=accuracy)
        board.on_round(record)
    found = read(tmp_path)  # nothing is lost if the process is killed here
    assert [(event.step, event.value) for event in found.Scalars("accuracy")] == [(1, 0.5), (2, 0.75)]
    assert [event.value for event in found.Scalars("clients/dropped")] == [1, 1]
    texts = {tag: found.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in ("not kept", "settings")}
    assert texts["not kept"] == "- eve: dropped (too long)"
    assert "| filter.name | guard |" in texts["settings"]
    board.on_end()


def test_a_continued_run_adds_to_the_same_curves(tmp_path, monkeypatch) -> None:
    # TensorBoard reads files in the order of their names. Files of the same second differ in a counter, and file 10
    # would be read before file 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    board = TensorBoard(tmp_path)
    for number in (1, 2):
        board.on_round(round_record(number, [0], accuracy=0.1 * number))
        board.on_end()
    assert [event.step for event in read(tmp_path).Scalars("accuracy")] == [1, 2]
