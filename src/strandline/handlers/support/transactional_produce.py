"""What a Produce that names a transaction needs before its batches are appended (KIP-890).

A partition in which the producer's transaction is open takes its next batch without asking anybody. For the others the
coordinator is asked, once for all partitions of the request: whether they are part of the transaction, or, for a client
of transactions v2 (version 12 on), that they are from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from strandline.codec.produce import PartitionRecords
from strandline.codec.record_batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    HEADER,
    HEADER_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from strandline.errors import ErrorCode, RequestError, StrandlineError
from strandline.handlers.support.context import BrokerServices
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import begin_verification
from strandline.partition.verification import ONGOING, VerificationGuard

ABORTABLE_FROM: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""
ADDS_FROM: Final = 12
"""The first version whose clients leave it to the partition's leader to add the partition."""

ROUNDS_MAX: Final = 5
"""How often the coordinator is asked about one batch, because a marker came whenever it was."""

Verdicts = dict[tuple[str | bytes, int], VerificationGuard | StrandlineError]
"""By topic and partition as the request names them: what to append with, or why not. Who is not in it is in no
transaction."""

_ASKED_IN_VAIN: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    # The coordinator does not know another partition of the request: a topic that was created a moment ago.
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)


_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
"""Where the header of a batch has the id and the epoch of its producer."""


def are_open(node: BrokerServices, partitions: Sequence[PartitionRecords]) -> bool:
    """Return whether the transactions of all these batches are open on their partitions, as nearly always."""
    topics = node.topics
    first = None
    for topic, index, records in partitions:
        found = topics.get(topic)
        partition = found[index] if found is not None and 0 <= index < len(found) else None
        if partition is None or records is None or len(records) < HEADER_SIZE:
            return False
        producer = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if first is None:
            first = producer
        if producer != first or not partition.producers.has_open_transaction(*producer):
            return False
    return True


class _Asked:
    """A partition about which the coordinator is asked."""

    __slots__ = ("guard", "keys", "partition", "sequence")

    def __init__(self, partition: Partition, sequence: int, guard: VerificationGuard) -> None:
        self.partition = partition
        self.sequence = sequence
        self.guard = guard
        self.keys: list[tuple[str | bytes, int]] = []
        """How the request named it."""


class TransactionalProduce:
    """The transactional batches of one request."""

    __slots__ = ("_adds", "_asked", "_producer", "_rounds", "_transactional_id", "_version", "verdicts")

    def __init__(self, transactional_id: str, version: int) -> None:
        self._transactional_id = transactional_id
        self._version = version
        self._adds = version >= ADDS_FROM
        self._producer: tuple[int, int] | None = None
        self._asked: dict[tuple[str, int], _Asked] = {}
        """By topic name and partition."""
        self._rounds = 0
        self.verdicts: Verdicts = {}

    def look_at(self, node: BrokerServices, partitions: Sequence[PartitionRecords]) -> bool:
        """Start on all transactional batches; return whether a coordinator has to verify some of them."""
        topics = node.topics
        for topic, index, records in partitions:
            found = topics.get(topic)
            partition = found[index] if found is not None and 0 <= index < len(found) else None
            if partition is None or not partition.is_leader or records is None or len(records) < HEADER_SIZE:
                continue
            header = HEADER.unpack_from(records)
            if not header[ATTRIBUTES] & TRANSACTIONAL:
                continue
            key, producer_id, epoch = (topic, index), header[PRODUCER_ID], header[PRODUCER_EPOCH]
            if self._producer is None:
                self._producer = producer_id, epoch
            elif self._producer != (producer_id, epoch):
                message = "transactional records of more than one producer"
                self.verdicts[key] = RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
                continue
            try:
                guard = begin_verification(
                    partition, producer_id, epoch, header[BASE_SEQUENCE], supports_epoch_bump=self._adds
                )
            except StrandlineError as error:
                self.verdicts[key] = error
                continue
            if guard is ONGOING or not (self._adds or partition.verifies_transactions()):
                self.verdicts[key] = guard
                continue
            place = partition.topic, partition.index
            asked = self._asked.get(place)
            if asked is None:
                asked = self._asked[place] = _Asked(partition, header[BASE_SEQUENCE], guard)
            asked.keys.append(key)
        return bool(self._asked)

    def ask(self, node: BrokerServices, then: Callable[[], object]) -> None:
        """Ask the coordinator, and call `then` when every batch has its verdict."""
        assert self._producer is not None

        def on_verified(codes: dict[tuple[str, int], ErrorCode]) -> None:
            asked, self._asked = self._asked, {}
            for place, each in asked.items():
                verdict: VerificationGuard | StrandlineError = each.guard
                if codes[place] is not ErrorCode.NONE:
                    verdict = refusal(codes[place], self._version)
                elif self._adds and self._rounds < ROUNDS_MAX:
                    verdict = self._guard_now(each)
                if isinstance(verdict, VerificationGuard) and verdict not in (each.guard, ONGOING):
                    each.guard = verdict
                    self._asked[place] = each
                for key in each.keys:
                    self.verdicts[key] = verdict
            if self._asked:
                self._rounds += 1
                self.ask(node, then)
            else:
                then()

        producer_id, epoch = self._producer
        node.transactions.verify(
            self._transactional_id, producer_id, epoch, list(self._asked), adds=self._adds, then=on_verified
        )

    def _guard_now(self, asked: _Asked) -> VerificationGuard | StrandlineError:
        """Return the guard to append with: another one if a marker was written during the verification.

        Mostly that is the marker of the transaction before, for which the coordinator made us wait. A producer of
        transactions v2 has an epoch for each of them, so it does no harm to ask again whether this one is still open.
        """
        assert self._producer is not None
        producer_id, epoch = self._producer
        try:
            return begin_verification(asked.partition, producer_id, epoch, asked.sequence, supports_epoch_bump=True)
        except StrandlineError as error:
            return error


def refusal(code: ErrorCode, version: int) -> RequestError:
    """In words that producers of this version understand; NOT_ENOUGH_REPLICAS makes each of them try again."""
    if code in _ASKED_IN_VAIN:
        message = f"The coordinator of the transaction did not answer for now: {code.name}."
        return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    return RequestError(code, f"The partition is not part of an open transaction: {code.name}.")
