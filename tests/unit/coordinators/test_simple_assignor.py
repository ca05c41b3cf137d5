"""The assignor of share groups: every assignable partition has members, sizes are even, members keep what they can."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.coordinators.groups.assignors import Assignment, MemberSpec
from strandline.coordinators.groups.assignors.simple import assign_simple

TOPICS = tuple(uuid.UUID(int=1_000 + number) for number in range(4))
FEW = settings(max_examples=60, deadline=None)

Assignable = dict[uuid.UUID, frozenset[int]]


@st.composite
def shares(draw: st.DrawFn, *, homogeneous: bool = False) -> tuple[dict[str, MemberSpec], Assignable]:
    """Members that hold anything, also what they never were given, and the partitions that are initialised."""
    assignable: Assignable = draw(
        st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 11), max_size=9), max_size=4)
    )
    subscription = st.frozensets(st.sampled_from(TOPICS))
    if homogeneous:
        subscription = st.just(draw(subscription))
    held = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(0, 12), unique=True, max_size=6), max_size=3)
    members = {
        f"m{number}": MemberSpec(draw(subscription), draw(held))
        for number in draw(st.lists(st.integers(0, 40), unique=True, max_size=14))
    }
    return members, assignable


def pairs(assigned: Mapping[str, Assignment]) -> set[tuple[str, uuid.UUID, int]]:
    return {
        (member_id, topic_id, index)
        for member_id, topics in assigned.items()
        for topic_id, indexes in topics.items()
        for index in indexes
    }


def keeping(members: Mapping[str, MemberSpec], assigned: Mapping[str, Assignment]) -> dict[str, MemberSpec]:
    return {member_id: MemberSpec(member.topic_ids, assigned[member_id]) for member_id, member in members.items()}


def sizes(assigned: Mapping[str, Assignment]) -> list[int]:
    return [sum(map(len, topics.values())) for topics in assigned.values()]


@FEW
@given(group=shares())
def test_every_assignable_partition_with_a_subscriber_has_a_member(
    group: tuple[dict[str, MemberSpec], Assignable],
) -> None:
    members, assignable = group
    assigned = assign_simple(members, assignable)
    assert list(assigned) == list(members)
    subscribed = {topic_id for member in members.values() for topic_id in member.topic_ids}
    wanted = {(topic_id, index) for topic_id in subscribed for index in assignable.get(topic_id, ())}
    assert {(topic_id, index) for _, topic_id, index in pairs(assigned)} == wanted
    for member_id, topics in assigned.items():
        assert topics.keys() <= members[member_id].topic_ids
        assert all(indexes and indexes == sorted(set(indexes)) for indexes in topics.values())


@FEW
@given(group=shares(homogeneous=True))
def test_members_of_one_subscription_and_partitions_are_even(group: tuple[dict[str, MemberSpec], Assignable]) -> None:
    members, assignable = group
    assigned = assign_simple(members, assignable)
    counts = sizes(assigned)
    assert max(counts, default=0) - min(counts, default=0) <= 1
    holders = Counter((topic_id, index) for _, topic_id, index in pairs(assigned))
    if holders:
        assert set(holders.values()) == {-(-len(members) // len(holders))}
        assert min(counts) >= 1


@pytest.mark.lengthy("many examples, each of them costly")
@FEW
@given(group=shares())
def test_a_group_that_did_not_change_keeps_its_assignment(group: tuple[dict[str, MemberSpec], Assignable]) -> None:
    members, assignable = group
    assigned = assign_simple(members, assignable)
    assert assign_simple(keeping(members, assigned), assignable) == assigned


@pytest.mark.lengthy("many examples, each of them costly")
@FEW
@given(group=shares(homogeneous=True), data=st.data())
def test_when_members_come_and_go_no_more_moves_than_must(
    group: tuple[dict[str, MemberSpec], Assignable], data: st.DataObject
) -> None:
    members, assignable = group
    before = keeping(members, assign_simple(members, assignable))
    gone = data.draw(st.sets(st.sampled_from(sorted(before)))) if before else set()
    after = {member_id: member for member_id, member in before.items() if member_id not in gone}
    topic_ids = next((member.topic_ids for member in before.values()), frozenset())
    after |= {f"new{number}": MemberSpec(topic_ids) for number in range(data.draw(st.integers(0, 3)))}
    assigned = assign_simple(after, assignable)
    places = sum(len(assignable.get(topic_id, ())) for topic_id in topic_ids)
    if not places or len(before) > places or len(after) > places:
        return
    held = {member_id: sum(map(len, member.assigned.values())) for member_id, member in after.items()}
    kept = pairs(assigned) & pairs({member_id: dict(member.assigned) for member_id, member in after.items()})  # type: ignore[arg-type]
    for member_id, count in zip(assigned, sizes(assigned), strict=True):
        assert sum(member_id == who for who, _, _ in kept) == min(held[member_id], count)


@pytest.mark.parametrize(
    ("members", "partitions", "expected"),
    [
        (1, 3, [3]),
        (2, 3, [2, 1]),
        (3, 3, [1, 1, 1]),
        (4, 3, [2, 2, 1, 1]),
        (5, 3, [2, 1, 1, 1, 1]),
        (6, 3, [1] * 6),
        (7, 1, [1] * 7),
    ],
)
def test_sizes(members: int, partitions: int, expected: list[int]) -> None:
    topic = TOPICS[0]
    specs = {f"m{number}": MemberSpec(frozenset((topic,))) for number in range(members)}
    assert sorted(sizes(assign_simple(specs, {topic: range(partitions)})), reverse=True) == expected


def test_a_member_of_unlike_subscription_gets_the_odd_partition_where_it_has_less() -> None:
    shared, own = TOPICS[0], TOPICS[1]
    members = {"busy": MemberSpec(frozenset((shared, own))), "idle": MemberSpec(frozenset((shared,)))}
    assigned = assign_simple(members, {shared: range(1, 4), own: range(2)})
    assert sizes(assigned) == [3, 2]
