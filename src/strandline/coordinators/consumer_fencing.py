"""How members of a group of the consumer protocol go: they leave, their session ends, or they hold on for too long."""

from __future__ import annotations

from collections.abc import MutableMapping

from strandline.coordinators.consumer_group import ConsumerGroup, ConsumerMember, Group, MemberState
from strandline.coordinators.consumer_records import member_tombstones, target_epoch_record
from strandline.coordinators.consumer_target import move_epoch
from strandline.coordinators.events import Record, TimerKey, TimerKind
from strandline.coordinators.group_history import Happening
from strandline.coordinators.turn import Turn


def session_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def rebalance_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REBALANCE, group.group_id, member_id)


def restart_session(group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
    classic = member.classic
    turn.start_timer(
        session_key(group, member.member_id),
        turn.config.consumer_settings(group.group_id).session_timeout_ms
        if classic is None
        else classic.session_timeout_ms,
    )


def cancel_timers(group: ConsumerGroup, member_id: str, turn: Turn) -> None:
    turn.cancel_timer(session_key(group, member_id))
    turn.cancel_timer(rebalance_key(group, member_id))


def on_loaded(group: ConsumerGroup, turn: Turn) -> None:
    """How long a member was silent before we took over is unknown, so each gets all its time again."""
    for member in group.members.values():
        restart_session(group, member, turn)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            turn.start_timer(rebalance_key(group, member.member_id), member.rebalance_timeout_ms)


def on_timer(groups: MutableMapping[str, Group], group: ConsumerGroup, key: TimerKey, turn: Turn) -> None:
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.kind is TimerKind.SESSION:
        turn.note(group, Happening.TIMED_OUT, member)
        remove_member(groups, group, member, turn)
    elif key.kind is TimerKind.REBALANCE and member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.note(group, Happening.LATE, member)
        remove_member(groups, group, member, turn)
    turn.settle(group)


def remove_member(groups: MutableMapping[str, Group], group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
    """Take a member out of the group. What it owned is free from the moment that this is in the log."""
    cancel_timers(group, member.member_id, turn)
    turn.append(*records_without(group, member, turn))


def records_without(group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> list[Record]:
    group.remove(member.member_id)
    records = member_tombstones(group.group_id, member.member_id)
    records += move_epoch(group, turn, must_move=True)
    if not group.members:
        # Nobody is left to be assigned anything. Who comes next need not wait for the interval to pass.
        group.set_target({}, epoch=group.group_epoch, now_ms=0)
        records.append(target_epoch_record(group))
    return records
