"""A shard of transactions on a table: producers act, timers run on a clock of the story, markers wait to be written.

The story keeps every record that was appended, so it can restart the shard from them at any point.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.coordinators.groups.events import Append, Loaded, Reply, StartTimer, Tell, TimerFired
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.transactions.events import (
    AddPartitions,
    AllocateProducerId,
    CommitBatch,
    DeleteSink,
    DescribeTransaction,
    EndTransaction,
    Event,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdAllocated,
    SendMarkers,
    TransactionTimer,
)
from strandline.coordinators.transactions.sinks import ANY_BATCH
from strandline.coordinators.transactions.transaction import Transaction
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_records import (
    decode_transaction,
    key_of,
    transaction_record,
)
from strandline.coordinators.transactions.transaction_shard import TransactionShard
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

TIMEOUT_MS = 60_000
P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


class Token:
    """One request; `response` is None until it is answered."""

    def __init__(self) -> None:
        self.response: Any = None


class Story:
    def __init__(self, **settings: int) -> None:
        self.config = TransactionConfig(**settings)
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.appends: list[tuple[CoordinatorRecord, ...]] = []
        self.markers: list[SendMarkers] = []
        """Asked for and not written yet."""
        self.told: list[str] = []
        self.allocations: list[AllocateProducerId] = []
        self.gives_ids = True
        self.next_producer_id = 100
        self.epoch = 0
        self.timers: dict[TransactionTimer, int] = {}
        self.restart()

    def restart(self) -> None:
        """Another coordinator takes over: it knows the log, and nothing else."""
        self.epoch += 1
        self.markers, self.allocations, self.timers = [], [], {}
        self.shard = TransactionShard(self.config, coordinator_epoch=self.epoch)
        self.shard.load(self.log)
        self.step(Loaded())

    # ---- the driver

    def step(self, event: Event) -> None:
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append(records=records):
                    assert records
                    self.appends.append(records)
                    self.log.extend(records)
                case Reply(token=token, response=response):
                    assert isinstance(token, Token)
                    assert token.response is None, "answered twice"
                    token.response = response
                case StartTimer(key=key, delay_ms=delay_ms):
                    assert delay_ms >= 0
                    self.timers[key] = self.now_ms + delay_ms
                case SendMarkers():
                    assert self.decided(effect).is_prepared, "a marker before its decision is in the log"
                    self.markers.append(effect)
                case AllocateProducerId():
                    self.allocations.append(effect)
                case Tell(sentence=sentence):
                    self.told.append(sentence)
        while self.gives_ids and self.allocations:
            self.give_id()

    def step_record(self, transaction: Transaction) -> None:
        """Put a record into the log, from any writer; the next coordinator loads it."""
        self.log.append(transaction_record(transaction, transaction_version=self.config.transaction_version))

    def decided(self, markers: SendMarkers) -> Transaction:
        """What the log says of the transaction."""
        key = key_of(markers.transactional_id)
        _, last = decode_transaction(*next(record for record in reversed(self.log) if record.key == key))
        assert last is not None
        assert (last.producer_id, last.producer_epoch) == (markers.producer_id, markers.producer_epoch)
        return last

    def give_id(self, error: ErrorCode = ErrorCode.NONE) -> None:
        allocation = self.allocations.pop(0)
        self.next_producer_id += 1
        self.step(ProducerIdAllocated(allocation.token, -1 if error else self.next_producer_id, error))

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end_ms]:
            at, key = min(due)
            del self.timers[key]
            self.now_ms = max(self.now_ms, at)
            self.step(TimerFired(key))
        self.now_ms = end_ms

    def write_markers(self, count: int | None = None) -> None:
        """Markers that were asked for reach their partitions; with a count, only that many partitions of the first."""
        if count is not None:
            markers = self.markers[0]
            self.written(markers, markers.partitions[:count])
            return
        asked, self.markers = self.markers, []
        for markers in asked:
            self.written(markers, markers.partitions)

    def written(self, markers: SendMarkers, partitions: tuple[TopicPartition, ...]) -> None:
        self.step(
            MarkersWritten(
                markers.transactional_id, markers.producer_id, markers.producer_epoch, partitions, markers.decision
            )
        )

    # ---- producers

    def init_token(
        self, name: str = "x", *, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS
    ) -> Token:
        token = Token()
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        self.step(InitProducerId(token, request, client_id="client", client_host="host"))
        return token

    def init(
        self, name: str = "x", *, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS
    ) -> tuple[int, int] | ErrorCode:
        response = self.init_token(name, producer=producer, timeout_ms=timeout_ms).response
        return said(response)

    def owner(self, name: str = "x") -> tuple[int, int]:
        producer = self.init(name)
        assert isinstance(producer, tuple)
        return producer

    def add_token(
        self, producer: tuple[int, int], *partitions: TopicPartition, name: str = "x", verify_only: bool = False
    ) -> Token:
        token = Token()
        self.step(AddPartitions(token, name, *producer, partitions or (P0,), verify_only))
        return token

    def add(
        self, producer: tuple[int, int], *partitions: TopicPartition, name: str = "x", verify_only: bool = False
    ) -> ErrorCode | None:
        """The one code that all partitions got, None if it waits."""
        codes = self.add_token(producer, *partitions, name=name, verify_only=verify_only).response
        return None if codes is None else only(codes)

    def end_token(self, producer: tuple[int, int], *, commit: bool = True, name: str = "x", version: int = 2) -> Token:
        token = Token()
        self.step(EndTransaction(token, name, *producer, commit, version))
        return token

    def end(
        self, producer: tuple[int, int], *, commit: bool = True, name: str = "x", version: int = 2
    ) -> tuple[int, int] | ErrorCode:
        return said(self.end_token(producer, commit=commit, name=name, version=version).response)

    def commit_batch(
        self,
        batch_id: int,
        members: dict[str, tuple[int, int]] | list[SinkTransaction],
        *,
        sink: str = "s",
        note: bytes = b"",
        expected: int = ANY_BATCH,
    ) -> Any:
        """The answer to a driver that names these producers, by transactional id."""
        listed = (
            [SinkTransaction(name, *producer) for name, producer in members.items()]
            if isinstance(members, dict)
            else members
        )
        token = Token()
        request = CommitBatchRequest(
            sink_id=sink, batch_id=batch_id, transactions=listed, note=note, expected_last_batch_id=expected
        )
        self.step(CommitBatch(token, request))
        return token.response

    def delete_sink(self, sink: str = "s") -> Any:
        token = Token()
        self.step(DeleteSink(token, sink))
        return token.response

    def describe(self, name: str = "x") -> Any:
        token = Token()
        self.step(DescribeTransaction(token, name))
        return token.response

    def list(self, **filters: Any) -> Any:
        token = Token()
        self.step(ListTransactions(token, tuple(self.shard.transactions), **filters))
        return token.response

    # ---- what became of it

    def transaction(self, name: str = "x") -> Transaction:
        return self.shard.transactions[name]

    def state(self, name: str = "x") -> str:
        return self.transaction(name).status.title


def said(response: InitProducerIdResponse | EndTxnResponse | None) -> tuple[int, int] | ErrorCode:
    """Id and epoch to go on with, or why not."""
    assert response is not None, "it is not answered yet"
    if response.error_code:
        return ErrorCode(response.error_code)
    return response.producer_id, response.producer_epoch


def only(codes: dict[TopicPartition, ErrorCode]) -> ErrorCode:
    (code,) = set(codes.values())
    return code
