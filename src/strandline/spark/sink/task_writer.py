"""One attempt of one task: its rows in a transaction that stays open, and a message that says which.

It may be killed at any line, run twice at once, or outlive its driver. None of this matters: what it wrote counts only
if its message reaches a driver whose decision is the first for this batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from strandline.client.failures import ClientFailed
from strandline.runtime.fault_points import fault_point
from strandline.spark.sink import fallback
from strandline.spark.sink.commit_message import OpenTransaction, TaskWritten
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.row_writer import RowWriter

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's names of what it tells the tasks of a stream. They are internal, so a test holds them."""


@dataclass(frozen=True)
class Task:
    """Which rows: part `partition_id` of batch `batch_id`, as the plan of this run has it."""

    sink_id: str
    batch_id: int
    partition_id: int


def streaming_task() -> Task:
    """The task that this process runs. The sink is the query, which keeps its id as long as its checkpoint."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context and context.getLocalProperty(QUERY_ID)
    batch_id = context and context.getLocalProperty(BATCH_ID)
    if context is None or not query_id or not batch_id:
        raise SinkRefused("Spark does not say which query and batch this is: the sink works with PySpark 4.3.")
    return Task(query_id, int(batch_id), context.partitionId())


def write_task(pool: Pool, options: SinkOptions, task: Task, batches: Iterable[pa.RecordBatch]) -> TaskWritten:
    with_rows = (batch for batch in batches if batch.num_rows)
    first = next(with_rows, None)
    if first is None:
        return TaskWritten(task.sink_id, 0, None)
    is_first = not pool.knows(options)
    batches = chain((first,), with_rows)
    if not pool.cluster(options).commits_batches:
        rows = fallback.write_rows(
            pool.cluster(options), options, task.sink_id, task.batch_id, task.partition_id, batches
        )
        return TaskWritten(task.sink_id, rows, None, is_decided=True, is_first=is_first)
    producer = pool.take(options, task.sink_id, task.batch_id)
    try:
        writer = RowWriter(producer, options)
        fault_point("before-produce")
        for batch in batches:
            writer.add(batch)
        writer.finish()
        transaction = OpenTransaction(producer.transactional_id, producer.producer_id, producer.producer_epoch)
        fault_point("before-return")
    except Exception as error:
        # A cluster that does not answer has had its time; asking it again would only delay what the user has to hear.
        if isinstance(error, SinkRefused) or not isinstance(error, ClientFailed):
            pool.abort(options, task.sink_id, producer)
        raise
    pool.leave(options, task.sink_id, producer)
    return TaskWritten(task.sink_id, writer.rows, transaction, is_first=is_first)
