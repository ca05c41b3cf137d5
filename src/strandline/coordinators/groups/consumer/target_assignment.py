"""When a group of the consumer protocol gets a new epoch, and what its target assignment is for it.

The epoch moves when members, what they subscribe to, or the topics behind that change. The hash of those topics is
kept with the epoch, so a change while the group had no coordinator is noticed, too. The assignment is computed by the
first heartbeat that is at least `group.consumer.assignment.interval.ms` after the last one. So a group whose members
join and leave all the time costs one assignment per interval, not one for each of them.
"""

from __future__ import annotations

from uuid import UUID

from strandline.coordinators.groups.assignors import GroupSpec, MemberSpec, assign
from strandline.coordinators.groups.consumer import regex_subscriptions
from strandline.coordinators.groups.consumer.consumer_group import INITIAL_GROUP_EPOCH, ConsumerGroup, ConsumerMember
from strandline.coordinators.groups.consumer.records import (
    changed_targets,
    group_epoch_record,
    partition_metadata_tombstone,
    target_epoch_record,
)
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import metadata_hash


def on_topics_changed(group: ConsumerGroup, names: frozenset[str]) -> None:
    """Have the next heartbeat check the topics. A pattern may match any name, also one without a subscriber yet."""
    concerned = names if group.uses_patterns or group.regexes else names & group.subscribed_topic_names
    if concerned:
        group.metadata_may_have_changed = True
        group.changed_topics |= concerned


def move_epoch(group: ConsumerGroup, step: StepContext, *, must_move: bool) -> list[CoordinatorRecord]:
    """Look at the topics of the group; a new group epoch if they are not the same, or if it must be."""
    records = resolve_patterns(group, step)
    group.metadata_may_have_changed = _waits_for_member(group, step)
    changed_topics, group.changed_topics = group.changed_topics, frozenset()
    new_hash = metadata_hash(step.topics, group.subscribed_topic_names)
    if not must_move:
        if new_hash == group.metadata_hash:
            return records
        step.note(group, Happening.TOPICS, reason=", ".join(sorted(changed_topics)))
    group.metadata_hash = new_hash
    # Epoch 1 is taken by the empty assignment that a new group has.
    group.group_epoch = max(group.group_epoch + 1, INITIAL_GROUP_EPOCH)
    if group.has_partition_metadata_record:
        group.has_partition_metadata_record = False
        records.append(partition_metadata_tombstone(group.group_id))
    records.append(group_epoch_record(group))
    return records


def resolve_patterns(group: ConsumerGroup, step: StepContext) -> list[CoordinatorRecord]:
    """Match the patterns of the members against the topics, and forget unused patterns."""
    if not group.uses_patterns and not group.regexes:
        return []
    if _waits_for_member(group, step):
        group.patterns_are_resolved = False
        return []
    used = dict.fromkeys(
        member.subscribed_topic_regex for member in group.members.values() if member.subscribed_topic_regex
    )
    unused = [pattern for pattern in group.regexes if pattern not in used]
    for pattern in unused:
        del group.regexes[pattern]
    # Only a pattern that is new has to be held against every topic, and all of them when the group was just loaded.
    looked_at = group.changed_topics if group.patterns_are_resolved else None
    changed = regex_subscriptions.resolve(
        used,
        step.topics,
        group.regexes,
        now_ms=step.now_ms,
        changed=looked_at,
        may_describe=step.may_describe,
    )
    group.patterns_are_resolved = True
    group.regexes.update(changed)
    if unused or changed:
        group.patterns_changed()
    return [
        *(regex_subscriptions.regex_tombstone(group.group_id, pattern) for pattern in unused),
        *(regex_subscriptions.regex_record(group.group_id, pattern, resolved) for pattern, resolved in changed.items()),
    ]


def _waits_for_member(group: ConsumerGroup, step: StepContext) -> bool:
    """Return whether patterns wait for the next heartbeat, because they match what that member may see."""
    return group.uses_patterns and step.config.has_access_rules and step.may_describe is None


def maybe_assign(group: ConsumerGroup, step: StepContext) -> list[CoordinatorRecord]:
    """Compute the target assignment if the group has a newer epoch and the time has come."""
    if not is_due(group, step):
        return []
    target = assign(group.preferred_assignor(step.config.consumer_assignors), spec_of(group, step))
    records = changed_targets(group, target)
    group.set_target(target, epoch=group.group_epoch, now_ms=step.now_ms)
    records.append(target_epoch_record(group))
    return records


def is_due(group: ConsumerGroup, step: StepContext) -> bool:
    if group.group_epoch <= group.assignment_epoch:
        return False
    interval_ms = step.config.consumer_settings(group.group_id).assignment_interval_ms
    # A clock that was set back must not hold up a group for longer than the interval either.
    return not 0 <= step.now_ms - group.assignment_timestamp_ms < interval_ms


def spec_of(group: ConsumerGroup, step: StepContext) -> GroupSpec:
    facts = [found for name in sorted(group.subscribed_topic_names) if (found := step.topics.named(name)) is not None]
    id_of = {topic.name: topic.id for topic in facts}
    # Most members of a group subscribe to the same, and so share one set.
    ids_of: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}

    def spec(member: ConsumerMember) -> MemberSpec:
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        ids = ids_of.get(subscription)
        if ids is None:
            ids = ids_of[subscription] = frozenset(id_of[name] for name in group.topics_of(member) if name in id_of)
        return MemberSpec(
            topic_ids=ids,
            assigned=group.target.get(member.member_id, {}),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
        )

    return GroupSpec(
        members={member.member_id: spec(member) for member in group.members.values()},
        partitions={topic.id: topic.partitions for topic in facts},
    )
