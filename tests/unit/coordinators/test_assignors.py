"""What assignors promise: every partition to one subscriber, balance, as few moves as possible, ranges side by side."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from tests.unit.coordinators.group_specs import Assigned, fresh_specs, held_pairs, holding, pairs, size, specs

from strandline.coordinators.groups.assignors import Assignment, GroupSpec, MemberSpec, assign

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
FEW = settings(max_examples=40, deadline=None)


def group(members: Iterable[str], topics: dict[uuid.UUID, int], held: Assigned | None = None) -> GroupSpec:
    """Everybody subscribes to everything."""
    spec = GroupSpec({member: MemberSpec(frozenset(topics)) for member in members}, topics)
    return holding(spec, held or {})


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@FEW
@given(spec=specs())
def test_each_partition_goes_to_exactly_one_subscriber(assignor: str, spec: GroupSpec) -> None:
    assigned = assign(assignor, spec)
    assert list(assigned) == list(spec.members)
    subscribed = {topic_id for member in spec.members.values() for topic_id in member.topic_ids}
    owned = Counter((topic_id, partition) for _, topic_id, partition in pairs(assigned))
    assert owned == Counter({(topic, number): 1 for topic in subscribed for number in range(spec.partitions[topic])})
    for member_id, topics in assigned.items():
        assert set(topics) <= spec.members[member_id].topic_ids
        assert all(partitions == sorted(partitions) and partitions for partitions in topics.values())


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@FEW
@given(spec=specs())
def test_the_same_group_is_assigned_in_the_same_way(assignor: str, spec: GroupSpec) -> None:
    shuffled = GroupSpec(
        spec.members, {topic_id: spec.partitions[topic_id] for topic_id in reversed(list(spec.partitions))}
    )
    assert assign(assignor, spec) == assign(assignor, shuffled)


# Uniform.


@FEW
@given(spec=specs(homogeneous=True))
def test_uniform_sizes_differ_by_one_at_most(spec: GroupSpec) -> None:
    sizes = [size(assignment) for assignment in assign("uniform", spec).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@FEW
@given(spec=specs(homogeneous=True))
def test_uniform_moves_as_little_as_balance_allows(spec: GroupSpec) -> None:
    held = held_pairs(spec)
    kept = held.intersection(pairs(assign("uniform", spec)))
    # No member can keep more than the larger share, and only so many members can have that.
    counts = Counter(member_id for member_id, _, _ in held)
    total = sum(spec.partitions[topic_id] for topic_id in next(iter(spec.members.values())).topic_ids) if held else 0
    share, larger = divmod(total, len(spec.members) or 1)
    above = sum(count > share for count in counts.values())
    assert len(kept) == sum(min(count, share) for count in counts.values()) + min(above, larger)


@FEW
@given(spec=specs())
def test_uniform_is_at_rest_when_nothing_changed(spec: GroupSpec) -> None:
    once = assign("uniform", spec)
    assert assign("uniform", holding(spec, once)) == once


@FEW
@given(spec=specs(homogeneous=False))
def test_uniform_leaves_no_single_move_that_would_balance_better(spec: GroupSpec) -> None:
    assigned = assign("uniform", spec)
    sizes = {member_id: size(assignment) for member_id, assignment in assigned.items()}
    for owner, topic_id, _ in pairs(assigned):
        for other, member in spec.members.items():
            assert topic_id not in member.topic_ids or sizes[owner] - sizes[other] <= 1


def test_uniform_gives_a_new_member_its_share_and_touches_nothing_else() -> None:
    before = assign("uniform", group("ab", {A: 6}))
    assert before == {"a": {A: [0, 1, 2]}, "b": {A: [3, 4, 5]}}
    after = assign("uniform", group("abc", {A: 6}, before))
    assert after == {"a": {A: [0, 1]}, "b": {A: [3, 4]}, "c": {A: [2, 5]}}
    assert assign("uniform", group("ac", {A: 6}, after)) == {"a": {A: [0, 1, 3]}, "c": {A: [2, 4, 5]}}


def test_uniform_lets_those_keep_the_odd_partition_who_have_it() -> None:
    held: Assigned = {"a": {A: [0]}, "b": {A: [1, 2]}}
    assert assign("uniform", group("ab", {A: 3}, held)) == held


def test_uniform_takes_only_one_at_its_word_if_two_hold_the_same() -> None:
    held: Assigned = {"a": {A: [0, 1]}, "b": {A: [1, 2]}}
    assert assign("uniform", group("ab", {A: 4}, held)) == {"a": {A: [0, 1]}, "b": {A: [2, 3]}}


def test_uniform_with_unlike_subscriptions_gives_the_rest_to_who_has_less() -> None:
    spec = GroupSpec({"a": MemberSpec(frozenset({A})), "b": MemberSpec(frozenset({A, B}))}, {A: 4, B: 2})
    assert assign("uniform", spec) == {"a": {A: [0, 1, 2]}, "b": {A: [3], B: [0, 1]}}


def test_uniform_with_unlike_subscriptions_evens_out_what_was_held() -> None:
    held: dict[str, Assignment] = {"a": {A: [0, 1, 2, 3, 4, 5]}}
    spec = GroupSpec({"a": MemberSpec(frozenset({A, B}), held["a"]), "b": MemberSpec(frozenset({A}))}, {A: 6, B: 2})
    assigned = assign("uniform", spec)
    assert {member: size(each) for member, each in assigned.items()} == {"a": 4, "b": 4}
    assert assigned["a"][B] == [0, 1]


# Range.


@FEW
@given(spec=specs())
def test_ranges_are_runs_in_the_order_of_the_members(spec: GroupSpec) -> None:
    assigned = assign("range", spec)
    ordered = sorted(
        spec.members, key=lambda m: (spec.members[m].instance_id is None, spec.members[m].instance_id or m)
    )
    for topic_id, count in spec.partitions.items():
        runs = [assigned[member].get(topic_id, []) for member in ordered]
        if any(topic_id in member.topic_ids for member in spec.members.values()):
            assert [partition for run in runs for partition in run] == list(range(count))
        sizes = [
            len(assigned[member].get(topic_id, [])) for member in ordered if topic_id in spec.members[member].topic_ids
        ]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or max(sizes) - min(sizes) <= 1


@FEW
@given(spec=fresh_specs(homogeneous=True))
def test_topics_of_one_size_are_co_partitioned(spec: GroupSpec) -> None:
    alike = GroupSpec(spec.members, dict.fromkeys(spec.partitions, 7))
    for assignment in assign("range", alike).values():
        assert len({tuple(partitions) for partitions in assignment.values()}) <= 1


def test_static_members_keep_their_ranges_when_they_come_back_under_other_ids() -> None:
    topics = frozenset({A, B})

    def assigned(ids: dict[str, str]) -> dict[str, Assignment]:
        members = {member_id: MemberSpec(topics, instance_id=instance_id) for instance_id, member_id in ids.items()}
        by_member = assign("range", GroupSpec(members, {A: 3, B: 3}))
        return {instance_id: by_member[member_id] for instance_id, member_id in ids.items()}

    before = assigned({"one": "x", "two": "y"})
    assert before == {"one": {A: [0, 1], B: [0, 1]}, "two": {A: [2], B: [2]}}
    assert assigned({"one": "z", "two": "a"}) == before


def test_members_beyond_the_partitions_get_nothing() -> None:
    assert assign("range", group("abc", {A: 2})) == {"a": {A: [0]}, "b": {A: [1]}, "c": {}}
    assert assign("uniform", group("abc", {A: 2})) == {"a": {A: [0]}, "b": {A: [1]}, "c": {}}


def test_a_group_without_members_or_topics_has_nothing() -> None:
    for assignor in ("uniform", "range"):
        assert assign(assignor, group("", {A: 2})) == {}
        assert assign(assignor, group("a", {})) == {"a": {}}
