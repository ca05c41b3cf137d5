"""How members of a group of the consumer protocol go: they leave, their session ends, or they hold on for too long."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from strandline.coordinators.groups import migration
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.rebalance import NOT_JOINED, NOT_SYNCED, prepare_rebalance, silence
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from strandline.coordinators.groups.consumer.records import member_tombstones, target_epoch_record
from strandline.coordinators.groups.consumer.target_assignment import move_epoch
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.step_context import StepContext

LATE_REASONS = {
    TimerKind.REBALANCE: "did not give up partitions within the rebalance timeout",
    TimerKind.JOIN: NOT_JOINED,
    TimerKind.SYNC: NOT_SYNCED,
}


def session_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def rebalance_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REBALANCE, group.group_id, member_id)


def restart_session(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> None:
    step.start_timer(session_key(group, member.member_id), session_timeout_ms(group, member, step))


def session_timeout_ms(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> int:
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return step.config.consumer_settings(group.group_id).session_timeout_ms


def cancel_timers(group: ConsumerGroup, member_id: str, step: StepContext) -> None:
    step.cancel_timer(session_key(group, member_id))
    step.cancel_timer(rebalance_key(group, member_id))
    if group.members[member_id].classic is not None:
        step.cancel_timer(TimerKey(TimerKind.JOIN, group.group_id, member_id))
        step.cancel_timer(TimerKey(TimerKind.SYNC, group.group_id, member_id))


def on_loaded(group: ConsumerGroup, step: StepContext) -> None:
    """How long a member was silent before we took over is unknown, so each gets all its time again."""
    for member in group.members.values():
        restart_session(group, member, step)
        if member.pending_revocation and member.classic is None:
            step.start_timer(rebalance_key(group, member.member_id), max(member.rebalance_timeout_ms, 0))


def on_timer(groups: MutableMapping[str, Group], group: ConsumerGroup, key: TimerKey, step: StepContext) -> None:
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.kind is TimerKind.SESSION:
        step.note(group, Happening.TIMED_OUT, member, reason=silence(session_timeout_ms(group, member, step)))
        remove_member(groups, group, member, step)
    elif is_late(member, key.kind):
        step.note(group, Happening.LATE, member, reason=LATE_REASONS[key.kind])
        remove_member(groups, group, member, step)


def is_late(member: ConsumerMember, kind: TimerKind) -> bool:
    if kind is TimerKind.REBALANCE:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    # JOIN and SYNC are for members of the classic protocol; this one may speak the other by now.
    return member.classic is not None


def remove_member(
    groups: MutableMapping[str, Group], group: ConsumerGroup, member: ConsumerMember, step: StepContext
) -> None:
    remove_members(groups, group, [member], step)


def remove_members(
    groups: MutableMapping[str, Group], group: ConsumerGroup, members: Sequence[ConsumerMember], step: StepContext
) -> None:
    """Take members out of the group. What they owned is free from the moment that this is in the log.

    If only members of the classic protocol are left, the group may become a classic one again.
    """
    gone = {member.member_id: None for member in members}
    classic = migration.downgrade(group, step, without=gone)
    if classic is not None:
        step.note(group, Happening.CONVERTED, reason="only members of the classic protocol are left")
        groups[group.group_id] = classic
        prepare_rebalance(classic, step)
        return
    for member in members:
        cancel_timers(group, member.member_id, step)
    step.append(*records_without(group, members, step))
    step.settle(group)


def records_without(
    group: ConsumerGroup, members: Sequence[ConsumerMember], step: StepContext
) -> list[CoordinatorRecord]:
    records: list[CoordinatorRecord] = []
    for member in members:
        group.remove(member.member_id)
        records += member_tombstones(group.group_id, member.member_id)
    records += move_epoch(group, step, must_move=True)
    if not group.members:
        # No member is left. The next one need not wait for the assignment interval.
        group.set_target({}, epoch=group.group_epoch, now_ms=0)
        records.append(target_epoch_record(group))
    return records
