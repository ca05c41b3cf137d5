"""What can happen to a shard of groups (events), and what the shard asks its driver to do (effects).

The driver performs effects in order. A `Reply` leaves only when every `Append` that the shard asked for earlier is
below the high watermark of the partition, because a crash or an election could take back what is above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from strandline.codec.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from strandline.codec.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from strandline.codec.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.codec.messages.delete_groups_response import DeletableGroupResult
from strandline.codec.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from strandline.codec.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from strandline.codec.messages.describe_groups_response import DescribedGroup
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_request import LeaveGroupRequest
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.list_groups_response import ListGroupsResponse
from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_delete_request import OffsetDeleteRequest
from strandline.codec.messages.offset_delete_response import OffsetDeleteResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponseGroup
from strandline.codec.messages.share_group_describe_response import DescribedGroup as DescribedShareGroup
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, Token
from strandline.errors import ErrorCode

KeyT = TypeVar("KeyT")
"""What names a timer; transactions have names of their own."""
ResponseT = TypeVar("ResponseT")

SharePartitions = dict[UUID, list[int]]
"""Partitions by topic id, in order."""

Response = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponseGroup
    | DescribedGroup
    | ListGroupsResponse
    | DeletableGroupResult
    | OffsetDeleteResponse
    | ConsumerGroupHeartbeatResponse
    | DescribedConsumerGroup
    | ShareGroupHeartbeatResponse
    | DescribedShareGroup
    | SharePartitions
    | AlterShareGroupOffsetsResponse
    | DeleteShareGroupOffsetsResponse
)


@dataclass(frozen=True, slots=True)
class JoinGroup:
    token: Token
    request: JoinGroupRequest
    api_version: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class SyncGroup:
    token: Token
    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Heartbeat:
    token: Token
    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Carries `members` in every version: the handler turns the single member of versions 0-2 into a list of one."""

    token: Token
    request: LeaveGroupRequest


class CommitOffsets(NamedTuple):
    """Topics and partitions are known to exist, and topics carry name and id: the handler has seen to both."""

    token: Token
    request: OffsetCommitRequest
    api_version: int


class CommitTransactionalOffsets(NamedTuple):
    """As `CommitOffsets`, but within the open transaction of a producer: counts from the marker that commits it.

    The request stands for a TxnOffsetCommit, and its answer for the answer. `verified` says for the partition that the
    transaction is open; only the driver knows what is behind it.
    """

    token: Token
    request: OffsetCommitRequest
    producer_id: int
    producer_epoch: int
    verified: object = None


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The marker of the producer's transaction was appended to the partition of this shard."""

    producer_id: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One group of an OffsetFetch; topics of None asks for every offset of the group. Topics carry name and id.

    With `require_stable` the offset of a partition that an open transaction is about to move is left out.
    """

    token: Token
    request: OffsetFetchRequestGroup
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """Everything that a member of the consumer protocol says: it joins, lives on, gave up partitions, leaves."""

    token: Token
    request: ConsumerGroupHeartbeatRequest
    api_version: int
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool] | None = None
    """Which topics the member may see; None where there are no access rules."""


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup:
    """What a group of the consumer protocol is like; a `DescribedGroup` of that API is the answer, errors too."""

    token: Token
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """Everything that a member of a share group says: it joins, lives on, subscribes to other topics, leaves."""

    token: Token
    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    """What a share group is like; a `DescribedGroup` of that API is the answer, errors too."""

    token: Token
    group_id: str


@dataclass(frozen=True, slots=True)
class ListSharePartitions:
    """Which partitions the share coordinator has a state of for this group; none if it is not a share group."""

    token: Token
    group_id: str


@dataclass(frozen=True, slots=True)
class AlterShareOffsets:
    token: Token
    request: AlterShareGroupOffsetsRequest


@dataclass(frozen=True, slots=True)
class DeleteShareOffsets:
    token: Token
    request: DeleteShareGroupOffsetsRequest


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """What a classic group is like; a `DescribedGroup` is the answer, also for a group that does not exist."""

    token: Token
    group_id: str
    api_version: int


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Which of these groups are in one of the states and of one of the types, in small letters; nothing means any."""

    token: Token
    group_ids: tuple[str, ...]
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    token: Token
    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Topics and partitions are known to exist: the handler has seen to it."""

    token: Token
    request: OffsetDeleteRequest


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted. Another one may have its name already."""

    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """These topics came, went or got more partitions."""

    names: frozenset[str]


