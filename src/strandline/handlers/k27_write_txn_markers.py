"""WriteTxnMarkers (27), versions 1-2: a coordinator has the markers of ended transactions written.

Honoured: coordinator and producer epochs, of which a partition rejects older ones; the transaction version (2).
A marker is answered when it is committed, or after `COMMIT_WAIT_S` with REQUEST_TIMED_OUT: it may be committed yet, and
the markers of others do not wait for it. As in a Kafka without an authorizer, administrators send this too, to end a
transaction that its coordinator does not know of (`kafka-transactions.sh abort`). A request that comes by a connection
which its broker has replaced is late: it is not obeyed, and the connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from strandline.codec.messages.write_txn_markers_request import WriteTxnMarkersRequest
from strandline.codec.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.marker_writing import CLIENT_ID_BEGIN, Marker, write_marker
from strandline.ids import TopicPartition
from strandline.runtime.time_slicing import gradually

API_KEY = 27
VERSIONS = (1, 2)

COMMIT_WAIT_S: Final = 2.0
"""Seconds that a marker may take to be committed before the coordinator has to retry."""


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> None:
    if is_late(context):
        context.connection.close()
    else:
        Writing(context, request).begin()


def is_late(context: RequestContext) -> bool:
    """Return whether the broker that sent this has sent markers by a later connection.

    A broker has one connection for them, gives it up when an answer does not come in time, and sends what was not
    answered by the next one. The network may deliver the old request long after that. Its transaction is over by then,
    and a producer of version 1 has the next one open in the same epoch: the marker would end that.
    """
    sender = context.client_id
    if sender is None or not any(sender == f"{CLIENT_ID_BEGIN}{broker_id}" for broker_id in context.node.image.brokers):
        return False
    newest: dict[str, int] = context.node.transactions.marker_connections
    number = context.connection.number
    if number < newest.get(sender, 0):
        return True
    newest[sender] = number
    return False


class Writing:
    def __init__(self, context: RequestContext, request: WriteTxnMarkersRequest) -> None:
        self._context = context
        self._request = request
        self._results: list[WritableTxnMarkerResult] = []
        self._outstanding: dict[int, WritableTxnMarkerPartitionResult] = {}
        self._is_begun = False
        self._is_answered = False
        self._deadline = context.node.runtime.call_later(COMMIT_WAIT_S, self._give_up)

    def begin(self) -> None:
        gradually(self._context.node.runtime, self._write_all(), self._on_begun)

    def _write_all(self) -> Iterator[None]:
        number = 0
        for asked in self._request.markers:
            marker = Marker(
                asked.producer_id,
                asked.producer_epoch,
                asked.coordinator_epoch,
                asked.transaction_result,
                asked.transaction_version,
            )
            result = WritableTxnMarkerResult(producer_id=asked.producer_id)
            # Of topics and producers without partitions there is nothing to tell, as in Kafka.
            topics = [topic for topic in asked.topics if topic.partition_indexes]
            if topics:
                self._results.append(result)
            for topic in topics:
                topic_result = WritableTxnMarkerTopicResult(name=topic.name)
                result.topics.append(topic_result)
                for index in topic.partition_indexes:
                    partition = WritableTxnMarkerPartitionResult(partition_index=index)
                    topic_result.partitions.append(partition)
                    self._outstanding[number] = partition
                    place = TopicPartition(topic.name, index)
                    write_marker(self._context.node, place, marker, partial(self._on_written, number))
                    number += 1
                    yield

    def _on_written(self, number: int, code: ErrorCode) -> None:
        partition = self._outstanding.pop(number, None)
        if partition is not None:
            partition.error_code = code
            self._maybe_answer()

    def _on_begun(self, _: object) -> None:
        self._is_begun = True
        self._maybe_answer()

    def _give_up(self) -> None:
        if not self._is_begun:
            # There is more to write than fits into that time; the response lists it when all of it is started.
            self._deadline = self._context.node.runtime.call_later(COMMIT_WAIT_S, self._give_up)
            return
        for partition in self._outstanding.values():
            partition.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._outstanding.clear()
        self._maybe_answer()

    def _maybe_answer(self) -> None:
        if self._is_begun and not self._outstanding and not self._is_answered:
            self._is_answered = True
            self._deadline.cancel()
            self._context.reply(WriteTxnMarkersResponse(markers=self._results))
