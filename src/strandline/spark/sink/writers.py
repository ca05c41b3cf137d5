"""What Spark calls: a writer for a stream and one for a data frame.

Spark pickles them and makes them again in other processes, twice for each batch. So they hold options, and
nothing happens when one is made; a task's rows are written in a worker, and the end comes in a process of the driver.
Each loads what it needs, when it needs it: the process of the driver's end has no use for Arrow, which takes long.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from strandline.spark.sink.commit_message import TaskWritten, told, told_by_all
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions, batch_of_a_query, parse_options
from strandline.spark.sink.schema import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

ONLY_BATCH = 0


def stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise SinkRefused("A log is only added to: use outputMode('append').")
    parsed = parse_options(options)
    check_columns(schema, parsed.topic)
    return StreamWriter(parsed)


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter | InnerWriter:
    if overwrite:
        raise SinkRefused("A log is only added to: use mode('append').")
    parsed = parse_options(options)
    check_columns(schema, parsed.topic)
    if (batch := batch_of_a_query(options)) is not None:
        return InnerWriter(parsed, *batch)
    return BatchWriter(parsed, f"write-{uuid.uuid4()}")


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink is the query: its id lies in the checkpoint, and batch ids go on where the checkpoint does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        from strandline.spark.sink.pool import worker_pool
        from strandline.spark.sink.task_writer import streaming_task, write_task

        return write_task(worker_pool(), self._options, streaming_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from strandline.spark.sink import driver

        driver.commit(driver.cluster_of(self._options), told_by_all(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from strandline.spark.sink import driver

        driver.abort(driver.cluster_for_abort(self._options), told(messages))


class InnerWriter(DataSourceArrowWriter):
    """A frame that is a batch of a query, written inside of foreachBatch: the sink is the query, as for a stream."""

    def __init__(self, options: SinkOptions, query_id: str, batch_id: int) -> None:
        self._options = options
        self._query_id = query_id
        self._batch_id = batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        from pyspark import TaskContext

        from strandline.spark.sink.pool import worker_pool
        from strandline.spark.sink.task_writer import Task, write_task

        context = TaskContext.get()
        task = Task(self._query_id, self._batch_id, context.partitionId() if context is not None else 0)
        return write_task(worker_pool(), self._options, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from strandline.spark.sink import driver

        driver.commit(driver.cluster_of(self._options), told_by_all(messages), self._batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from strandline.spark.sink import driver

        driver.abort(driver.cluster_for_abort(self._options), told(messages))


class BatchWriter(DataSourceArrowWriter):
    """A sink of its own with one batch, which is forgotten when that is written."""

    def __init__(self, options: SinkOptions, sink_id: str) -> None:
        self._options = options
        self._sink_id = sink_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        from pyspark import TaskContext

        from strandline.spark.sink.pool import worker_pool
        from strandline.spark.sink.task_writer import Task, write_task

        context = TaskContext.get()
        task = Task(self._sink_id, ONLY_BATCH, context.partitionId() if context is not None else 0)
        pool = worker_pool()
        try:
            return write_task(pool, self._options, task, iterator)
        finally:
            # No later batch comes in which they could be free.
            pool.forget(self._options, self._sink_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from strandline.spark.sink import driver

        cluster = driver.cluster_of(self._options)
        driver.commit(cluster, told_by_all(messages), ONLY_BATCH)
        driver.delete(cluster, self._sink_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from strandline.spark.sink import driver

        cluster = driver.cluster_for_abort(self._options)
        driver.abort(cluster, told(messages))
        driver.delete(cluster, self._sink_id)