class ShareStart(NamedTuple):
    """A share partition and the offset at which its group begins; -1 if that is left to the leader."""

    topic_id: UUID
    partition: int
    start_offset: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class InitializeShareState:
    """An effect: have the share coordinator make states, and say `ShareStateAnswered` when all are answered."""

    group_id: str
    state_epoch: int
    partitions: tuple[ShareStart, ...]
    request: AlterShareOffsets | None = None
    """The request that waits for it; none waits if a heartbeat was the reason."""
    response: AlterShareGroupOffsetsResponse | None = None
    """Its answer, as far as it is known."""


@dataclass(frozen=True, slots=True, eq=False)
class DeleteShareState:
    """An effect: have the share coordinator delete states, and say `ShareStateAnswered` when all are answered."""

    group_id: str
    partitions: tuple[ShareStart, ...]
    request: DeleteGroup | DeleteShareOffsets
    response: DeleteShareGroupOffsetsResponse | None = None
    """Its answer, as far as it is known."""


@dataclass(frozen=True, slots=True)
class ShareStateAnswered:
    """The share coordinator answered for every partition of an effect; `codes` has those with an error."""

    asked: InitializeShareState | DeleteShareState
    codes: dict[tuple[UUID, int], ErrorCode]


@dataclass(frozen=True, slots=True)
class TimerFired(Generic[KeyT]):
    key: KeyT


@dataclass(frozen=True, slots=True)
class Loaded:
    """All records went through `load`; the shard serves requests, and the sessions of its members start again."""


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | CommitTransactionalOffsets
    | FetchOffsets
    | ConsumerHeartbeat
    | DescribeConsumerGroup
    | ShareHeartbeat
    | DescribeShareGroup
    | ListSharePartitions
    | AlterShareOffsets
    | DeleteShareOffsets
    | DescribeGroup
    | ListGroups
    | DeleteGroup
    | DeleteOffsets
)
"""Events that a client waits for."""

Event = Request | TransactionEnded | TopicDeleted | TopicsChanged | ShareStateAnswered | TimerFired[TimerKey] | Loaded


class Append(NamedTuple):
    records: tuple[CoordinatorRecord, ...]


class AppendWhole(NamedTuple):
    """As `Append`, in one batch of their own however many they are: a crash leaves all of them or none.

    The shard sees to it that they fit `max.message.bytes`.
    """

    records: tuple[CoordinatorRecord, ...]


class AppendTransactional(NamedTuple):
    """Records within the open transaction of a producer, in one batch of their own; replies wait as for `Append`."""

    records: tuple[CoordinatorRecord, ...]
    producer_id: int
    producer_epoch: int
    verified: object


class Reply(NamedTuple, Generic[ResponseT]):
    token: Token
    response: ResponseT


class StartTimer(NamedTuple, Generic[KeyT]):
    """Fire once after `delay_ms`; a timer that already runs under the key starts again."""

    key: KeyT
    delay_ms: int


class CancelTimer(NamedTuple, Generic[KeyT]):
    key: KeyT


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for the node's log: a sentence, and its facts as fields."""

    sentence: str
    facts: dict[str, object]


Effect = (
    Append
    | AppendTransactional
    | Reply[Response]
    | StartTimer[TimerKey]
    | CancelTimer[TimerKey]
    | Tell
    | InitializeShareState
    | DeleteShareState
)
