"""Sealed batches to the leaders of their partitions, each until it is acknowledged.

At most one request is on its way to a broker, with the next batch of every partition that it leads, so batches of a
partition are stored in the order of their sequences. A batch that was not acknowledged is sent again as it is: the
leader of then knows its sequence, and stores it once. Meanwhile the task encodes its next rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from strandline.client.failures import TopicMissing
from strandline.codec.columns import decode_batch, encode_batch
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.codec.messages.produce_response import PartitionProduceResponse, ProduceResponse
from strandline.codec.record_batch import sequence_after
from strandline.errors import Disconnected, ErrorCode, TimedOut, named
from strandline.ids import TopicPartition
from strandline.spark.sink.cluster import ADDING_PRODUCE_VERSION, SinkCluster
from strandline.spark.sink.failures import SinkFailed, SinkRefused, TransactionLost
from strandline.spark.sink.open_batches import Place

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Batches in one request, beyond the first."""
QUEUED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one task; then it waits for answers before it encodes more."""
PAUSE_S: Final = 0.05
"""Before a batch is sent again that a broker could not take."""

_PASSING: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # The bytes were damaged on their way: they are sent again.
        ErrorCode.CORRUPT_MESSAGE,
    )
)
_LOST: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A batch with its sequence: from now on not a byte of it changes."""

    place: Place
    content: bytes
    deadline_s: float


