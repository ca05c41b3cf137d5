"""The state of one share group (KIP-932): members, target assignment, and the partitions that the group may read.

    group epoch >= assignment epoch >= member epoch

Members may share a partition, so none has to give one up first: the next heartbeat of a member brings its part of the
target. A partition is assigned only when it is initialised, which means that the share coordinator has a state for it:

    missing --> initializing --> initialized --> deleting --> missing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from strandline.coordinators.groups.assignors.spec import Assignment
    from strandline.coordinators.groups.events import DeleteShareState, InitializeShareState

LEAVE_EPOCH = -1
"""The member epoch with which a member leaves."""
JOIN_EPOCH = 0
"""The member epoch with which a member joins."""


INITIAL_GROUP_EPOCH = 2
"""The first epoch of a group, as in Kafka: epoch 1 stands for the empty assignment that a new group has."""


class ShareGroupState(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member of a share group. Change its subscription through the group, which keeps an index of it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


@dataclass(slots=True)
class TopicIndexes:
    """Some partitions of a topic."""

    name: str
    partitions: set[int]


class ShareGroup:
    """One share group. The fields up to `deleting` are those that the log has."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """The hash of the subscribed topics, as of `group_epoch`."""
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        """When the target assignment was computed."""
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Assignment] = {}
        """The target assignment by member id; a member that is not here is to have nothing."""
        self.initializing: dict[UUID, TopicIndexes] = {}
        """Partitions for which a state was asked for, and it is not known whether the share coordinator has it."""
        self.initialized: dict[UUID, TopicIndexes] = {}
        self.deleting: dict[UUID, str] = {}
        """Topics, by id and with their names, whose state was or is being deleted."""

        self.conversation: InitializeShareState | DeleteShareState | None = None
        """What the share coordinator was asked for and has not answered. It is asked for one thing at a time, because
        it may serve two requests in another order than they were sent."""
        self.metadata_may_have_changed = True
        """Topics may have changed since the hash was computed, so the next heartbeat checks; True after a load."""
        self.may_lack_state = True
        """Partitions may be neither initialised nor asked for, so the next heartbeat checks; True after a load."""
        self.target_may_lag = True
        """Initialised partitions may be missing in the target, so the next heartbeat checks; True after a load."""
        self.epoch_is_spent = False
        """A coordinator before this one asked for states with the present group epoch, and its requests may still be
        under way. The next request needs a higher epoch, so that these are fenced."""
        self.retry_at_ms = 0
        """Until then no state is asked for, because the share coordinator has just refused."""
        self._subscribed: frozenset[str] | None = None

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """Every topic that some member subscribes to, whether it exists or not."""
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(each.subscribed_topic_names for each in self.members.values()))
        return self._subscribed

    @property
    def has_state(self) -> bool:
        """Whether the share coordinator may have a state for a partition of this group."""
        return bool(self.initializing or self.initialized or self.deleting)

    def add(self, member: ShareMember) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self._subscribed = None

    def remove(self, member_id: str) -> None:
        """Forget a member and its part of the target."""
        del self.members[member_id]
        self.target.pop(member_id, None)
        self._subscribed = None

    def subscribe(self, member: ShareMember, names: frozenset[str]) -> None:
        member.subscribed_topic_names = names
        self._subscribed = None
        self.may_lack_state = True

    def move_epoch(self) -> None:
        self.group_epoch = max(self.group_epoch + 1, INITIAL_GROUP_EPOCH)

    def set_target(self, target: Mapping[str, Assignment], *, epoch: int, now_ms: int) -> None:
        self.target = dict(target)
        self.assignment_epoch = epoch
        self.assignment_timestamp_ms = now_ms

    def forget_topic(self, topic_id: UUID) -> bool:
        """Forget which partitions of a topic have a state; whether there were any."""
        found = [topics.pop(topic_id, None) for topics in (self.initializing, self.initialized)]
        return self.deleting.pop(topic_id, None) is not None or any(found)
