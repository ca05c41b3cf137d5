"""Produce, versions 3 to 13.

Honoured: acks 0, 1 and all with `flush.mode` and `min.insync.replicas`, idempotent sequences, topics by name or id
(13), the request's timeout. A batch with a transactional id is refused: transactions are not there yet.

A waiting Produce holds no bytes: its batches are in the log, only the results wait.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.produce import FLEXIBLE_FROM, PartitionResult, encode_produce_response, parse_produce
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.context import Connection, Exchange, Node
from strandline.partition.partition import Partition
from strandline.quorum.topic_names import INTERNAL_TOPICS

API_KEY: Final = 0
VERSIONS: Final = (3, 13)
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


def start(node: Node, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int) -> None:
    request = parse_produce(view, at, version)
    acks = request.acks
    now_ms = node.runtime.now_ms()
    results: list[PartitionResult] = []
    waits: list[tuple[Partition, int, int]] = []
    refusal = _refusal(acks, request.transactional_id)
    topics = node.topics
    for topic, index, records in request.partitions:
        partitions = topics.get(topic)
        partition = partitions[index] if partitions is not None and 0 <= index < len(partitions) else None
        if refusal or partition is None or records is None:
            code = refusal or _why_not(node, topic, index, records is None)
            results.append(PartitionResult(topic, index, code, -1, -1, -1))
            continue
        try:
            if partition.topic[:2] == "__" and partition.topic in INTERNAL_TOPICS:
                # What a client wrote there would be read as ours: a coordinator's state, or damage to it.
                results.append(PartitionResult(topic, index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1, -1))
                continue
            if acks == ACKS_ALL and partition.config.min_insync_replicas > partition.in_sync_count:
                results.append(PartitionResult(topic, index, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, -1))
                continue
            base_offset, commits_at, append_time_ms = partition.append(records, now_ms)
        except StrandlineError as error:
            results.append(PartitionResult(topic, index, error_code(error), -1, -1, -1, str(error)))
            continue
        if partition.high_watermark < commits_at:
            waits.append((partition, commits_at, len(results)))
        results.append(PartitionResult(topic, index, 0, base_offset, append_time_ms, partition.log.log_start_offset))
    if acks == ACKS_NONE:
        # The client expects no answer, so the only way to tell it of an error is to hang up, as Kafka does.
        if any(result.error_code for result in results):
            connection.close()
        return
    flexible = version >= FLEXIBLE_FROM
    if not waits:
        connection.reply_now(correlation_id, flexible, encode_produce_response(results, version))
        return
    exchange = connection.begin(correlation_id, flexible_header=flexible, is_produce=True)
    deadline = node.runtime.monotonic() + request.timeout_ms / 1000
    wait = ProduceWait(exchange, results, version, deadline)
    for partition, commits_at, position in waits:
        wait.wait_for(partition, commits_at, position)
    pending = node.produce_waits
    while pending and pending[0].done:
        pending.popleft()
    pending.append(wait)


def _refusal(acks: int, transactional_id: str | None) -> int:
    """The code that the whole request is refused with, or 0."""
    if acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE
    return 0


def _why_not(node: Node, topic: str | bytes, index: int, no_records: bool) -> int:
    partitions = node.topics.get(topic)
    if partitions is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if isinstance(topic, bytes) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not 0 <= index < len(partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if no_records:
        return ErrorCode.INVALID_RECORD
    return ErrorCode.KAFKA_STORAGE_ERROR


class PartitionWait:
    """One partition of a Produce that waits."""

    __slots__ = ("position", "wait")

    def __init__(self, wait: ProduceWait, position: int) -> None:
        self.wait = wait
        self.position = position

    def on_commit(self, error_code: int) -> None:
        wait = self.wait
        if wait.done:
            return
        if error_code:
            wait.fail(self.position, error_code)
        wait.outstanding.discard(self.position)
        if not wait.outstanding:
            wait.answer()


class ProduceWait:
    __slots__ = ("deadline", "done", "exchange", "outstanding", "results", "version")

    def __init__(self, exchange: Exchange, results: list[PartitionResult], version: int, deadline: float) -> None:
        self.exchange = exchange
        self.results = results
        self.version = version
        self.deadline = deadline
        self.outstanding: set[int] = set()
        self.done = False

    def wait_for(self, partition: Partition, high_watermark: int, position: int) -> None:
        self.outstanding.add(position)
        partition.when_committed(high_watermark, PartitionWait(self, position))

    def fail(self, position: int, code: int) -> None:
        result = self.results[position]
        self.results[position] = PartitionResult(result.topic, result.partition, code, -1, -1, -1)

    def expire(self) -> None:
        """The client's patience is over. The records may still be committed; it cannot know, and is told so."""
        for position in self.outstanding:
            self.fail(position, ErrorCode.REQUEST_TIMED_OUT)
        self.answer()

    def answer(self) -> None:
        self.done = True
        self.exchange.reply(encode_produce_response(self.results, self.version))
