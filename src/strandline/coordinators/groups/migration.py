"""A live group changes its protocol: from classic to consumer when the first consumer of the new kind joins it, and
back when the last one is gone.

    ClassicGroup --(ConsumerGroupHeartbeat with epoch 0)--> ConsumerGroup, its members still speak the classic protocol
    ConsumerGroup --(only members of the classic protocol are left)--> ClassicGroup, which rebalances

Assignments are kept, so no member releases a partition because of the change, and none gets one that another may still
read. The generation becomes the epoch and the epoch the generation, so members can continue to commit. All records of a
change are appended together: those that end the group of the one kind, then those that start the other.

Narrower than Kafka: a static consumer that is replaced by a classic one makes a classic group without a rebalance only
if every member owns exactly what the target gives it; Kafka hands out the target although others may hold parts of
it. Wider: what assignors of the common clients add to an assignment for themselves does not stand in the way, and a
consumer group that has only classic members becomes classic, whichever member left last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from strandline.codec.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, GroupState
from strandline.coordinators.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from strandline.coordinators.groups.classic.rebalance import (
    answer_waiting,
    join_key,
    restart_session,
    session_key,
    sync_key,
)
from strandline.coordinators.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    Partitions,
)
from strandline.coordinators.groups.consumer.records import consumer_group_tombstones
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_records import group_metadata_record
from strandline.coordinators.groups.shard_terms import TimerKey, TimerKind
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics, metadata_hash
from strandline.errors import ErrorCode, MalformedMessage, RequestError

COMMON_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors of the common clients. What they keep for themselves in an assignment, ours need not know."""


# ---- from classic to consumer


