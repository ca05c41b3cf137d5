"""What administrators do to the state of a share group: begin elsewhere, forget topics, delete the group.

The group must be empty. What is meant is recorded first; then the share coordinator is asked, and the request is
answered when it has answered. While it has not, a second request is told to come again.

Otherwise than in Kafka, AlterShareGroupOffsets gives the group a new epoch. The share coordinator fences only lower
epochs. So a leader that still delivers from the old offsets could go on, or write over the new ones. And a start offset
below -1, which Kafka stores, is refused.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from uuid import UUID

from strandline.codec.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from strandline.codec.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from strandline.codec.messages.delete_groups_response import DeletableGroupResult
from strandline.codec.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    DeleteGroup,
    DeleteShareOffsets,
    DeleteShareState,
    ListSharePartitions,
    ShareStart,
    ShareStateAnswered,
)
from strandline.coordinators.groups.share import initialization
from strandline.coordinators.groups.share.checks import share_group
from strandline.coordinators.groups.share.records import group_epoch_record, share_group_tombstones, state_record
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics
from strandline.errors import ErrorCode, RequestError

UNKNOWN_PARTITION = "This server does not host this topic-partition."
UNKNOWN_OFFSET = -1
"""The start offset that leaves the beginning to `share.auto.offset.reset`."""


def list_partitions(group: Group | None, event: ListSharePartitions, step: StepContext) -> None:
    initialized = group.initialized if isinstance(group, ShareGroup) else {}
    step.reply(event.token, {topic_id: sorted(topic.partitions) for topic_id, topic in initialized.items()})


def _check_is_idle(group: ShareGroup) -> None:
    if group.members:
        raise RequestError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    if group.conversation is not None:
        raise RequestError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The share coordinator has not answered an earlier request yet."
        )


# ---- AlterShareGroupOffsets


def alter(groups: MutableMapping[str, Group], event: AlterShareOffsets, step: StepContext) -> None:
    request = event.request
    try:
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        group = share_group(groups.get(request.group_id) or ShareGroup(request.group_id), request.group_id)
        _check_is_idle(group)
    except RequestError as refused:
        response = AlterShareGroupOffsetsResponse(error_code=refused.code, error_message=str(refused) or None)
        step.reply(event.token, response)
        return
    response = AlterShareGroupOffsetsResponse()
    starts = _starts(request, response, step.topics)
    if not starts:
        step.reply(event.token, response)
        return
    groups[request.group_id] = group
    group.move_epoch()
    asked = initialization.ask(group, starts, step.topics, request=event, response=response)
    step.append(group_epoch_record(group), state_record(group))
    step.effects.append(asked)


def _starts(
    request: AlterShareGroupOffsetsRequest, response: AlterShareGroupOffsetsResponse, topics: Topics
) -> list[ShareStart]:
    """Return where the named partitions are to begin; the response takes an entry for each, with its error."""
    starts: dict[tuple[UUID, int], ShareStart] = {}
    for topic in request.topics:
        facts = topics.named(topic.topic_name)
        answered = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        response.responses.append(answered)
        if facts is not None:
            answered.topic_id = facts.id
        for partition in topic.partitions:
            index = partition.partition_index
            entry = AlterShareGroupOffsetsResponsePartition(partition_index=index)
            answered.partitions.append(entry)
            if facts is None or not 0 <= index < facts.partitions:
                entry.error_code, entry.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION
            elif partition.start_offset < UNKNOWN_OFFSET:
                entry.error_code = ErrorCode.INVALID_REQUEST
                entry.error_message = f"The start offset {partition.start_offset} is negative."
            else:
                starts[facts.id, index] = ShareStart(facts.id, index, partition.start_offset)
    return list(starts.values())


# ---- DeleteShareGroupOffsets and DeleteGroups


def delete_offsets(found: Group | None, event: DeleteShareOffsets, step: StepContext) -> None:
    request = event.request
    try:
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        group = share_group(found, request.group_id)
        _check_is_idle(group)
    except RequestError as refused:
        response = DeleteShareGroupOffsetsResponse(error_code=refused.code, error_message=str(refused) or None)
        step.reply(event.token, response)
        return
    response = DeleteShareGroupOffsetsResponse()
    doomed: dict[UUID, None] = {}
    for topic in request.topics:
        facts = step.topics.named(topic.topic_name)
        answered = DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        response.responses.append(answered)
        if facts is None:
            answered.error_code, answered.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION
            continue
        if facts.id in group.initialized or facts.id in group.deleting:
            answered.topic_id = facts.id
            doomed[facts.id] = None
        else:
            answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered.error_message = "There is no offset information to delete."
    if doomed:
        _ask_to_delete(group, DeleteShareState(request.group_id, _delete(group, doomed, step), event, response), step)
    else:
        step.reply(event.token, response)


def delete_group(groups: MutableMapping[str, Group], group: ShareGroup, event: DeleteGroup, step: StepContext) -> None:
    try:
        _check_is_idle(group)
    except RequestError as refused:
        step.reply(event.token, DeletableGroupResult(group_id=event.group_id, error_code=refused.code))
        return
    doomed = dict.fromkeys((*group.initialized, *group.initializing, *group.deleting))
    partitions = _delete(group, doomed, step)
    if partitions:
        _ask_to_delete(group, DeleteShareState(event.group_id, partitions, event), step)
    else:
        _end(groups, group, event, step)


def _delete(group: ShareGroup, topic_ids: dict[UUID, None], step: StepContext) -> tuple[ShareStart, ...]:
    """Note topics as deleting; their partitions that may have a state."""
    partitions: list[ShareStart] = []
    for topic_id in topic_ids:
        known = [topic for topics in (group.initialized, group.initializing) if (topic := topics.pop(topic_id, None))]
        indexes = set[int]().union(*(topic.partitions for topic in known))
        facts = step.topics.by_id(topic_id)
        name = next((topic.name for topic in known), None) or group.deleting.get(topic_id, "")
        if topic_id in group.deleting and facts is not None:
            # An earlier request failed after it had recorded no more than the topic.
            indexes.update(range(facts.partitions))
        group.deleting[topic_id] = name
        partitions += (ShareStart(topic_id, index) for index in sorted(indexes))
    return tuple(partitions)


def _ask_to_delete(group: ShareGroup, asked: DeleteShareState, step: StepContext) -> None:
    group.conversation = asked
    step.append(state_record(group))
    step.effects.append(asked)


def _end(groups: MutableMapping[str, Group], group: ShareGroup, event: DeleteGroup, step: StepContext) -> None:
    del groups[group.group_id]
    step.append(*share_group_tombstones(group))
    step.reply(event.token, DeletableGroupResult(group_id=group.group_id))


# ---- what the share coordinator answered


def on_answer(groups: MutableMapping[str, Group], event: ShareStateAnswered, step: StepContext) -> None:
    asked = event.asked
    group = groups.get(asked.group_id)
    if not isinstance(group, ShareGroup) or group.conversation is not asked:
        return
    group.conversation = None
    if isinstance(asked, DeleteShareState):
        _on_deleted(groups, group, asked, event, step)
        return
    initialization.on_answer(group, event, step)
    if asked.request is not None and asked.response is not None:
        for topic in asked.response.responses:
            for partition in topic.partitions:
                code = event.codes.get((topic.topic_id, partition.partition_index))
                if code is not None and not partition.error_code:
                    partition.error_code, partition.error_message = code, code.name
        step.reply(asked.request.token, asked.response)


def _on_deleted(
    groups: MutableMapping[str, Group],
    group: ShareGroup,
    asked: DeleteShareState,
    event: ShareStateAnswered,
    step: StepContext,
) -> None:
    failed = {topic_id: code for (topic_id, _), code in event.codes.items()}
    for topic_id in {each.topic_id for each in asked.partitions} - failed.keys():
        group.deleting.pop(topic_id, None)
    # A member that joined meanwhile reads topics whose state is gone now.
    group.may_lack_state = group.target_may_lag = True
    request = asked.request
    if isinstance(request, DeleteGroup) and not failed and not group.members:
        _end(groups, group, request, step)
        return
    step.append(state_record(group))
    if isinstance(request, DeleteGroup):
        code = next(iter(failed.values()), ErrorCode.NON_EMPTY_GROUP)
        step.reply(request.token, DeletableGroupResult(group_id=group.group_id, error_code=code))
        return
    assert asked.response is not None
    for topic in asked.response.responses:
        topic_code = failed.get(topic.topic_id)
        if topic_code is not None and not topic.error_code:
            topic.error_code, topic.error_message = topic_code, topic_code.name
    step.reply(request.token, asked.response)
