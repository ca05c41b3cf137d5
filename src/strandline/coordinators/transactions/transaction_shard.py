"""All transactional ids and sinks that live in one partition of `__transaction_state`, behind one door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from strandline.codec.internal_records import UnknownRecord
from strandline.coordinators.groups.events import Loaded, TimerFired
from strandline.coordinators.transactions import adding, batches, ending, init_producer_id, listing, timeouts
from strandline.coordinators.transactions.events import (
    AddPartitions,
    CommitBatch,
    DeleteSink,
    DescribeTransaction,
    Effect,
    EndTransaction,
    Event,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdAllocated,
    TransactionTimer,
    TransactionTimerKind,
)
from strandline.coordinators.transactions.sink_records import decode_decision, is_of_sink
from strandline.coordinators.transactions.sinks import BatchedSink
from strandline.coordinators.transactions.step_context import (
    OverdueTransaction,
    Postponed,
    Transactions,
    TransactionStepContext,
)
from strandline.coordinators.transactions.transaction import Transaction
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_records import decode_transaction
from strandline.errors import ErrorCode


class TransactionShard:
    """The state machine. `load` the partition's records, say `Loaded()`, then `step` for every event.

    The state is that of the log plus what was asked to be appended. If an append fails, the shard knows more than the
    log: the driver throws it away and loads another. Markers carry `coordinator_epoch`, the leader epoch of the
    partition: a leader that begins a new epoch loads a new shard.
    """

    def __init__(self, config: TransactionConfig, *, coordinator_epoch: int) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self._known = Transactions()
        self._resuming = timeouts.Resuming()
        self._expiry = timeouts.TransactionalIdExpiry()

    @property
    def transactions(self) -> dict[str, Transaction]:
        """By transactional id; to look at."""
        return self._known.by_id

    @property
    def sinks(self) -> dict[str, BatchedSink]:
        """By sink id; to look at."""
        return self._known.sinks

    def client_of(self, transactional_id: str) -> tuple[str, str] | None:
        """Return client id and host of the producer that last initialized the id with this coordinator."""
        return self._known.clients.get(transactional_id)

    def load(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Fold records into the state, in the order of the log; may be called again and again with the next ones."""
        for key, value in records:
            try:
                if is_of_sink(key):
                    self._load_decision(key, value)
                else:
                    self._load_transaction(key, value)
            except UnknownRecord:
                # Written by a newer broker. It stays in the log for the one that knows it.
                continue

    def _load_transaction(self, key: bytes, value: bytes | None) -> None:
        transactional_id, transaction = decode_transaction(key, value)
        # Its own word of what was decided, or of what came later.
        self._known.unrolled.pop(transactional_id, None)
        if transaction is None:
            self._known.forget(transactional_id)
        else:
            self._known.keep(transaction)

    def _load_decision(self, key: bytes, value: bytes | None) -> None:
        sink_id, decision = decode_decision(key, value)
        if decision is None:
            batches.forget_decision(sink_id, self._known)
        else:
            batches.apply(decision, self._known, transaction_version=self.config.transaction_version)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        step = TransactionStepContext(now_ms, self._known, self.config, self.coordinator_epoch)
        match event:
            case AddPartitions():
                adding.add_partitions(event, step)
            case EndTransaction():
                ending.end(event, step)
            case MarkersWritten():
                if ending.markers_written(event, step):
                    batches.on_completed(event.transactional_id, step)
                    adding.on_completed(event.transactional_id, step)
            case InitProducerId():
                init_producer_id.init_producer_id(event, step)
            case CommitBatch():
                batches.commit_batch(event, step)
            case DeleteSink():
                batches.delete_sink(event, step)
            case ProducerIdAllocated():
                self._on_producer_id(event, step)
            case TimerFired(key=key):
                self._on_timer(key, step)
            case DescribeTransaction():
                listing.describe(event, step)
            case ListTransactions():
                listing.list_transactions(event, step)
            case Loaded():
                self._expiry.start(step)
                self._resuming.start(self._known.by_id.values(), step)
                batches.roll(step)
            case _:
                assert_never(event)
        return step.effects

    def _on_timer(self, key: TransactionTimer, step: TransactionStepContext) -> None:
        match key.kind:
            case TransactionTimerKind.TIMEOUT:
                timeouts.on_timeout(key.transactional_id, step)
            case TransactionTimerKind.PARKED:
                adding.on_parked_too_long(key.transactional_id, step)
            case TransactionTimerKind.EXPIRY:
                self._expiry.on_timer(step)
            case TransactionTimerKind.RESUME:
                self._resuming.resume_some(step)
            case TransactionTimerKind.ROLL:
                batches.roll(step)

    def _on_producer_id(self, event: ProducerIdAllocated, step: TransactionStepContext) -> None:
        work = self._known.postponed.pop(event.token, None)
        if work is None:
            return
        if event.error is ErrorCode.NONE:
            self._known.spare_producer_ids.append(event.producer_id)
            begin_again(work, step)
        else:
            give_up(work, event.error, step)


def begin_again(work: Postponed, step: TransactionStepContext) -> None:
    """From the start: while it waited for a producer id, anything may have happened."""
    match work:
        case InitProducerId():
            init_producer_id.init_producer_id(work, step)
        case EndTransaction():
            ending.end(work, step)
        case OverdueTransaction():
            timeouts.on_producer_id(work, step)


def give_up(work: Postponed, code: ErrorCode, step: TransactionStepContext) -> None:
    match work:
        case InitProducerId():
            init_producer_id.refuse(work, code, step)
        case EndTransaction():
            ending.refuse(work, code, step)
        case OverdueTransaction():
            timeouts.on_no_producer_id(work, step)
