"""When a share group gets a new epoch, and what its target assignment is for it.

The epoch moves when members, their subscriptions, the topics behind these, or the initialised partitions change. The
assignment is computed by the first heartbeat that is at least `group.share.assignment.interval.ms` after the last one.
"""

from __future__ import annotations

from uuid import UUID

from strandline.coordinators.groups.assignors import MemberSpec
from strandline.coordinators.groups.assignors.simple import assign_simple
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share.records import changed_targets, group_epoch_record, target_epoch_record
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics, metadata_hash


def on_topics_changed(group: ShareGroup, names: frozenset[str]) -> None:
    """Have the next heartbeat check the topics."""
    if not names.isdisjoint(group.subscribed_topic_names):
        group.metadata_may_have_changed = True


def maybe_move_epoch(group: ShareGroup, step: StepContext, *, must_move: bool) -> list[CoordinatorRecord]:
    """Give the group a new epoch if it must have one, or if its topics or initialised partitions have changed."""
    if group.target_may_lag and group.group_epoch <= group.assignment_epoch:
        group.target_may_lag = False
        must_move = must_move or _target_lags(group, step.topics)
    if not must_move and not group.metadata_may_have_changed:
        return []
    group.metadata_may_have_changed = False
    new_hash = metadata_hash(step.topics, group.subscribed_topic_names)
    if new_hash != group.metadata_hash:
        group.may_lack_state = True
    elif not must_move:
        return []
    group.metadata_hash = new_hash
    group.move_epoch()
    group.epoch_is_spent = False
    return [group_epoch_record(group)]


def _target_lags(group: ShareGroup, topics: Topics) -> bool:
    """Return whether members are to have other partitions than the initialised ones of topics they subscribe to."""
    assigned: dict[UUID, set[int]] = {}
    for target in group.target.values():
        for topic_id, indexes in target.items():
            assigned.setdefault(topic_id, set()).update(indexes)
    assignable = _assignable(group, topics)
    return any(assigned.get(topic_id) != indexes for topic_id, indexes in assignable.items())


def maybe_assign(group: ShareGroup, step: StepContext) -> list[CoordinatorRecord]:
    """Compute the target assignment if the group has a newer epoch and the time has come."""
    if group.group_epoch <= group.assignment_epoch:
        return []
    interval_ms = step.config.share_settings(group.group_id).assignment_interval_ms
    # A clock that was set back must not hold up a group for longer than the interval either.
    if 0 <= step.now_ms - group.assignment_timestamp_ms < interval_ms:
        return []
    target = assign_simple(_member_specs(group, step.topics), _assignable(group, step.topics))
    records = changed_targets(group, target)
    group.set_target(target, epoch=group.group_epoch, now_ms=step.now_ms)
    records.append(target_epoch_record(group))
    return records


def _assignable(group: ShareGroup, topics: Topics) -> dict[UUID, set[int]]:
    """Return the initialised partitions of topics that members subscribe to and that exist."""
    found: dict[UUID, set[int]] = {}
    for name in group.subscribed_topic_names:
        facts = topics.named(name)
        topic = None if facts is None else group.initialized.get(facts.id)
        if facts is not None and topic is not None:
            # A coordinator that is ahead of this one may have initialised partitions that this one does not know yet.
            indexes = {index for index in topic.partitions if index < facts.partitions}
            if indexes:
                found[facts.id] = indexes
    return found


def _member_specs(group: ShareGroup, topics: Topics) -> dict[str, MemberSpec]:
    # Most members of a group subscribe to the same, and so share one set.
    ids_of: dict[frozenset[str], frozenset[UUID]] = {}
    for names in {member.subscribed_topic_names for member in group.members.values()}:
        ids_of[names] = frozenset(facts.id for name in names if (facts := topics.named(name)) is not None)
    return {
        member.member_id: MemberSpec(ids_of[member.subscribed_topic_names], group.target.get(member.member_id, {}))
        for member in group.members.values()
    }