class Sender:
    """The batches of one transaction."""

    def __init__(self, cluster: SinkCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._queues: dict[Place, deque[Sealed]] = {}
        self._queued_bytes = 0
        self._in_flight: dict[tuple[str, int], list[Place]] = {}
        """By the broker's address, the oldest request first; the batches are the first of their queues."""
        self._not_before_s: dict[Place, float] = {}
        self._heard = "no answer yet"

    def put(self, batches: Iterable[Sealed]) -> None:
        for batch in batches:
            self._queues.setdefault(batch.place, deque()).append(batch)
            self._queued_bytes += len(batch.content)
        self._take_answers_that_came()
        self._send_ready()
        while self._queued_bytes > QUEUED_BYTES_MAX:
            self._step()

    def flush(self) -> None:
        """Return when every batch is acknowledged."""
        while self._queues:
            self._step()

    def _step(self) -> None:
        self._send_ready()
        if self._in_flight:
            self._take_answer(next(iter(self._in_flight)))
        elif self._not_before_s:
            time.sleep(max(0.0, min(self._not_before_s.values()) - time.monotonic()))

    def _take_answers_that_came(self) -> None:
        for address in list(self._in_flight):
            if self._cluster.produce_connection_in_use(address).has_answer:
                self._take_answer(address)

    def _send_ready(self) -> None:
        now_s = time.monotonic()
        requests: dict[tuple[str, int], list[Place]] = {}
        sizes: dict[tuple[str, int], int] = {}
        busy = {place for places in self._in_flight.values() for place in places}
        for place in list(self._queues):
            if place in busy or self._not_before_s.get(place, 0.0) > now_s:
                continue
            self._not_before_s.pop(place, None)
            address = self._leader_address(place)
            if address is None or address in self._in_flight:
                continue
            size = len(self._queues[place][0].content)
            if address in requests and sizes[address] + size > REQUEST_BYTES_MAX:
                continue
            requests.setdefault(address, []).append(place)
            sizes[address] = sizes.get(address, 0) + size
        for address, places in requests.items():
            self._send(address, places)

    def _leader_address(self, place: Place) -> tuple[str, int] | None:
        client = self._cluster.client
        try:
            return client.address_of(client.leader_of(TopicPartition(*place))[0])
        except (Disconnected, TimedOut, TopicMissing) as error:
            # A broker that has just started may not know of a topic yet.
            self._try_again(place, str(error))
            return None

    def _send(self, address: tuple[str, int], places: list[Place]) -> None:
        topics: dict[str, TopicProduceData] = {}
        for topic, partition in places:
            content = self._queues[(topic, partition)][0].content
            each = PartitionProduceData(index=partition, records=content)
            topics.setdefault(topic, TopicProduceData(name=topic)).partition_data.append(each)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._cluster.options.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        # A version that adds partitions to the transaction would be refused where transactions have no epochs of
        # their own, and a lower one would leave the adding to us.
        version_max = ADDING_PRODUCE_VERSION if self._cluster.raises_epochs else ADDING_PRODUCE_VERSION - 1
        try:
            connection = self._cluster.produce_connection(address)
            connection.send(request, connection.version_for(ProduceRequest, version_max=version_max))
        except (Disconnected, TimedOut) as error:
            self._lost(address, places, str(error))
            return
        self._in_flight[address] = places

    def _take_answer(self, address: tuple[str, int]) -> None:
        places = self._in_flight.pop(address)
        try:
            # The broker may wait for its replicas for as long as it was told to, so it has a little longer to answer.
            answer = self._cluster.produce_connection_in_use(address).receive_message(ProduceResponse, wait_s=5.0)
        except (Disconnected, TimedOut) as error:
            self._lost(address, places, str(error))
            return
        told = {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}
        for place in places:
            result = told.get(place)
            if result is None:
                self._try_again(place, "the answer leaves it out")
            else:
                self._on_result(place, result)

    def _on_result(self, place: Place, result: PartitionProduceResponse) -> None:
        code = named(result.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(place)
        elif code in _PASSING:
            self._try_again(place, code.name)
        elif code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            self._split(place)
        elif code in _LOST:
            raise TransactionLost(
                f"The transaction of this task ended while it wrote to {place[0]} ({code.name}): it took longer than "
                f"transactionTimeoutMs ({self._cluster.options.transaction_timeout_ms}), or the same query runs twice; "
                "raise transactionTimeoutMs, or make batches smaller."
            )
        else:
            raise _refusal(place, code, result)

    def _acknowledged(self, place: Place) -> None:
        queue = self._queues[place]
        self._queued_bytes -= len(queue.popleft().content)
        if not queue:
            del self._queues[place]

    def _lost(self, address: tuple[str, int], places: list[Place], heard: str) -> None:
        self._cluster.drop_produce_connection(address)
        for place in places:
            self._try_again(place, heard)

    def _try_again(self, place: Place, heard: str) -> None:
        self._cluster.client.forget(place[0])
        now_s = time.monotonic()
        if now_s > self._queues[place][0].deadline_s:
            raise SinkFailed(
                f"{place[0]}-{place[1]} took no records for {self._cluster.options.delivery_timeout_ms // 1000} s, at "
                f"last: {heard}. Look at `strandline cluster health`, then start the query again: nothing is lost."
            )
        self._not_before_s[place] = now_s + PAUSE_S

    def _split(self, place: Place) -> None:
        """The topic takes smaller batches than we make: the same records with the same sequences in two."""
        queue = self._queues[place]
        whole = queue[0]
        columns = decode_batch(whole.content)
        records = list(columns.records())
        if len(records) == 1:
            raise SinkRefused(
                f"A record of {len(whole.content):,} bytes is larger than topic {place[0]} takes: "
                "raise its max.message.bytes."
            )
        header = columns.header
        half = len(records) // 2
        parts = [
            encode_batch(
                part,
                compression=header.attributes & 7,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=sequence_after(header.base_sequence, first),
                transactional=True,
            )
            for part, first in ((records[:half], 0), (records[half:], half))
        ]
        queue.popleft()
        queue.extendleft(replace(whole, content=part) for part in reversed(parts))
        self._queued_bytes += sum(map(len, parts)) - len(whole.content)


def _refusal(place: Place, code: ErrorCode, result: PartitionProduceResponse) -> SinkFailed:
    words = result.error_message or next(
        (each.batch_index_error_message for each in result.record_errors if each.batch_index_error_message), None
    )
    said = f"{code.name}: {words}" if words else code.name
    if code == ErrorCode.INVALID_RECORD:
        return SinkRefused(
            f"Topic {place[0]} refuses a record ({said}): if it is compacted, every row needs a key that is not null."
        )
    if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
        return SinkFailed(
            f"{place[0]}-{place[1]} lost records of this transaction ({said}), as after an unclean election: "
            "start the query again, the batch is written again."
        )
    return SinkRefused(f"{place[0]}-{place[1]} refuses the records: {said}.")
