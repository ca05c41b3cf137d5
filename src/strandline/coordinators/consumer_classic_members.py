"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The group computes the assignment itself, so none of these members leads, and no JoinGroup waits for the others:

    Heartbeat   -> REBALANCE_IN_PROGRESS when the member has to give up or can be given partitions
    JoinGroup   its subscription says what it still owns; the member walks towards the target as any other
                -> generation = the member's epoch, at once
    SyncGroup   -> what is assigned to it in this epoch

One that rebalances eagerly gives up everything before it joins and so arrives in one round; a cooperative one comes
once to hear what it has to give up, and again when it has done so. It is given the rebalance timeout to come when it was
told to, and again to ask for its assignment.

Narrower than Kafka: a member that is unknown and claims to own partitions is refused. It was fenced and has not noticed;
let in, it would read on until it asks for its assignment, beside the new owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.classic_group import Protocol
from strandline.coordinators.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from strandline.coordinators.consumer_protocol import PROTOCOL_TYPE, decode_subscription, encode_assignment, version_of
from strandline.coordinators.events import Heartbeat, JoinGroup, LeaveGroup, SyncGroup, TimerKey, TimerKind
from strandline.coordinators.turn import Turn
from strandline.errors import ErrorCode, MalformedMessage

if TYPE_CHECKING:
    from random import Random

    from strandline.coordinators.consumer_group import Group


def join(groups: dict[str, Group], group: ConsumerGroup, event: JoinGroup, turn: Turn, random: Random) -> None:
    """Answered at once, unless it makes the group classic: then the JoinGroup waits there for the next generation."""


def sync(group: ConsumerGroup, event: SyncGroup, turn: Turn) -> None: ...


def heartbeat(group: ConsumerGroup, event: Heartbeat, turn: Turn) -> None: ...


def leave(groups: dict[str, Group], group: ConsumerGroup, event: LeaveGroup, turn: Turn) -> None: ...


def on_timeout(groups: dict[str, Group], group: ConsumerGroup, key: TimerKey, turn: Turn) -> None:
    """The member has not joined again (JOIN) or not asked for its assignment (SYNC) in time."""
