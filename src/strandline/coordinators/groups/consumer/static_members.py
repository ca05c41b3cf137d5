"""Static members of the consumer protocol: their seat is kept while they are away, and a new process takes it."""

from __future__ import annotations

from strandline.coordinators.groups.consumer.consumer_group import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from strandline.coordinators.groups.consumer.fencing import cancel_timers, rebalance_key
from strandline.coordinators.groups.consumer.records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.step_context import StepContext


def keep_seat(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> None:
    """A static member goes and means to be back. Its session goes on, and with it its hold on what it owns."""
    step.note(group, Happening.AWAY, member, opens=False)
    step.cancel_timer(rebalance_key(group, member.member_id))
    member.member_epoch = STATIC_LEAVE_EPOCH
    # What it was giving up it has given up now: it has stopped. What it keeps is its successor's from the first epoch
    # that this one will have.
    group.set_partitions(member, assigned=since(member.assigned, JOIN_EPOCH), pending_revocation={})
    step.append(current_record(group.group_id, member))


def own_from_now(group: ConsumerGroup, member: ConsumerMember) -> None:
    """What belongs to its seat is the member's own from the present epoch on; what it or others did before is past."""
    assigned = since(member.assigned, group.assignment_epoch)
    pending_revocation = since(member.pending_revocation, group.assignment_epoch)
    group.set_partitions(member, assigned=assigned, pending_revocation=pending_revocation)


def since(owned: Partitions, epoch: int) -> Partitions:
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in owned.items()}


def replace_static_member(
    group: ConsumerGroup, seated: ConsumerMember, member_id: str, records: list[CoordinatorRecord], step: StepContext
) -> ConsumerMember:
    """A new process takes the seat that its predecessor left: what that owned, and was to own, is its own now."""
    cancel_timers(group, seated.member_id, step)
    target = group.target.get(seated.member_id, {})
    group.remove(seated.member_id)
    member = ConsumerMember(
        member_id,
        seated.instance_id,
        seated.rack_id,
        seated.client_id,
        seated.client_host,
        seated.subscribed_topic_names,
        seated.subscribed_topic_regex,
        seated.rebalance_timeout_ms,
        seated.server_assignor,
        seated.classic,
        member_epoch=JOIN_EPOCH,
        previous_member_epoch=JOIN_EPOCH,
        state=seated.state,
        assigned=seated.assigned,
        pending_revocation=seated.pending_revocation,
    )
    group.add(member)
    group.target[member_id] = target
    records += member_tombstones(group.group_id, seated.member_id)
    records.append(member_record(group.group_id, member))
    records.append(target_record(group.group_id, member_id, target))
    records.append(current_record(group.group_id, member))
    return member
