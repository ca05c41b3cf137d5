"""The weaker way, for a broker that cannot decide a whole batch by one request, such as Apache Kafka.

Each task commits a transaction of its own, and in the same transaction a marker: as the position of a group, one more
than the batch. Another attempt of the task takes the transactional id first, which ends what an earlier one left,
then reads the marker and leaves alone what is there. So a task that is tried again, twice at once or after its driver
died writes its rows once, **if the batch is cut into the same tasks again**. With another number of tasks, rows of a
batch that failed half-way can be lost or doubled, and readers see the batch task by task. Kafka forgets the marker of a
group without members after `offsets.retention.minutes` (7 days), which a query must not stand still in the middle of a
batch for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.group_positions import read_positions
from strandline.codec.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from strandline.codec.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from strandline.codec.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.codec.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from strandline.errors import ErrorCode, named
from strandline.runtime.fault_points import fault_point
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.failures import TransactionLost
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.producer import TransactionalProducer
from strandline.spark.sink.row_writer import RowWriter
from strandline.spark.sink.visibility import READABLE_S_MAX, await_readable

_OFFSETS_VERSION_MAX: Final = 4
"""The last version of TxnOffsetCommit whose group was added to the transaction by us."""


def write_rows(
    cluster: SinkCluster,
    options: SinkOptions,
    sink_id: str,
    batch_id: int,
    partition_id: int,
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Write and commit the rows of one task, unless that was done before; how many were written."""
    # Not of the prefix whose transactions only a driver may commit: the broker may be a Strandline of another age.
    name = f"strandline-sink-{sink_id}-{partition_id}"
    producer = TransactionalProducer(cluster, name, name)
    producer.initialize()
    if read_marker(cluster, name) > batch_id:
        # Spark wants its rows to be taken, or gives the worker up.
        deque(batches, maxlen=0)
        return 0
    writer = RowWriter(producer, options)
    fault_point("before-produce")
    for batch in batches:
        writer.add(batch)
    writer.finish()
    write_marker(producer, name, batch_id, writer.topics[0])
    producer.end(committed=True)
    await_readable(cluster, name, patience_s=READABLE_S_MAX)
    fault_point("before-return")
    return writer.rows


def read_marker(cluster: SinkCluster, name: str) -> int:
    """Return the next batch of the task. It is read after the id was taken, so no other attempt can move it."""
    code, positions = read_positions(cluster.client, "read which batches are written", name)
    if code != ErrorCode.NONE:
        raise TransactionLost(f"Which batches are written cannot be read: {code.name}.")
    return max((each.offset for each in positions.values()), default=-1)


def write_marker(producer: TransactionalProducer, name: str, batch_id: int, topic: str) -> None:
    """In the open transaction. Which topic carries it means nothing, but the broker wants one that exists."""
    cluster = producer.cluster
    added = ask_coordinator(
        cluster.client,
        "commit which batch is written",
        name,
        AddOffsetsToTxnRequest(producer.transactional_id, producer.producer_id, producer.producer_epoch, name),
        AddOffsetsToTxnResponse,
        lambda told: told.error_code,
    )
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=batch_id + 1)
    answer = ask_coordinator(
        cluster.client,
        "commit which batch is written",
        name,
        TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        ),
        TxnOffsetCommitResponse,
        _code_of_committed,
        key_type=GROUP,
        version_max=_OFFSETS_VERSION_MAX,
    )
    code = named(added.error_code or _code_of_committed(answer))
    if code != ErrorCode.NONE:
        raise TransactionLost(f"The transaction of this task ended before it did ({code.name}); it is tried again.")


def _code_of_committed(answer: TxnOffsetCommitResponse) -> int:
    return next((each.error_code for topic in answer.topics for each in topic.partitions), ErrorCode.NONE)
