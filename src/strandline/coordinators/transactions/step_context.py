"""What a shard knows, and one step of it: the time it happens at, the settings, and the effects gathered so far."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.coordinators.groups.events import Append, AppendWhole, Reply, StartTimer, Tell
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, Token
from strandline.coordinators.transactions.events import (
    AddPartitions,
    AllocateProducerId,
    Effect,
    EndTransaction,
    InitProducerId,
    Response,
    SendMarkers,
    TransactionTimer,
)
from strandline.coordinators.transactions.sinks import BatchedSink
from strandline.coordinators.transactions.transaction import Transaction
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_records import transaction_record
from strandline.ids import TopicPartition, sink_of


@dataclass(slots=True)
class Awaited:
    """The markers of one decision that are not written yet."""

    decision: int
    partitions: dict[TopicPartition, None]


@dataclass(frozen=True, slots=True)
class OverdueTransaction:
    """A transaction that was open for too long; its abort waits for a producer id, and by then it may be over."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Postponed = InitProducerId | EndTransaction | OverdueTransaction
"""What is begun again when there is a producer id for it."""


class Transactions:
    """The transactional ids of a shard, and its sinks.

    Only `by_id` and the last decision of each sink are in the log. Another coordinator starts without the rest.
    """

    __slots__ = (
        "awaited",
        "by_id",
        "clients",
        "decisions",
        "leaving",
        "parked",
        "parked_count",
        "postponed",
        "sinks",
        "spare_producer_ids",
        "unrolled",
    )

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.awaited: dict[str, Awaited] = {}
        """Markers under way, by transactional id."""
        self.decisions = 0
        """How many have been spread; the number of the last one."""
        self.parked: dict[str, list[AddPartitions]] = {}
        """Requests of the next transaction, which come before the markers of the last one are written."""
        self.parked_count = 0
        self.postponed: dict[Token, Postponed] = {}
        self.spare_producer_ids: list[int] = []
        """Allocated, and then not needed."""
        self.clients: dict[str, tuple[str, str]] = {}
        """Client id and host of the producer that last initialized the transactional id."""
        self.sinks: dict[str, BatchedSink] = {}
        """By sink id; also those that have transactional ids and no decision yet."""
        self.unrolled: dict[str, None] = {}
        """Transactional ids whose Prepare state has no record of its own yet. It follows from the record of a sink's
        decision, or is an abort that may as well be forgotten."""
        self.leaving: dict[str, None] = {}
        """Transactional ids of sinks that are deleted; each goes when its transaction is complete."""

    def keep(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self.by_id[transactional_id] = transaction
        if (sink_id := sink_of(transactional_id)) is not None:
            self.sink(sink_id).transactional_ids[transactional_id] = None

    def forget(self, transactional_id: str) -> None:
        self.by_id.pop(transactional_id, None)
        self.clients.pop(transactional_id, None)
        self.leaving.pop(transactional_id, None)
        if (sink_id := sink_of(transactional_id)) is not None:
            self.sink(sink_id).transactional_ids.pop(transactional_id, None)
            self.maybe_forget_sink(sink_id)

    def sink(self, sink_id: str) -> BatchedSink:
        sink = self.sinks.get(sink_id)
        if sink is None:
            sink = self.sinks[sink_id] = BatchedSink(sink_id)
        return sink

    def maybe_forget_sink(self, sink_id: str) -> None:
        """Unless it has a decision, which is never forgotten by itself, or transactional ids."""
        sink = self.sinks.get(sink_id)
        if sink is not None and not sink.is_decided and not sink.transactional_ids:
            del self.sinks[sink_id]


class TransactionStepContext:
    __slots__ = ("config", "coordinator_epoch", "effects", "known", "now_ms")

    def __init__(self, now_ms: int, known: Transactions, config: TransactionConfig, coordinator_epoch: int) -> None:
        self.now_ms = now_ms
        self.known = known
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.effects: list[Effect] = []

    def record_of(self, transaction: Transaction) -> CoordinatorRecord:
        return transaction_record(transaction, transaction_version=self.config.transaction_version)

    def put(self, *transactions: Transaction) -> None:
        """Store the transactions, all in one batch, so that a crash keeps all of them or none."""
        records = tuple(self.record_of(transaction) for transaction in transactions)
        self.effects.append(Append(records) if len(records) == 1 else AppendWhole(records))
        for transaction in transactions:
            self.known.keep(transaction)

    def maybe_put(self, transaction: Transaction) -> bool:
        """The same for a transaction that grows, unless it is too large for a record; then nothing happens."""
        record = self.record_of(transaction)
        if record.size_bytes > self.config.record_bytes_max:
            return False
        self.append(record)
        self.known.keep(transaction)
        return True

    def append(self, *records: CoordinatorRecord) -> None:
        self.effects.append(Append(records))

    def reply(self, token: Token, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def start_timer(self, key: TransactionTimer, delay_ms: int) -> None:
        self.effects.append(StartTimer(key, delay_ms))

    def send_markers(self, transaction: Transaction) -> None:
        self.known.decisions += 1
        self.known.awaited[transaction.transactional_id] = Awaited(self.known.decisions, dict(transaction.partitions))
        self.effects.append(
            SendMarkers(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                self.coordinator_epoch,
                transaction.is_commit,
                tuple(transaction.partitions),
                transaction.transaction_version,
                self.known.decisions,
            )
        )

    def tell(self, sentence: str, facts: dict[str, object]) -> None:
        self.effects.append(Tell(sentence, facts))

    def needs_producer_ids(self, count: int, work: Postponed) -> bool:
        """Return whether so many producer ids are not to be had now; the work is begun again when there is one more."""
        if len(self.known.spare_producer_ids) >= count:
            return False
        token = object()
        self.known.postponed[token] = work
        self.effects.append(AllocateProducerId(token))
        return True

    def take_producer_id(self) -> int:
        return self.known.spare_producer_ids.pop()
