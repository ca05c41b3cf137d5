"""How partitions of a share group get a state at the share coordinator, before which they are not assigned.

A heartbeat finds partitions of subscribed topics without a state and records them as initializing. When that is in the
log, the share coordinator is asked. Those that it answers for become initialized, and the next heartbeat assigns them.
Those that it refuses are missing again, and a later heartbeat asks for them with a higher epoch.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    InitializeShareState,
    ShareStart,
    ShareStateAnswered,
    Tell,
)
from strandline.coordinators.groups.share.records import group_epoch_record, state_record
from strandline.coordinators.groups.share.share_group import ShareGroup, TopicIndexes
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics

PARTITIONS_MAX: Final = 2_000
"""Partitions that the share coordinator is asked for at once; the next heartbeat after its answer asks for more."""

PAUSE_MS: Final = 1_000
"""How long a group waits after the share coordinator has refused: members of a large group send many heartbeats."""


def begin(group: ShareGroup, step: StepContext) -> InitializeShareState | None:
    """Begin to initialise what the group lacks, if it may ask now. The caller appends the `state_record`."""
    if not group.may_lack_state or group.conversation is not None or 0 < group.retry_at_ms - step.now_ms <= PAUSE_MS:
        return None
    missing = _missing(group, step.topics)
    group.may_lack_state = len(missing) > PARTITIONS_MAX
    return ask(group, missing[:PARTITIONS_MAX], step.topics) if missing else None


def ask(
    group: ShareGroup,
    starts: list[ShareStart],
    topics: Topics,
    *,
    request: AlterShareOffsets | None = None,
    response: AlterShareGroupOffsetsResponse | None = None,
) -> InitializeShareState:
    """Note partitions as initializing; the effect that asks the share coordinator."""
    for topic_id, index, _ in starts:
        facts = topics.by_id(topic_id)
        assert facts is not None
        group.initializing.setdefault(topic_id, TopicIndexes(facts.name, set())).partitions.add(index)
        group.deleting.pop(topic_id, None)
    asked = InitializeShareState(group.group_id, group.group_epoch, tuple(starts), request, response)
    group.conversation = asked
    return asked


def _missing(group: ShareGroup, topics: Topics) -> list[ShareStart]:
    missing: list[ShareStart] = []
    for name in sorted(group.subscribed_topic_names):
        facts = topics.named(name)
        if facts is not None:
            topic = group.initialized.get(facts.id)
            known = frozenset() if topic is None else topic.partitions
            if len(known) < facts.partitions:
                missing += (ShareStart(facts.id, index) for index in range(facts.partitions) if index not in known)
    return missing


def on_answer(group: ShareGroup, event: ShareStateAnswered, step: StepContext) -> None:
    """Take over what the share coordinator has made. What it refused is missing again."""
    for topic_id, index, _ in event.asked.partitions:
        topic = group.initializing.get(topic_id)
        # The topic may have been deleted meanwhile.
        if topic is None or index not in topic.partitions:
            continue
        topic.partitions.discard(index)
        if not topic.partitions:
            del group.initializing[topic_id]
        if (topic_id, index) not in event.codes:
            group.initialized.setdefault(topic_id, TopicIndexes(topic.name, set())).partitions.add(index)
            group.target_may_lag = True
    records = [state_record(group)]
    if event.codes:
        # A request that was given up may still be under way. The share coordinator fences it by the higher epoch of
        # the next one; else it would begin a partition again that is being read.
        group.move_epoch()
        records.append(group_epoch_record(group))
        group.may_lack_state = True
        group.retry_at_ms = step.now_ms + PAUSE_MS
        step.effects.append(_refusal(group, event))
    step.append(*records)


def _refusal(group: ShareGroup, event: ShareStateAnswered) -> Tell:
    codes, count = sorted({code.name for code in event.codes.values()}), len(event.codes)
    return Tell(
        f"share group {group.group_id}: the share coordinator made no state for {count} partitions "
        f"({', '.join(codes)}); a later heartbeat asks again",
        {"group": group.group_id, "partitions": count, "codes": codes},
    )
