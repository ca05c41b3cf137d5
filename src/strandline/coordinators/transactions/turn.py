"""What a shard knows, and one step of it: the time it happens at, the settings, and the effects gathered so far."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.coordinators.events import Append, AppendWhole, Record, Reply, StartTimer, Tell, Token
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
from strandline.coordinators.transactions.transaction import Transaction
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_records import transaction_record
from strandline.ids import TopicPartition


@dataclass(slots=True)
class Awaited:
    """The markers of one decision that are not written yet."""

    decision: int
    partitions: dict[TopicPartition, None]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A transaction that was open for too long; its abort waits for a producer id, and by then it may be over."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Postponed = InitProducerId | EndTransaction | TimedOut
"""What is begun again when there is a producer id for it."""


class Transactions:
    """The transactional ids of a shard. Only `by_id` is in the log; the rest is made anew by another coordinator."""

    __slots__ = (
        "awaited",
        "by_id",
        "clients",
        "decisions",
        "parked",
        "parked_count",
        "postponed",
        "spare_producer_ids",
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
        """Asked for, and then not needed by whoever had asked."""
        self.clients: dict[str, tuple[str, str]] = {}
        """Client id and host of whoever last began with the transactional id."""


class Turn:
    __slots__ = ("config", "coordinator_epoch", "effects", "known", "now_ms")

    def __init__(self, now_ms: int, known: Transactions, config: TransactionConfig, coordinator_epoch: int) -> None:
        self.now_ms = now_ms
        self.known = known
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.effects: list[Effect] = []

    def record_of(self, transaction: Transaction) -> Record:
        return transaction_record(transaction, transaction_version=self.config.transaction_version)

    def put(self, *transactions: Transaction) -> None:
        """This is what the transactions are from now on: all of it in one batch, so all of it or nothing."""
        records = tuple(self.record_of(transaction) for transaction in transactions)
        self.effects.append(Append(records) if len(records) == 1 else AppendWhole(records))
        for transaction in transactions:
            self.known.by_id[transaction.transactional_id] = transaction

    def maybe_put(self, transaction: Transaction) -> bool:
        """The same for a transaction that grows, unless it is too large for a record; then nothing happens."""
        record = self.record_of(transaction)
        if record.size_bytes > self.config.record_bytes_max:
            return False
        self.append(record)
        self.known.by_id[transaction.transactional_id] = transaction
        return True

    def append(self, *records: Record) -> None:
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
        """Whether so many producer ids are not to be had now; the work is begun again when there is one more."""
        if len(self.known.spare_producer_ids) >= count:
            return False
        token = object()
        self.known.postponed[token] = work
        self.effects.append(AllocateProducerId(token))
        return True

    def take_producer_id(self) -> int:
        return self.known.spare_producer_ids.pop()
