"""How members of a share group go: they leave, or their session ends."""

from __future__ import annotations

from strandline.coordinators.groups.shard_terms import TimerKey, TimerKind
from strandline.coordinators.groups.share.records import member_tombstones, target_epoch_record
from strandline.coordinators.groups.share.share_group import ShareGroup, ShareMember
from strandline.coordinators.groups.share.target_assignment import maybe_move_epoch
from strandline.coordinators.groups.step_context import StepContext


def restart_session(group: ShareGroup, member_id: str, step: StepContext) -> None:
    timeout_ms = step.config.share_settings(group.group_id).session_timeout_ms
    step.start_timer(TimerKey(TimerKind.SESSION, group.group_id, member_id), timeout_ms)


def on_loaded(group: ShareGroup, step: StepContext) -> None:
    """Start the session of every member, because how long each was silent is unknown."""
    group.epoch_is_spent = bool(group.initializing)
    for member_id in group.members:
        restart_session(group, member_id, step)


def on_timer(group: ShareGroup, key: TimerKey, step: StepContext) -> None:
    member = group.members.get(key.member_id)
    if member is not None and key.kind is TimerKind.SESSION:
        remove_member(group, member, step)


def remove_member(group: ShareGroup, member: ShareMember, step: StepContext) -> None:
    """Take a member out of the group. The next heartbeat of another one assigns its partitions."""
    group.remove(member.member_id)
    step.cancel_timer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))
    records = member_tombstones(group.group_id, member.member_id)
    records += maybe_move_epoch(group, step, must_move=True)
    if not group.members:
        # The next member need not wait for the assignment interval.
        group.set_target({}, epoch=group.group_epoch, now_ms=0)
        records.append(target_epoch_record(group))
    step.append(*records)
