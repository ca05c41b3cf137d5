"""Which part of share groups takes which event."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import assert_never
from uuid import UUID

from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ListSharePartitions,
    ShareHeartbeat,
    ShareStateAnswered,
)
from strandline.coordinators.groups.share import describe, heartbeat, offsets_admin
from strandline.coordinators.groups.share.records import state_record
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext

ShareEvent = (
    ShareHeartbeat
    | DescribeShareGroup
    | ListSharePartitions
    | AlterShareOffsets
    | DeleteShareOffsets
    | ShareStateAnswered
)


def step_share(groups: MutableMapping[str, Group], event: ShareEvent, step: StepContext) -> None:
    match event:
        case ShareHeartbeat():
            heartbeat.heartbeat(groups, event, step)
        case ShareStateAnswered():
            offsets_admin.on_answer(groups, event, step)
        case DescribeShareGroup(group_id=group_id):
            describe.describe(groups.get(group_id), event, step)
        case ListSharePartitions(group_id=group_id):
            offsets_admin.list_partitions(groups.get(group_id), event, step)
        case AlterShareOffsets():
            offsets_admin.alter(groups, event, step)
        case DeleteShareOffsets(request=request):
            offsets_admin.delete_offsets(groups.get(request.group_id), event, step)
        case _:
            assert_never(event)


def forget_topic(groups: MutableMapping[str, Group], topic_id: UUID, step: StepContext) -> None:
    """Forget the states of a deleted topic, which the share coordinator deletes by itself."""
    for group in groups.values():
        if isinstance(group, ShareGroup) and group.forget_topic(topic_id):
            step.append(state_record(group))
