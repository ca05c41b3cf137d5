"""Groups for assignors, made by Hypothesis: members, what they subscribe to, and what they held before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from hypothesis import strategies as st

from strandline.coordinators.groups.assignors import Assignment, GroupSpec, MemberSpec, assign

TOPICS = tuple(uuid.UUID(int=1_000 + number) for number in range(5))

Assigned = dict[str, Assignment]


@st.composite
def specs(draw: st.DrawFn, *, homogeneous: bool | None = None) -> GroupSpec:
    """A group after some life: what its members hold came from an assignor, for members and topics of that time."""
    before = draw(fresh_specs(homogeneous=homogeneous))
    after = draw(fresh_specs(homogeneous=homogeneous))
    held = assign(draw(st.sampled_from(("uniform", "range"))), before)
    return holding(after, held)


@st.composite
def fresh_specs(draw: st.DrawFn, *, homogeneous: bool | None = None) -> GroupSpec:
    partitions = {topic_id: draw(st.integers(0, 12)) for topic_id in draw(st.sets(st.sampled_from(TOPICS)))}
    existing = sorted(partitions, key=int)
    subscription = st.frozensets(st.sampled_from(existing)) if existing else st.just(frozenset[uuid.UUID]())
    if homogeneous or (homogeneous is None and draw(st.booleans())):
        subscription = st.just(draw(subscription))
    members = {}
    for number in sorted(draw(st.sets(st.integers(0, 9), max_size=8))):
        instance_id = f"i{9 - number}" if draw(st.booleans()) else None
        members[f"m{number}"] = MemberSpec(draw(subscription), instance_id=instance_id)
    return GroupSpec(members, partitions)


def holding(spec: GroupSpec, held: Mapping[str, Assignment]) -> GroupSpec:
    """The group with its members holding what they were assigned before; topics may be gone and smaller ones grown."""
    members = {
        member_id: MemberSpec(member.topic_ids, held.get(member_id, {}), member.instance_id)
        for member_id, member in spec.members.items()
    }
    return GroupSpec(members, spec.partitions)


def pairs(assigned: Mapping[str, Mapping[uuid.UUID, object]]) -> list[tuple[str, uuid.UUID, int]]:
    """Who has which partition."""
    return [
        (member_id, topic_id, partition)
        for member_id, topics in assigned.items()
        for topic_id, partitions in topics.items()
        for partition in partitions  # type: ignore[attr-defined]
    ]


def held_pairs(spec: GroupSpec) -> set[tuple[str, uuid.UUID, int]]:
    """What members hold, subscribe to and could keep."""
    return {
        (member_id, topic_id, partition)
        for member_id, member in spec.members.items()
        for topic_id, partitions in member.assigned.items()
        if topic_id in member.topic_ids
        for partition in partitions
        if partition < spec.partitions.get(topic_id, 0)
    }


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))
