"""The state of one group of the consumer protocol (KIP-848), and the indexes that are kept true whatever changes it.

The coordinator moves a group by three epochs, each of which only grows:

    group epoch >= assignment epoch >= member epoch

A change of members, subscriptions or topics makes a new group epoch. The target assignment is computed for it. Each
member then walks by itself from what it owns to its part of the target: it gives up first (UNREVOKED_PARTITIONS), then
takes what is free and waits for what others still hold (UNRELEASED_PARTITIONS). A partition is free when it stands in
`owners` no more, so no two members ever own it at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.coordinators.groups.classic.classic_group import Protocol
from strandline.errors import ErrorCode

if TYPE_CHECKING:
    from strandline.coordinators.groups.assignors.spec import Assignment
    from strandline.coordinators.groups.consumer.regex_subscriptions import ResolvedRegex

LEAVE_EPOCH = -1
"""The member epoch by which a member says that it leaves for good."""
STATIC_LEAVE_EPOCH = -2
"""The member epoch by which a static member says that it will be back; its seat and partitions are kept for it."""
JOIN_EPOCH = 0
"""The member epoch by which a member asks to be let in."""
INITIAL_ASSIGNMENT_EPOCH = 1
"""Of the empty assignment that a group has before its first one; so a member can be let in that has to wait for it."""
INITIAL_GROUP_EPOCH = 2

MEMBER_EPOCH_FROM_VERSION = 9
"""OffsetCommit and OffsetFetch carry the epochs of the consumer protocol from this version on."""

Partitions = dict[UUID, dict[int, int]]
"""By topic id, the partitions with the assignment epoch in which the member was given each; no inner dict is empty."""


class MemberState(IntEnum):
    """As it is written to the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to release partitions and has not confirmed that yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer broker: the member has to come again with nothing."""


class ConsumerGroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What is kept besides of a member that speaks the classic protocol to this group."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """Change `instance_id`, the partitions and the subscription through the group only: it keeps indexes of them."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    """Empty for none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """None for a member that speaks the consumer protocol."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    is_to_join: bool = False
    """A member of the classic protocol that has to join again in time. This is not in the log."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """The hash of the subscribed topics, as of `group_epoch`."""
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        """When the target assignment was computed."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.target: dict[str, Assignment] = {}
        """The target assignment by member id; a member that is not here is to own nothing."""
        self.regexes: dict[str, ResolvedRegex] = {}
        """The topics that each pattern of a member matches."""
        self.owners: dict[UUID, dict[int, str]] = {}
        """The member that owns a partition or has not released it yet, by topic id and partition."""
        self.metadata_may_have_changed = True
        """Topics may have changed since the hash was computed, so the next heartbeat checks; True after a load."""
        self.changed_topics: frozenset[str] = frozenset()
        """The topics that changed, as far as known, for the history of the group."""
        self.patterns_are_resolved = False
        """Whether `regexes` was up to date before `changed_topics`; False after a load, when that is unknown."""
        self.has_partition_metadata_record = False
        """A coordinator before Kafka 4.1 left a ConsumerGroupPartitionMetadata record, to be cleared away."""
        self._subscribed: frozenset[str] | None = None
        self._subscriptions: dict[frozenset[str], frozenset[str]] = {}
        """Each once, however many members have it: most members of a group subscribe to the same."""

    # ---- questions

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def uses_patterns(self) -> bool:
        return any(member.subscribed_topic_regex for member in self.members.values())

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """Every topic that some member subscribes to, by name or by pattern, whether it exists or not."""
        if self._subscribed is None:
            self._subscriptions = {
                each.subscribed_topic_names: each.subscribed_topic_names for each in self.members.values()
            }
            patterns = dict.fromkeys(each.subscribed_topic_regex for each in self.members.values())
            matched = (self.regexes[pattern].topics for pattern in patterns if pattern in self.regexes)
            self._subscribed = frozenset().union(*self._subscriptions, *matched)
        return self._subscribed

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that one member subscribes to. An unresolved pattern matches nothing."""
        resolved = self.regexes.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names.union(resolved.topics)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        partitions = self.owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def preferred_assignor(self, served: Sequence[str]) -> str:
        """Return the assignor that most members name; in a tie the first in the setting of the broker.

        A group may come from a coordinator that served others. A vote for one of those does not count.
        """
        votes = Counter(member.server_assignor for member in self.members.values())
        return max(served, key=votes.__getitem__)

    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.classic is not None]

    def validate_member(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Return why the sender is not a member in its present epoch, which it must be to fetch offsets."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch != member.member_epoch:
            return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    # ---- changes

    def add(self, member: ConsumerMember) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._own(member)
        self._subscribed = None

    def remove(self, member_id: str) -> ConsumerMember:
        """Forget a member, what it owned and its part of the target."""
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._disown(member)
        self.target.pop(member_id, None)
        self._subscribed = None
        return member

    def set_instance_id(self, member: ConsumerMember, instance_id: str | None) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        member.instance_id = instance_id
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id

    def subscribe(self, member: ConsumerMember, names: frozenset[str], pattern: str) -> None:
        member.subscribed_topic_names = self._subscriptions.setdefault(names, names)
        member.subscribed_topic_regex = pattern
        self._subscribed = None

    def patterns_changed(self) -> None:
        """Recompute the subscriptions, because a pattern matches other topics now."""
        self._subscribed = None

    def set_partitions(self, member: ConsumerMember, *, assigned: Partitions, pending_revocation: Partitions) -> None:
        self._disown(member)
        member.assigned = assigned
        member.pending_revocation = pending_revocation
        self._own(member)

    def set_target(self, target: Mapping[str, Assignment], *, epoch: int, now_ms: int) -> None:
        self.target = dict(target)
        self.assignment_epoch = epoch
        self.assignment_timestamp_ms = now_ms

    def _own(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                # Compaction can take away the record by which the owner before gave up, so the later one is right.
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))

    def _disown(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)
