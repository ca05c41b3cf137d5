"""The writer of a stream: tasks write files, the driver commits them with the number of the batch.

The table knows the query by its id, which lies in the checkpoint. Spark runs a batch again whose end it has not noted.
The table then has its number already, and the files that were written again are removed. It may be run with another
number of tasks, because the decision is about the batch as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from strandline.runtime.fault_points import fault_point
from strandline.spark.lake.options import LakeOptions, parse_options
from strandline.spark.sink.checkpoint import note_of
from strandline.spark.sink.failures import SinkFailed, SinkRefused
from strandline.spark.sink.task_writer import streaming_task

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.connect.sinks.lake.lake_table import DataFile, LakeTable


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What a task tells the driver."""

    query_id: str
    files: tuple[DataFile, ...]

    def __getstate__(self) -> dict[str, Any]:
        # Spark packs the message when the task has returned it, which no code of ours sees otherwise.
        fault_point("after-return")
        return vars(self)


def stream_writer(kind: str, options: Mapping[str, str], overwrite: bool) -> LakeStreamWriter:
    if overwrite:
        raise SinkRefused("Rows are only added to the table: use outputMode('append').")
    return LakeStreamWriter(parse_options(kind, options))


def directory_of(query_id: str, batch_id: int) -> str:
    """Return where the files of a batch lie below those of the table."""
    return f"strandline/{query_id}/{batch_id}"


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Spark makes it again in other processes, so it holds options, and nothing happens when it is made."""

    def __init__(self, options: LakeOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        import pyarrow as pa

        from strandline.connect.sinks.lake.data_files import FileWriter

        task = streaming_task()
        writer: FileWriter | None = None
        for batch in iterator:
            if not batch.num_rows:
                continue
            if writer is None:
                sink, table = self._options.open()
                writer = FileWriter(
                    table,
                    directory_of(task.sink_id, task.batch_id),
                    widening=sink.widening,
                    may_create=sink.config.auto_create,
                    may_evolve=sink.config.auto_evolve,
                )
            writer.add(pa.Table.from_batches([batch]))
        if writer is not None:
            writer.flush()
        fault_point("before-return")
        return FilesWritten(task.sink_id, tuple(writer.files) if writer is not None else ())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [each for each in messages if isinstance(each, FilesWritten)]
        if len(told) != len(messages):
            raise SinkFailed(
                f"The batch was not committed: Spark brings word of {len(told)} of its {len(messages)} tasks; "
                "start the query again, nothing is lost."
            )
        files = [file for each in told for file in each.files]
        if files:
            _, table = self._options.open()
            commit_batch(table, told[0].query_id, batchId, files, self._options.checkpoint)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was written, if a task failed. If all ended, a commit may have been sent, and may name them."""
        told = [each for each in messages if isinstance(each, FilesWritten)]
        paths = [file.path for each in told for file in each.files]
        if paths and len(told) < len(messages):
            _, table = self._options.open()
            table.remove_files(paths)


def commit_batch(
    table: LakeTable, query_id: str, batch_id: int, files: Sequence[DataFile], checkpoint: str | None = None
) -> bool:
    """Add the files of a batch, unless the table has it. Return whether they were added now."""
    from strandline.connect.sinks.lake.data_files import commit_once
    from strandline.connect.sinks.lake.lake_table import BatchMark, FileMarks

    batch = BatchMark(query_id, batch_id, _plan(checkpoint, batch_id))

    def is_done() -> bool:
        last = table.last_batch(query_id)
        if last is None or last.number < batch_id:
            return False
        if last.number > batch_id or (last.plan and batch.plan and last.plan != batch.plan):
            raise SinkRefused(
                f"Batch {batch_id} was written before, and {table.name} has the batches of this query up to "
                f"{last.number}: the checkpoint is older than the table. Nothing was written now. Put back the newer "
                "checkpoint, or begin with a new checkpoint directory and say with startingOffsets where to go on."
            )
        return True

    return commit_once(table, files, directory_of(query_id, batch_id), FileMarks({}, batch), is_done)


def _plan(checkpoint: str | None, batch_id: int) -> str:
    """Return a digest of what the batch reads; empty if it cannot be told."""
    note = note_of(checkpoint, batch_id)
    return "" if note is None else hashlib.sha256(json.loads(note)["offsets"].encode()).hexdigest()[:16]
