"""What each member of a group owns, as the group has it, and what a rebalance took from one member and gave another.

A rebalance is noted while a group is busy and read by a person later, if ever. So what members own is kept as it
comes, as references: the bytes of a classic assignment, or partitions by topic id. Only `assignment_diff` opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember
from strandline.coordinators.groups.classic.consumer_protocol import decode_assignment
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from strandline.errors import MalformedMessage

HELD_BYTES_MAX = 65_536
"""Of one member's assignment. A longer one is remembered as unknown: history must not cost more than the group."""

Held = bytes | Mapping[UUID, Mapping[int, int]] | None
"""The assignment of a classic member, the partitions of a consumer's, or None for one that is not remembered."""

Partitions = dict[str, frozenset[int]]

Group = ClassicGroup | ConsumerGroup


class MemberRef(NamedTuple):
    """A member, as much of it as a person can recognise when it is gone."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class MemberAssignment(NamedTuple):
    who: MemberRef
    held: Held


class AssignmentDiff(NamedTuple):
    lost: Partitions
    gained: Partitions
    kept: int


def ref_of(member: ClassicGroupMember | ConsumerMember) -> MemberRef:
    instance_id = member.group_instance_id if isinstance(member, ClassicGroupMember) else member.instance_id
    return MemberRef(member.member_id, instance_id, member.client_id, member.client_host)


def assignments_of(group: Group) -> dict[str, MemberAssignment]:
    """Return what each member owns now, by member id."""
    if isinstance(group, ClassicGroup):
        return {
            member.member_id: MemberAssignment(
                ref_of(member), member.assignment if len(member.assignment) <= HELD_BYTES_MAX else None
            )
            for member in group.members.values()
        }
    return {each.member_id: MemberAssignment(ref_of(each), each.assigned) for each in group.members.values()}


def is_same(before: Held, after: Held) -> bool:
    """Return whether nothing moved, as far as can be seen without opening it."""
    if before is after:
        return before is not None
    if isinstance(before, bytes) or isinstance(after, bytes) or before is None or after is None:
        return before == after and before is not None
    # The epochs in which partitions were given differ after each rebalance; who owns them need not.
    return before.keys() == after.keys() and all(before[topic].keys() == after[topic].keys() for topic in before)


def size_bytes(held: Held) -> int:
    """About what it costs to remember."""
    if held is None or isinstance(held, bytes):
        return len(held or b"")
    return sum(100 + 40 * len(partitions) for partitions in held.values())


def assignment_diff(before: Held, after: Held, name_of: Callable[[UUID], str]) -> AssignmentDiff | None:
    """Return lost and gained partitions; None if an assignment cannot be read, as of clients that are no consumers."""
    had, has = partitions_of(before, name_of), partitions_of(after, name_of)
    if had is None or has is None:
        return None
    return AssignmentDiff(
        _without(had, has), _without(has, had), sum(len(had[topic] & has.get(topic, frozenset())) for topic in had)
    )


def partitions_of(held: Held, name_of: Callable[[UUID], str]) -> Partitions | None:
    if held is None:
        return None
    if not isinstance(held, bytes):
        return {name_of(topic_id): frozenset(partitions) for topic_id, partitions in held.items()}
    if not held:
        return {}
    try:
        assigned = decode_assignment(held).assigned_partitions
    except MalformedMessage:
        return None
    partitions: Partitions = {}
    for each in assigned:
        # A leader may name a topic twice.
        partitions[each.topic] = partitions.get(each.topic, frozenset()).union(each.partitions)
    return partitions


def _without(these: Partitions, those: Partitions) -> Partitions:
    rest = {topic: partitions - those.get(topic, frozenset()) for topic, partitions in these.items()}
    return {topic: partitions for topic, partitions in rest.items() if partitions}