def upgraded(group: ClassicGroup, step: StepContext) -> ConsumerGroup:
    """Return the consumer group that continues the classic one, which is not changed; raise if that is not possible."""
    if not step.config.consumer_migration_policy.allows_upgrade:
        raise _refusal(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refusal(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > step.config.consumer_group_size_max:
        raise _refusal(group, "the group size exceeds the consumer group maximum size")
    try:
        return _as_consumer_group(group, step.topics)
    except MalformedMessage:
        raise _refusal(group, "the embedded consumer protocol is malformed") from None


def _refusal(group: ClassicGroup, reason: str) -> RequestError:
    return RequestError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def release(group: ClassicGroup, step: StepContext) -> None:
    """End a classic group. Its waiting members retry, and then find the consumer group."""
    step.cancel_timer(join_key(group))
    step.cancel_timer(sync_key(group))
    for member_id in group.pending_join:
        # The client with this id may still join with it, because a consumer group accepts any id.
        step.cancel_timer(session_key(group, member_id))
    for member in group.members.values():
        answer_waiting(group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, step, told_id=member.member_id)
        restart_session(group, member, step)


def _as_consumer_group(group: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """Every member with what it owns at the most. Raises MalformedMessage and RequestError."""
    consumer = ConsumerGroup(group.group_id)
    consumer.group_epoch = group.generation_id
    for member in group.members.values():
        metadata = next((each for each in member.protocols if each.name == group.protocol_name), member.protocols[0])
        subscription = decode_subscription(metadata.metadata)
        owned: Iterable[TopicPartition | OwnedPartitions]
        if member.assignment:
            assignment = decode_assignment(member.assignment)
            if assignment.user_data and group.protocol_name not in COMMON_ASSIGNORS:
                raise _refusal(
                    group,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade",
                )
            owned = assignment.assigned_partitions
        else:
            # It is new, or its generation was called off before it got an assignment. Then it still has what it had
            # when it joined, if it rebalances cooperatively.
            owned = subscription.owned_partitions
        consumer.add(
            ConsumerMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=frozenset(subscription.topics),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicMember(member.session_timeout_ms, member.protocols),
                member_epoch=group.generation_id,
                previous_member_epoch=group.generation_id,
                assigned=_unowned(owned, consumer, topics, epoch=group.generation_id),
            )
        )
    consumer.set_target(
        {
            member.member_id: {topic_id: sorted(partitions) for topic_id, partitions in member.assigned.items()}
            for member in consumer.members.values()
        },
        epoch=group.generation_id,
        # As if long ago: the target for the member that joins need not wait.
        now_ms=0,
    )
    if group.state is GroupState.STABLE and _is_complete(consumer, topics):
        consumer.metadata_hash = metadata_hash(topics, consumer.subscribed_topic_names)
    # Else no topics are known to be assigned, so the epoch moves even if a static member only takes its seat.
    return consumer


def _is_complete(group: ConsumerGroup, topics: Topics) -> bool:
    """Return whether every partition of the topics is owned, by a member that subscribes to its topic."""
    wanted = sum(facts.partitions for name in group.subscribed_topic_names if (facts := topics.named(name)))
    owned = sum(
        len(partitions)
        for member in group.members.values()
        for topic_id, partitions in member.assigned.items()
        if (facts := topics.by_id(topic_id)) and facts.name in member.subscribed_topic_names
    )
    return owned == wanted


def _unowned(
    owned: Iterable[TopicPartition | OwnedPartitions], group: ConsumerGroup, topics: Topics, *, epoch: int
) -> Partitions:
    """The partitions that exist and that no other member owns: what a leader assigned was never checked."""
    partitions: Partitions = {}
    for each in owned:
        facts = topics.named(each.topic)
        if facts is None:
            continue
        for partition in each.partitions:
            if 0 <= partition < facts.partitions and group.owner(facts.id, partition) is None:
                partitions.setdefault(facts.id, {})[partition] = epoch
    return partitions


# ---- from consumer to classic


def may_downgrade(group: ConsumerGroup, config: GroupConfig, *, without: Collection[str]) -> bool:
    """Return whether only classic members are left without these, and the group may become classic."""
    staying = [member for member in group.members.values() if member.member_id not in without]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.consumer_migration_policy.allows_downgrade
        and len(staying) <= config.group_size_max
        and bool(common_protocols(staying))
    )


def common_protocols(members: Iterable[ConsumerMember]) -> set[str]:
    """Return the classic protocols that all classic members among these support."""
    offers = [{protocol.name for protocol in each.classic.protocols} for each in members if each.classic is not None]
    return set.intersection(*offers) if offers else set()


def downgrade(group: ConsumerGroup, step: StepContext, *, without: Collection[str] = ()) -> ClassicGroup | None:
    """Return the classic group of the members that stay, stable in the generation with the number of the epoch.

    The caller then has it rebalance unless it `is_agreed`. None if the group stays as it is, and nothing has changed.
    """
    if not may_downgrade(group, step.config, without=without):
        return None
    classic = _as_classic_group(group, step, without=without)
    metadata = group_metadata_record(classic, is_agreed=is_agreed(group, without=without))
    if metadata.size_bytes > step.config.group_record_bytes_max:
        # Here each member has records of its own, there all are in one. It could not be written.
        return None
    for member in group.members.values():
        _cancel_timers(group, member, step)
    for joined in classic.members.values():
        restart_session(classic, joined, step)
    step.append(*consumer_group_tombstones(group), metadata)
    return classic


def _as_classic_group(group: ConsumerGroup, step: StepContext, *, without: Collection[str]) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, now_ms=step.now_ms)
    classic.state = GroupState.STABLE
    classic.generation_id = group.group_epoch
    for member in group.members.values():
        if member.member_id not in without:
            assert member.classic is not None
            classic.add(_as_classic_member(member, member.classic), PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    for joined in classic.members.values():
        # What it may own, not what it was to own: should the group change again before it has rebalanced, others must
        # not be given what this one still reads.
        owned = _owned(group.members[joined.member_id])
        joined.assignment = assignment_of(owned, step.topics, joined.metadata_of(classic.protocol_name))
    return classic


def is_agreed(group: ConsumerGroup, *, without: Collection[str] = ()) -> bool:
    """Return whether every member owns what the target gives it, and the target leaves nothing to those who are gone.

    If not, the classic group has to rebalance, and its record says so: without a leader nothing is agreed. A
    coordinator that takes over in the middle would else find a stable group in which some partitions have no owner.
    """
    return not without and group.state is ConsumerGroupState.STABLE


def _as_classic_member(member: ConsumerMember, classic: ClassicMember) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
    )


def _owned(member: ConsumerMember) -> dict[UUID, list[int]]:
    owned: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    return owned


def assignment_of(partitions: Mapping[UUID, Iterable[int]], topics: Topics, metadata: bytes) -> bytes:
    """Encode the assignment for the member with this metadata: by names instead of ids, in its version."""
    named = [(facts.name, each) for topic_id, each in partitions.items() if (facts := topics.by_id(topic_id))]
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=name, partitions=sorted(each)) for name, each in sorted(named)]
    )
    try:
        version = version_of(metadata)
    except MalformedMessage:
        # We accept no such member, but the log may come from another broker. All clients know version 0.
        version = 0
    return encode_assignment(assignment, version)


def _cancel_timers(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> None:
    for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
        step.cancel_timer(TimerKey(kind, group.group_id, member.member_id))
