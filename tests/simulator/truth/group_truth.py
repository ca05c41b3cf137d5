"""What the committed records of `__consumer_offsets` say of every group, and what must never stand in them.

The log is where a group's truth lies: what is in it, in its order, is what every coordinator to come will believe. Each
simulated member writes who it is into the metadata of its commits, so the log tells who moved a position, and:

| invariant | how it is seen |
|---|---|
| no zombie commit | a commit in the log is by a member, and of a generation or epoch, that the log knows there |
| the same in transactions | it must be so when the commit is written; it counts from the marker on, or never |
| no step back | a position moves back only by a late commit of the member that moved it on |
| one owner | of a consumer group, no two members own a partition after any batch, what is to be revoked included |
| one owner | no other member takes for its own what a member of a consumer group is assigned |
| answers come last | commits that are acknowledged, positions and assignments that are told stand in the log by then |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulator.clients.consumer_protocol import partitions_in
from tests.simulator.truth.invariants import Invariants, Violation

from strandline.codec.columns import decode_batch
from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from strandline.codec.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from strandline.codec.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.transaction_marker import parse_marker

OFFSETS_TOPIC = "__consumer_offsets"
Place = tuple[UUID, int]
"""A partition by the id of its topic."""


class Tag(NamedTuple):
    """Who commits; written into the metadata of the offset."""

    process: int
    member_id: str
    generation: int
    """Of a classic group, or the member epoch."""
    number: int

    def text(self) -> str:
        return f"{self.process}|{self.member_id}|{self.generation}|{self.number}"

    @classmethod
    def read(cls, text: str | None) -> Tag | None:
        """None for what no member of the simulation has written."""
        words = (text or "").split("|")
        return cls(int(words[0]), words[1], int(words[2]), int(words[3])) if len(words) == 4 else None


@dataclass(slots=True)
class LoggedClassicGroup:
    generation: int
    assignments: dict[str, bytes]
    """By member id."""


@dataclass(slots=True)
class LoggedMember:
    """A member of a consumer group."""

    epoch: int = 0
    held: dict[Place, int] = field(default_factory=dict)
    """What it owns or has not given up yet, with the epoch since which it does."""
    told: dict[int, list[frozenset[Place]]] = field(default_factory=dict)
    """What it was assigned in each of its epochs; it may be told no other."""


@dataclass(slots=True)
class LoggedConsumerGroup:
    epoch: int = 0
    members: dict[str, LoggedMember] = field(default_factory=dict)


class GroupTruth:
    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self.groups: dict[str, LoggedClassicGroup | LoggedConsumerGroup] = {}
        self.positions: dict[tuple[str, str, int], tuple[int, Tag | None]] = {}
        """By group, topic and partition: the committed offset, and who committed it."""
        self.offsets: dict[tuple[str, str, int], set[int]] = {}
        """All that was ever committed there."""
        self.commits: set[tuple[str, str, int]] = set()
        """Tags, with topic and partition, of all commits there are."""
        self.pending: dict[int, list[tuple[OffsetCommitKey, Any]]] = {}
        """By producer id: commits of a transaction without its marker."""
        self.generations: dict[tuple[str, str, int], bytes] = {}
        """What each member of each generation of a classic group is assigned."""
        self._claims: dict[str, dict[str, frozenset[Place]]] = {}
        """By group and member id: what each member owns, as it sees it itself."""
        self.changes = 0
        """New generations and member epochs."""
        invariants.on_committed[OFFSETS_TOPIC] = self.fold

    def fold(self, batch: bytes) -> None:
        touched: dict[str, None] = {}
        columns = decode_batch(batch)
        if columns.is_control:
            self._fold_marker(columns.producer_id, batch)
            return
        for record in columns:
            assert record.key is not None
            key, value = decode_coordinator_record(record.key, record.value)
            if isinstance(key, OffsetCommitKey):
                self._judge_commit(key, value)
                if columns.is_transactional:
                    self.pending.setdefault(columns.producer_id, []).append((key, value))
                else:
                    self._move(key, value)
            elif isinstance(key, GroupMetadataKey):
                self._fold_classic(key.group, value)
            else:
                self._fold_consumer(key, value)
                touched[getattr(key, "group_id", "")] = None
        for group_id in touched:
            self._check_owners(group_id)

    # Groups

    def _fold_classic(self, group_id: str, value: Any) -> None:
        if value is None:
            if isinstance(self.groups.get(group_id), LoggedClassicGroup):
                del self.groups[group_id]
            return
        assignments = {member.member_id: bytes(member.assignment) for member in value.members}
        before = self.groups.get(group_id)
        if isinstance(before, LoggedClassicGroup) and value.generation < before.generation:
            self._fail(f"the generation of {group_id} goes back from {before.generation} to {value.generation}")
        self.groups[group_id] = LoggedClassicGroup(value.generation, assignments)
        for member_id, assignment in assignments.items():
            self.generations[group_id, member_id, value.generation] = assignment
        self.changes += 1

    def _fold_consumer(self, key: Any, value: Any) -> None:
        group_id = getattr(key, "group_id", None)
        if group_id is None:
            return
        group = self.groups.get(group_id)
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            if isinstance(group, LoggedConsumerGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, LoggedConsumerGroup):
            if value is None:
                return
            group = self.groups[group_id] = LoggedConsumerGroup()
        if isinstance(key, ConsumerGroupMetadataKey):
            if value.epoch < group.epoch:
                self._fail(f"the epoch of {group_id} goes back from {group.epoch} to {value.epoch}")
            group.epoch = value.epoch
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            if value is None:
                group.members.pop(key.member_id, None)
            else:
                group.members.setdefault(key.member_id, LoggedMember())
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if value is None:
                if key.member_id in group.members:
                    group.members[key.member_id].held = {}
            else:
                self._fold_assignment(group.members.setdefault(key.member_id, LoggedMember()), value)

    def _fold_assignment(self, member: LoggedMember, value: Any) -> None:
        held: dict[Place, int] = {}
        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
            epochs = topic.assignment_epochs or [-1] * len(topic.partitions)
            for partition, epoch in zip(topic.partitions, epochs, strict=True):
                place = topic.topic_id, partition
                held[place] = epoch if epoch >= 0 else member.held.get(place, value.member_epoch)
        member.epoch, member.held = value.member_epoch, held
        assigned = frozenset((topic.topic_id, each) for topic in value.assigned_partitions for each in topic.partitions)
        member.told.setdefault(value.member_epoch, []).append(assigned)
        self.changes += 1

    def _check_owners(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, LoggedConsumerGroup):
            return
        owners: dict[Place, str] = {}
        for member_id, member in group.members.items():
            for place in member.held:
                other = owners.setdefault(place, member_id)
                if other != member_id:
                    self._fail(f"partition {place} of group {group_id} has two owners, {other} and {member_id}")

    # Positions

    def _fold_marker(self, producer_id: int, batch: bytes) -> None:
        marker = parse_marker(batch)
        for key, value in self.pending.pop(producer_id, ()):
            if marker is not None and marker.is_commit:
                self._move(key, value)

    def _judge_commit(self, key: OffsetCommitKey, value: Any) -> None:
        """Check that the committer may do so, when the commit is written, in a transaction or not."""
        tag = None if value is None else Tag.read(value.metadata)
        if tag is None:
            return
        self.commits.add((tag.text(), key.topic, key.partition))
        wrong = self._wrong_with(tag, key)
        if wrong:
            place = key.group, key.topic, key.partition
            before = self.positions.get(place)
            self._fail(f"zombie commit: {place} was moved from {before} to {value.offset} by {tag}, {wrong}")

    def _move(self, key: OffsetCommitKey, value: Any) -> None:
        place = key.group, key.topic, key.partition
        if value is None:
            self.positions.pop(place, None)
            return
        tag = Tag.read(value.metadata)
        before = self.positions.get(place)
        self.positions[place] = value.offset, tag
        self.offsets.setdefault(place, set()).add(value.offset)
        if tag and before is not None and value.offset < before[0] and before[1] and before[1].process != tag.process:
            self._fail(f"zombie commit: {place} was moved back from {before} to {value.offset} by {tag}")

    def _wrong_with(self, tag: Tag, key: OffsetCommitKey) -> str:
        group = self.groups.get(key.group)
        if group is None:
            return "and there is no such group"
        if isinstance(group, LoggedClassicGroup):
            if tag.generation != group.generation:
                return f"while the generation is {group.generation}"
            return "" if tag.member_id in group.assignments else "who is no member"
        member = group.members.get(tag.member_id)
        if member is None:
            return "who is no member"
        topic = self._invariants.image.topics.get(key.topic)
        since = None if topic is None else member.held.get((topic.id, key.partition))
        if tag.generation > member.epoch:
            return f"whose epoch is {member.epoch}"
        if topic is not None and since is None:
            # A partition without an owner may be committed by any member in its present epoch.
            place = topic.id, key.partition
            is_taken = any(place in other.held for other in group.members.values())
            return "who does not own the partition" if is_taken or tag.generation < member.epoch else ""
        if since is not None and tag.generation < since:
            return f"who owns the partition since epoch {since}"
        return ""

    # Answers to members

    def on_acknowledged(self, tag: Tag, topic: str, partition: int) -> None:
        if (tag.text(), topic, partition) not in self.commits:
            self._fail(f"the commit {tag} of {topic}-{partition} is acknowledged and not committed")

    def on_position(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        if offset >= 0 and offset not in self.offsets.get((group_id, topic, partition), ()):
            self._fail(f"{group_id} is told to stand at {offset} of {topic}-{partition}, and that is not committed")

    def on_classic_assignment(self, group_id: str, member_id: str, generation: int, assignment: bytes) -> None:
        if isinstance(self.groups.get(group_id), LoggedConsumerGroup):
            # Of a classic member in a consumer group the log knows what it owns, and not in which words it was told.
            topics = self._invariants.image.topics
            told_of = frozenset((topics[each.topic].id, each.partition) for each in partitions_in(assignment))
            self.on_assignment(group_id, member_id, generation, told_of)
            return
        known = self.generations.get((group_id, member_id, generation))
        if known == assignment:
            return
        told = "nothing" if known is None else "another assignment"
        self._fail(
            f"{member_id} of {group_id} was told its assignment of generation {generation}, and the log has {told}"
        )

    def on_assignment(self, group_id: str, member_id: str, epoch: int, told: frozenset[Place]) -> None:
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, LoggedConsumerGroup) else None
        if not isinstance(group, LoggedConsumerGroup) or member is None:
            # It left, or was fenced, while the answer was under way.
            return
        if told not in member.told.get(epoch, ()):
            self._fail(
                f"{member_id} of {group_id} was told {sorted(told)} in epoch {epoch}, and the log has "
                f"{[sorted(each) for each in member.told.get(epoch, ())]}"
            )

        for other_id, claimed in self._claims.get(group_id, {}).items():
            # Who is not in the log any more was fenced, and what it believes does not count.
            if other_id != member_id and other_id in group.members and not claimed.isdisjoint(told):
                both = sorted(claimed & told)
                self._fail(f"{member_id} of {group_id} was told to own {both} while {other_id} has not let go of it")

    def on_owned(self, group_id: str, member_id: str, owned: frozenset[Place]) -> None:
        """A member says to itself what it owns from now on."""
        self._claims.setdefault(group_id, {})[member_id] = owned

    def _fail(self, what: str) -> None:
        raise Violation(f"{what} at {self._invariants.now:.6f}")
