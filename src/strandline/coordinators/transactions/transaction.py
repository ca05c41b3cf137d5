"""One transactional id: which producer has it, and how far its present transaction is. Values; a change is a new one.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing, Empty
                    └───> PrepareAbort ───> CompleteAbort ───> Ongoing, Empty

A Prepare state is the decision: from there only its Complete state can follow, after any number of crashes. Version 2
of transactions (KIP-890) raises the epoch with every decision. So whatever is still on its way to a partition or to us
with the epoch before belongs to a transaction that is over.

Kafka's Dead and PrepareEpochFence are states in which a change is under way and not in the log yet. Here a change is
one step, so nothing is ever in them; they are names that a list of transactions may be filtered by.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from strandline.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NOT_STARTED: Final = -1

EPOCH_LAST: Final = 2**15 - 1
"""The last epoch of a producer id. No client gets it, so that there always is one more to fence a producer with."""


class TransactionStatus(IntEnum):
    """A state, with its number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name, as DescribeTransactions and ListTransactions have it."""
        return _TITLES[self]


_TITLES: Final = {status: "".join(word.capitalize() for word in status.name.split("_")) for status in TransactionStatus}
STATUS_OF_TITLE: Final = {title: status for status, title in _TITLES.items()}

PREPARED: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
COMPLETED: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
UNFINISHED: Final = (TransactionStatus.ONGOING, *PREPARED)
"""A transaction in one of these holds back readers of its partitions."""


_NO_PARTITIONS: Final[dict[TopicPartition, None]] = {}


def is_exhausted(epoch: int) -> bool:
    """Return whether the next epoch is the one that no client gets."""
    return epoch >= EPOCH_LAST - 1


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change; a producer that still names it may have missed a response."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id to go on with after this transaction, for the epochs of the present one are used up."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that its owner gave up for the present one: with it, a request is one whose answer was lost. Unknown
    if another took over."""
    partitions: dict[TopicPartition, None] = _NO_PARTITIONS
    """Never changed in place."""
    start_ms: int = NOT_STARTED
    transaction_version: int = 0
    """The version of the protocol that the last decision was made with."""

    @property
    def is_prepared(self) -> bool:
        return self.status in PREPARED

    @property
    def is_commit(self) -> bool:
        return self.status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)

    def with_epoch(
        self, producer_epoch: int, *, last_epoch: int, timeout_ms: int, now_ms: int, producer_id: int | None = None
    ) -> Transaction:
        """Return the state for a producer that starts: no transaction, and an epoch or an id of its own."""
        return self._replace(
            producer_id=self.producer_id if producer_id is None else producer_id,
            previous_producer_id=self.previous_producer_id if producer_id is None else self.producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=_NO_PARTITIONS,
            start_ms=NOT_STARTED,
            last_update_ms=now_ms,
            transaction_version=0,
        )

    def with_partitions(self, added: tuple[TopicPartition, ...], *, now_ms: int) -> Transaction:
        """Return the transaction with more partitions, or a new one with these."""
        return self._replace(
            status=TransactionStatus.ONGOING,
            partitions={**self.partitions, **dict.fromkeys(added)},
            start_ms=self.start_ms if self.status is TransactionStatus.ONGOING else now_ms,
            last_update_ms=now_ms,
            transaction_version=0,
        )

    def fenced(self) -> Transaction:
        """Return the state with the next epoch, which no producer gets: the owner of the present one is fenced."""
        return self._replace(
            producer_epoch=min(self.producer_epoch + 1, EPOCH_LAST),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def prepared(
        self, *, is_commit: bool, transaction_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Return the transaction with its decision."""
        raises_epoch = transaction_version >= 2
        return self._replace(
            status=TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_LAST) if raises_epoch else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if raises_epoch else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.status is TransactionStatus.ONGOING else now_ms,
            last_update_ms=now_ms,
            transaction_version=transaction_version,
        )

    def completed(self, *, now_ms: int) -> Transaction:
        """Return the transaction after all markers of its decision are written."""
        assert self.is_prepared
        producer_id, producer_epoch = self.identity_after
        rotates = self.next_producer_id != NO_PRODUCER_ID
        return self._replace(
            status=TransactionStatus.COMPLETE_COMMIT if self.is_commit else TransactionStatus.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=self.producer_id if rotates else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=_NO_PARTITIONS,
            last_update_ms=now_ms,
        )

    @property
    def identity_after(self) -> tuple[int, int]:
        """Producer id and epoch that the next transaction has, once a prepared one is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch
