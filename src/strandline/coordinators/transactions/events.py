"""What can happen to a shard of transactions (events), and what the shard asks its driver to do (effects).

The driver performs effects in order. `Reply`, `SendMarkers` and `AllocateProducerId` are performed only when every
`Append` that the shard asked for earlier is below the high watermark: no client learns of a decision, and no partition
gets its marker, while a crash or an election could take it back. `Append`, `Reply`, the timers, `Loaded` and
`TimerFired` are those of the groups (`coordinators.events`).

Error codes are those of the newest version. A handler of an old version turns PRODUCER_FENCED into
INVALID_PRODUCER_EPOCH: InitProducerId below 4, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn below 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.codec.messages.describe_transactions_response import TransactionState as DescribedTransaction
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.coordinators.groups.events import Append, AppendWhole, Loaded, Reply, StartTimer, Tell, TimerFired
from strandline.coordinators.groups.shard_terms import Token
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition


class TransactionTimerKind(StrEnum):
    TIMEOUT = "timeout"
    """The transaction has been open for its timeout."""
    PARKED = "parked"
    """Requests have waited long enough for the markers of the transaction before."""
    EXPIRY = "expiry"
    """Unused ids are to be removed: one timer for the shard, its transactional id is empty."""
    RESUME = "resume"
    """There are more transactions that another coordinator left unfinished: one timer for the shard, too."""
    ROLL = "roll"
    """There are more transactions that are decided and have no record of it: one timer for the shard, too."""


class TransactionTimer(NamedTuple):
    """The key of a timer."""

    kind: TransactionTimerKind
    transactional_id: str


# ---- events


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """An InitProducerId that names a transactional id; an `InitProducerIdResponse` is the answer."""

    token: Token
    request: InitProducerIdRequest
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Make partitions part of the transaction, or look whether they are; a code for each of them is the answer.

    One transaction of an AddPartitionsToTxn. An AddOffsetsToTxn asks for the partition of `__consumer_offsets` that
    holds the group. The handler has seen to it that the partitions exist.
    """

    token: Token
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Commit or abort; an `EndTxnResponse` is the answer, with the id and the epoch to go on with if version 2.

    `transaction_version` is what the client speaks: 2 from version 5 of EndTxn on, else 0.
    """

    token: Token
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Decide all open transactions of a sink at once; a `CommitBatchResponse` is the answer."""

    token: Token
    request: CommitBatchRequest


@dataclass(frozen=True, slots=True)
class DeleteSink:
    """Forget a sink, and abort what it has open; a `DeleteSinkResponse` is the answer."""

    token: Token
    sink_id: str


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """What a transactional id is at; a `DescribedTransaction` is the answer, also for an id that is unknown."""

    token: Token
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Which of these transactional ids pass the filters; a `ListTransactionsResponse` is the answer.

    Empty `states` or `producer_ids`, a negative `duration_ms` and no `pattern` let all pass. Names of states are
    Kafka's (`Ongoing`); unknown ones are named in the answer.
    """

    token: Token
    transactional_ids: tuple[str, ...]
    states: tuple[str, ...] = ()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    pattern: Callable[[str], bool] | None = None
    """Whether an id matches."""


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """These partitions have the marker of `SendMarkers`, or are gone. It may come in parts, late and twice."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    decision: int


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """Answers `AllocateProducerId`, once: an id, or why there is none (COORDINATOR_LOAD_IN_PROGRESS in Kafka)."""

    token: Token
    producer_id: int
    error: ErrorCode = ErrorCode.NONE


Request = (
    InitProducerId | AddPartitions | EndTransaction | CommitBatch | DeleteSink | DescribeTransaction | ListTransactions
)
"""Events that a client waits for."""

Event = Request | MarkersWritten | ProducerIdAllocated | TimerFired[TransactionTimer] | Loaded


# ---- effects

PartitionCodes = dict[TopicPartition, ErrorCode]
"""The answer to `AddPartitions`."""

Response = (
    InitProducerIdResponse
    | PartitionCodes
    | EndTxnResponse
    | CommitBatchResponse
    | DeleteSinkResponse
    | DescribedTransaction
    | ListTransactionsResponse
)


class SendMarkers(NamedTuple):
    """Have a marker written to each of the partitions, again and again until it is, and say `MarkersWritten`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    decision: int
    """To be said again in `MarkersWritten`. Before version 2 the next transaction has the same epoch, and late news of
    this one must not pass for news of that."""


class AllocateProducerId(NamedTuple):
    """Allocate a new producer id, and step `ProducerIdAllocated` with the token."""

    token: Token


Effect = Append | AppendWhole | Reply[Response] | StartTimer[TransactionTimer] | Tell | SendMarkers | AllocateProducerId
