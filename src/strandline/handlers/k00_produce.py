"""Produce, versions 3 to 13.

Honoured: acks 0, 1 and all with `flush.mode` and `min.insync.replicas`, idempotent sequences, topics by name or id
(13), the request's timeout, who leads instead (10), transactions, to which partitions are added by writing to them
(12). With acks=1 the leader's own copy decides, flushed if `flush.mode` says so; with acks=all the high watermark.

A waiting Produce holds no bytes: its batches are in the log, only the results wait. The exceptions are a large batch
that must be opened first (`partition/reencoding`) with what follows it for the same partition, a request of more than
500 batches, and a batch that begins a transaction on its partition: they are copied, and `OpeningProduce` works them
off. Bad records refuse their batch with INVALID_RECORD, and the response names them (8+).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from strandline.codec.current_leader import NO_TAGS
from strandline.codec.produce import (
    FLEXIBLE_FROM,
    PartitionRecords,
    PartitionResult,
    ProduceRequest,
    RecordErrors,
    encode_produce_response,
    parse_produce,
    with_throttle_time,
)
from strandline.codec.record_batch import HEADER_SIZE, Buffer, check_batch
from strandline.errors import ErrorCode, InvalidRecords, NotLeader, RequestError, StrandlineError, error_code
from strandline.handlers.access.data_access import writable
from strandline.handlers.support.absent_partitions import ASK_ANOTHER, current_leader, leaders_section, why_absent
from strandline.handlers.support.context import BrokerServices, Connection, Exchange
from strandline.handlers.support.transactional_produce import TransactionalProduce, Verdicts, are_open
from strandline.partition.partition import Partition
from strandline.partition.reencoding import OpensLater
from strandline.partition.verification import ONGOING, VerificationGuard
from strandline.runtime.time_slicing import gradually

API_KEY: Final = 0
VERSIONS: Final = (3, 13)
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
_ACKS: Final = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)

PARTITIONS_PER_TURN_MAX: Final = 500
"""Partitions that are appended to in one turn of the loop; a longer request is copied and appended in parts."""

ToOpen = dict[Partition, list[tuple[memoryview, int]]]
"""Batches that must be opened before they are appended, in their order: records and place among the results."""

log = logging.getLogger("strandline.broker")


def start(
    node: BrokerServices, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
) -> None:
    request = parse_produce(view, at, version)
    acks = request.acks
    flexible = version >= FLEXIBLE_FROM
    quota = connection.quota
    throttle_ms = 0 if quota is None else quota.charge_produce(connection, len(view), acks)
    results: list[PartitionResult] = []
    waits: list[tuple[Partition, int, int]] = []
    transaction: TransactionalProduce | None = None
    guard: VerificationGuard | None = None
    asks = False
    if node.authorizer is not None:
        allowed = writable(node, connection, request, results)
        if allowed is not request.partitions:
            request = request._replace(partitions=allowed)
    if request.transactional_id is not None:
        if are_open(node, request.partitions):
            guard = ONGOING
        else:
            transaction = TransactionalProduce(request.transactional_id, version)
            asks = transaction.look_at(node, request.partitions)
    if asks or len(request.partitions) > PARTITIONS_PER_TURN_MAX:
        exchange = connection.begin(correlation_id, flexible_header=flexible)
        opening = OpeningProduce(node, connection, exchange, request, version, results, waits, transaction, guard)
        opening.throttle_ms = throttle_ms
        opening.begin_long(request, asks=asks)
        return
    verdicts = None if transaction is None else transaction.verdicts
    to_open: ToOpen = {}
    _append_all(node, request, request.partitions, results, waits, verdicts, guard, to_open)
    if to_open:
        exchange = connection.begin(correlation_id, flexible_header=flexible)
        opening = OpeningProduce(node, connection, exchange, request, version, results, waits, transaction, guard)
        opening.throttle_ms = throttle_ms
        opening.begin(to_open)
        return
    if acks == ACKS_NONE:
        # The client expects no answer, so the only way to tell it of an error is to hang up, as Kafka does.
        if any(result.error_code for result in results):
            connection.close()
        else:
            connection.leave_unanswered()
        return
    if not waits:
        connection.reply_now(correlation_id, flexible, _encode(node, results, version, throttle_ms, connection))
        return
    exchange = connection.begin(correlation_id, flexible_header=flexible, is_produce=True)
    _wait(node, exchange, request, version, results, waits, throttle_ms)


def _append_all(
    node: BrokerServices,
    request: ProduceRequest,
    asked: Sequence[PartitionRecords],
    results: list[PartitionResult],
    waits: list[tuple[Partition, int, int]],
    verdicts: Verdicts | None,
    guard: VerificationGuard | None,
    to_open: ToOpen,
) -> None:
    """Append some partitions of a request; what must be opened first is put into `to_open` instead, with its place.

    `verdicts` are there if batches of its transaction have one each, else `guard` is for all of them.
    """
    acks = request.acks
    now_ms = node.runtime.now_ms()
    refusal = 0 if acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS
    topics = node.topics
    for topic, index, records in asked:
        partitions = topics.get(topic)
        partition = partitions[index] if partitions is not None and 0 <= index < len(partitions) else None
        if refusal or partition is None or records is None or not partition.is_leader:
            code = (refusal if partition is not None else 0) or _why_not(node, topic, index, partition)
            if partition is not None and records is not None:
                partition.note_refused(records, now_ms, code)
            results.append(_refused(node, topic, index, code))
            continue
        try:
            if partition.is_internal:
                # What a client wrote there would be read as ours: a coordinator's state, or damage to it.
                node.count_error(API_KEY, ErrorCode.INVALID_TOPIC_EXCEPTION)
                results.append(PartitionResult(topic, index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1, -1))
                continue
            if acks == ACKS_ALL and partition.is_under_min_in_sync:
                partition.note_refused(records, now_ms, ErrorCode.NOT_ENOUGH_REPLICAS)
                node.count_error(API_KEY, ErrorCode.NOT_ENOUGH_REPLICAS)
                results.append(PartitionResult(topic, index, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, -1))
                continue
            if to_open and partition in to_open:
                # A request may name a partition twice: the second batch must not overtake the first.
                check_batch(records)
                raise OpensLater
            if verdicts is None:
                base_offset, commits_at, append_time_ms = partition.append(records, now_ms, guard=guard)
            else:
                base_offset, commits_at, append_time_ms = _append_verified(
                    partition, records, now_ms, verdicts.get((topic, index))
                )
        except StrandlineError as error:
            partition.note_refused(records, now_ms, error_code(error))
            results.append(_refused(node, topic, index, error_code(error), str(error), _record_errors(error)))
            continue
        except OpensLater:
            to_open.setdefault(partition, []).append((records, len(results)))
            results.append(PartitionResult(topic, index, 0, -1, -1, -1))
            continue
        if acks == ACKS_ALL:
            if partition.high_watermark < commits_at:
                waits.append((partition, commits_at, len(results)))
        elif partition.flush_before_ack and partition.log.flushed_offset < commits_at:
            waits.append((partition, commits_at, len(results)))
        results.append(PartitionResult(topic, index, 0, base_offset, append_time_ms, partition.log_start_offset))


def _wait(
    node: BrokerServices,
    exchange: Exchange,
    request: ProduceRequest,
    version: int,
    results: list[PartitionResult],
    waits: list[tuple[Partition, int, int]],
    throttle_ms: int,
) -> None:
    wait = ProduceWait(node, exchange, results, version, node.runtime.monotonic() + request.timeout_ms / 1000)
    wait.throttle_ms = throttle_ms
    for partition, commits_at, position in waits:
        wait.outstanding.add(position)
        if request.acks == ACKS_ALL:
            partition.when_committed(commits_at, PartitionWait(wait, position))
        else:
            partition.when_flushed(commits_at, PartitionWait(wait, position))
    pending = node.produce_waits
    while pending and pending[0].done:
        pending.popleft()
    pending.append(wait)


def _append_verified(
    partition: Partition,
    batch: memoryview,
    now_ms: int,
    verdict: VerificationGuard | StrandlineError | None,
    *,
    is_opened: bool = False,
) -> tuple[int, int, int]:
    """Append a batch of a request that names a transaction."""
    if isinstance(verdict, StrandlineError):
        raise verdict
    return partition.append(batch, now_ms, is_opened=is_opened, guard=verdict)


def _why_not(node: BrokerServices, topic: str | bytes, index: int, partition: Partition | None) -> int:
    """Return why nothing is appended: there are no records, or this node does not lead the partition."""
    if partition is not None and partition.is_leader:
        return ErrorCode.INVALID_RECORD
    return why_absent(node, topic, index)


def _refused(
    node: BrokerServices,
    topic: str | bytes,
    index: int,
    code: int,
    message: str | None = None,
    record_errors: RecordErrors = (),
) -> PartitionResult:
    node.count_error(API_KEY, code)
    leader = current_leader(node, topic, index) if code in ASK_ANOTHER else None
    return PartitionResult(topic, index, code, -1, -1, -1, message, leader, record_errors)


def _record_errors(error: BaseException) -> RecordErrors:
    """Return the records that an error names: a client fails only these, and may send the others again."""
    return error.record_errors if isinstance(error, InvalidRecords) else ()


def _encode(
    node: BrokerServices, results: list[PartitionResult], version: int, throttle_ms: int, connection: Connection
) -> bytes:
    leaders = [result.leader[0] for result in results if result.leader is not None]
    endpoints = leaders_section(node, leaders, connection.listener_name) if leaders else NO_TAGS
    body = encode_produce_response(results, version, endpoints=endpoints)
    return with_throttle_time(body, version, throttle_ms, endpoints) if throttle_ms else body


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
    __slots__ = ("deadline", "done", "exchange", "node", "outstanding", "results", "throttle_ms", "version")

    def __init__(
        self, node: BrokerServices, exchange: Exchange, results: list[PartitionResult], version: int, deadline: float
    ) -> None:
        self.node = node
        self.exchange = exchange
        self.results = results
        self.version = version
        self.deadline = deadline
        self.throttle_ms = 0
        self.outstanding: set[int] = set()
        self.done = False

    def fail(self, position: int, code: int) -> None:
        result = self.results[position]
        self.results[position] = _refused(self.node, result.topic, result.partition, code)

    def expire(self) -> None:
        """Answer REQUEST_TIMED_OUT; the records may still be committed."""
        for position in self.outstanding:
            self.fail(position, ErrorCode.REQUEST_TIMED_OUT)
        self.answer()

    def answer(self) -> None:
        self.done = True
        self.exchange.reply(_encode(self.node, self.results, self.version, self.throttle_ms, self.exchange.connection))


class OpeningProduce:
    """A Produce that waits before it is appended: for batches that are opened off the loop, for the coordinator of its
    transaction, or, with very many batches, for its turns.

    No later request of its connection is started meanwhile: what a producer sends next must not overtake it. A client
    that hangs up changes nothing, as with every Produce that was received whole.
    """

    __slots__ = (
        "_connection",
        "_exchange",
        "_guard",
        "_left",
        "_node",
        "_request",
        "_results",
        "_transaction",
        "_version",
        "_waits",
        "throttle_ms",
    )

    def __init__(
        self,
        node: BrokerServices,
        connection: Connection,
        exchange: Exchange,
        request: ProduceRequest,
        version: int,
        results: list[PartitionResult],
        waits: list[tuple[Partition, int, int]],
        transaction: TransactionalProduce | None,
        guard: VerificationGuard | None,
    ) -> None:
        self._node = node
        self._connection = connection
        self._transaction = transaction
        self._guard = guard
        self._exchange = exchange
        self._request = ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, [])
        """Without its records: they are views of a buffer that others will use."""
        self._version = version
        self._results = results
        self._waits = waits
        self._left = 0
        self.throttle_ms = 0

    def begin_long(self, request: ProduceRequest, *, asks: bool) -> None:
        """Ask the coordinator if need be, append a share of the partitions in each turn, then go on with those that
        must be opened."""
        # Copied, because the buffer is for others as soon as we return.
        asked = [
            (topic, index, None if records is None else memoryview(bytearray(records)))
            for topic, index, records in request.partitions
        ]
        if asks:
            assert self._transaction is not None
            self._transaction.ask(self._node, partial(self._append_long, asked))
        else:
            self._append_long(asked)

    @property
    def _verdicts(self) -> Verdicts | None:
        return None if self._transaction is None else self._transaction.verdicts

    def _append_long(self, asked: list[PartitionRecords]) -> None:
        to_open: ToOpen = {}

        def shares() -> Iterator[None]:
            for at in range(0, len(asked), PARTITIONS_PER_TURN_MAX):
                some = asked[at : at + PARTITIONS_PER_TURN_MAX]
                _append_all(
                    self._node, self._request, some, self._results, self._waits, self._verdicts, self._guard, to_open
                )
                yield

        gradually(self._node.runtime, shares(), lambda _: self.begin(to_open))

    def begin(self, to_open: ToOpen) -> None:
        for partition, batches in to_open.items():
            for records, position in batches:
                batch = bytearray(records)
                done = partial(self._on_opened, partition, position, bytes(batch[:HEADER_SIZE]))
                try:
                    self._node.reencoder.open(batch, partition.config, done, partition.validation)
                except StrandlineError as error:
                    self._fail(partition, position, batch, error)
                else:
                    self._left += 1
        if not self._left:
            self._finish()

    def _on_opened(
        self,
        partition: Partition,
        position: int,
        header: bytes,
        batch: bytearray | None,
        error: BaseException | None,
    ) -> None:
        if batch is None:
            assert error is not None
            self._fail(partition, position, header, error)
        elif self._node.partition(partition.topic, partition.index) is not partition:
            gone = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
            self._fail(partition, position, header, gone)
        elif not partition.is_leader:
            self._fail(partition, position, header, NotLeader("another leads since"))
        else:
            self._append(partition, position, batch)
        self._left -= 1
        if not self._left:
            self._finish()

    def _append(self, partition: Partition, position: int, batch: bytearray) -> None:
        try:
            result, verdicts = self._results[position], self._verdicts
            verdict = self._guard if verdicts is None else verdicts.get((result.topic, result.partition))
            base_offset, commits_at, append_time_ms = _append_verified(
                partition, memoryview(batch), self._node.runtime.now_ms(), verdict, is_opened=True
            )
        except StrandlineError as error:
            self._fail(partition, position, batch, error)
            return
        self._waits.append((partition, commits_at, position))
        self._results[position] = self._results[position]._replace(
            base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=partition.log_start_offset
        )

    def _fail(self, partition: Partition, position: int, batch: Buffer, error: BaseException) -> None:
        # Only what passed `check_batch` is opened; often its header alone is left.
        partition.note_refused(batch, self._node.runtime.now_ms(), error_code(error), is_checked=True)
        if not isinstance(error, StrandlineError):
            log.error("a batch could not be opened", exc_info=error)
        self._exchange.count_error(error_code(error))
        self._results[position] = self._results[position]._replace(
            error_code=error_code(error), message=str(error), record_errors=_record_errors(error)
        )

    def _finish(self) -> None:
        exchange, results = self._exchange, self._results
        # What waits for its commit from here on is in the log, in its order: the next requests may go.
        exchange.is_produce = True
        if self._request.acks == ACKS_ALL:
            waits = [wait for wait in self._waits if wait[0].high_watermark < wait[1]]
        else:
            waits = [wait for wait in self._waits if wait[0].flush_before_ack and wait[0].log.flushed_offset < wait[1]]
        if self._request.acks == ACKS_NONE:
            if any(result.error_code for result in results):
                self._connection.close()
                return
            exchange.reply_nothing()
        elif waits:
            _wait(self._node, exchange, self._request, self._version, results, waits, self.throttle_ms)
        else:
            exchange.reply(_encode(self._node, results, self._version, self.throttle_ms, exchange.connection))
        self._connection.go_on()
