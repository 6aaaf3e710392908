"""The callback `TensorBoard`: writes the rounds of a run to files that TensorBoard shows as curves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from flanders.callbacks.callback import Callback, RunInfo
from flanders.callbacks.measures import measures_of, unused_lines
from flanders.extras import needing
from flanders.record import RoundRecord

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoard(Callback):
    """Write the numbers of each round for TensorBoard, and a text that says which clients were not kept and why.

    `tensorboard --logdir FOLDER` shows the numbers and texts during the run. The callback needs an optional
    package: `pip install 'flanders-fl[tensorboard]'`.

    Parameters
    ----------
    folder
        The folder to write to. If a run is continued later, use the same folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        with needing("tensorboard"):
            import tensorboard  # noqa: F401
        self.folder = Path(folder)
        self._writer: EventFileWriter | None = None

    def on_start(self, run: RunInfo) -> None:
        """Write the settings of the run as a text."""
        if run.settings:
            rows = [f"| {key} | {value} |" for key, value in run.settings.items()]
            self._write(0, [text_summary("settings", "\n".join(["| setting | value |", "|---|---|", *rows]))])

    def on_round(self, record: RoundRecord) -> None:
        """Write the numbers of a round, and a text about the clients that were not kept."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        numbers = [Summary.Value(tag=name, simple_value=x) for name, x in measures_of(record).items()]
        lines = unused_lines(record) + ([f"note: {record.note}"] if record.note else [])
        texts = [text_summary("not kept", "\n".join(f"- {line}" for line in lines))] if lines else []
        self._write(record.number, [Summary(value=numbers), *texts])

    def on_end(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, step: int, summaries: list[Summary]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(str(self.folder))
        for summary in summaries:
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()


def text_summary(tag: str, markdown: str) -> Summary:
    """Return a Markdown text in the form in which TensorBoard stores texts."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    tensor = TensorProto(dtype=DT_STRING, string_val=[markdown.encode()], tensor_shape=TensorShapeProto())
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
