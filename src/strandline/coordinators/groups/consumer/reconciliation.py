"""How one member gets from what it owns to its part of the target assignment, one heartbeat after the other.

    assigned      & target            it keeps
    assigned      - target            it gives up; until it says so by what it owns, it stays in its epoch
    target        - assigned          it gets, as far as no other member owns it, and moves to the epoch of the target

The three outcomes are the states UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS and STABLE. Topics that the member does
not subscribe to any more count as not in the target, which may be older than its subscription.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from strandline.codec.messages.consumer_group_heartbeat_request import TopicPartitions
from strandline.coordinators.groups.consumer.consumer_group import (
    INITIAL_ASSIGNMENT_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)

if TYPE_CHECKING:
    from strandline.coordinators.groups.assignors.spec import Assignment
    from strandline.coordinators.groups.topics import Topics

Owned = Iterable[TopicPartitions] | None
"""What a member says that it owns; None if it says nothing, because nothing changed."""

NOTHING: Assignment = {}


class Reconciled(NamedTuple):
    state: MemberState
    member_epoch: int
    assigned: Partitions
    pending_revocation: Partitions


def reconcile(
    group: ConsumerGroup, member: ConsumerMember, topics: Topics, *, owned: Owned, subscription_changed: bool
) -> bool:
    """Let the member take the next step; False if there is none to take now."""
    target_epoch = max(group.assignment_epoch, INITIAL_ASSIGNMENT_EPOCH)
    if member.is_reconciled_to(target_epoch) and not subscription_changed:
        return False
    outcome = _next(group, member, topics, target_epoch, owned, subscription_changed=subscription_changed)
    if outcome is None:
        return False
    is_same = (
        outcome.state is member.state
        and outcome.member_epoch == member.member_epoch
        and outcome.assigned == member.assigned
        and outcome.pending_revocation == member.pending_revocation
    )
    if is_same and member.previous_member_epoch == member.member_epoch:
        return False
    # The epoch before is remembered, for the answer that tells of the new one may get lost.
    member.previous_member_epoch = member.member_epoch
    member.member_epoch = outcome.member_epoch
    member.state = outcome.state
    if not is_same:
        group.set_partitions(member, assigned=outcome.assigned, pending_revocation=outcome.pending_revocation)
    return True


def _next(
    group: ConsumerGroup,
    member: ConsumerMember,
    topics: Topics,
    target_epoch: int,
    owned: Owned,
    *,
    subscription_changed: bool,
) -> Reconciled | None:
    subscribed = SubscribedIds(group.topics_of(member), topics)
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return _unsubscribed(member, subscribed, owned) if subscription_changed else None
        case MemberState.UNREVOKED_PARTITIONS if owns_any(owned, member.pending_revocation):
            return _unsubscribed(member, subscribed, owned) if subscription_changed else None
        case MemberState.UNKNOWN:
            # It was let pass only because it owns nothing, so it starts afresh.
            return _towards_target(group, member, subscribed, target_epoch, owned, member_epoch=target_epoch)
        case _:
            return _towards_target(group, member, subscribed, target_epoch, owned, member_epoch=member.member_epoch)


class SubscribedIds:
    """The ids of the topics that a member subscribes to; looked up as they are asked for, there may be thousands."""

    def __init__(self, names: Container[str], topics: Topics) -> None:
        self._names = names
        self._topics = topics

    def __contains__(self, topic_id: UUID) -> bool:
        facts = self._topics.by_id(topic_id)
        return facts is not None and facts.name in self._names


def _towards_target(
    group: ConsumerGroup,
    member: ConsumerMember,
    subscribed: SubscribedIds,
    target_epoch: int,
    owned: Owned,
    *,
    member_epoch: int,
) -> Reconciled:
    target = group.target.get(member.member_id, NOTHING)
    keeps: Partitions = {}
    gives_up: Partitions = {}
    gets: dict[UUID, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*member.assigned, *target)):
        wanted: Collection[int] = target.get(topic_id, ()) if topic_id in subscribed else ()
        wanted_set = frozenset(wanted)
        has = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in has.items() if partition in wanted_set}
        lost = {partition: epoch for partition, epoch in has.items() if partition not in wanted_set}
        missing = [partition for partition in wanted if partition not in has]
        # A partition that the member itself is releasing counts as free, because no other member can have got it.
        free = [partition for partition in missing if group.owner(topic_id, partition) in (None, member.member_id)]
        waits = waits or len(free) < len(missing)
        if kept:
            keeps[topic_id] = kept
        if lost:
            gives_up[topic_id] = lost
        if free:
            gets[topic_id] = free
    if gives_up and owns_any(owned, gives_up):
        return Reconciled(MemberState.UNREVOKED_PARTITIONS, member_epoch, keeps, gives_up)
    for topic_id, partitions in gets.items():
        both = keeps.get(topic_id, {}) | dict.fromkeys(partitions, target_epoch)
        keeps[topic_id] = dict(sorted(both.items()))
    return Reconciled(MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE, target_epoch, keeps, {})


def _unsubscribed(member: ConsumerMember, subscribed: SubscribedIds, owned: Owned) -> Reconciled | None:
    """Take away the topics that it does not subscribe to any more, although no new target is there yet."""
    keeps = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    if len(keeps) == len(member.assigned):
        return None
    gives_up = dict(member.pending_revocation)
    for topic_id, partitions in member.assigned.items():
        if topic_id not in keeps:
            gives_up[topic_id] = gives_up.get(topic_id, {}) | partitions
    if owns_any(owned, gives_up):
        return Reconciled(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, keeps, gives_up)
    return Reconciled(member.state, member.member_epoch, keeps, member.pending_revocation)


def owns_any(owned: Owned, partitions: Partitions) -> bool:
    """Return whether the member still owns any of these; as long as it does not say, it does."""
    if owned is None:
        return True
    return any(
        partition in some
        for topic in owned
        if (some := partitions.get(topic.topic_id)) is not None
        for partition in topic.partitions
    )
