"""GroupHistory (20001), version 0: what this node saw of a group. It is Strandline's own; no other broker knows it.

Asked of any node, which tells what it saw while it coordinated the group; `strandline group history` asks them all.
Nothing is promised of it: the history lives in memory, is bounded, and goes with the process. Of a group that is not
known there is none, which is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from strandline.codec.message_codec import encode
from strandline.codec.messages.group_history_request import GroupHistoryRequest
from strandline.codec.messages.group_history_response import (
    GroupChange,
    GroupHistoryResponse,
    GroupNote,
    GroupPartitions,
    GroupRebalance,
)
from strandline.coordinators.groups.history.assignment_diff import MemberRef, Partitions, assignment_diff
from strandline.coordinators.groups.history.group_history import AssignmentChange, Rebalance, RebalanceNote
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import joined_response
from strandline.runtime.time_slicing import gradually

API_KEY = 20_001
VERSIONS = (0, 0)

NO_MEMBER = MemberRef("")


def handle(context: RequestContext, request: GroupHistoryRequest) -> GroupHistoryResponse | None:
    node = context.node
    if not request.group_id:
        return GroupHistoryResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if request.rebalances_max < 1:
        return GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST)
    history = node.groups.history
    around = GroupHistoryResponse(node_id=node.node_id, now_ms=node.runtime.now_ms(), since_ms=history.since_ms)
    wanted = history.of(request.group_id)[-request.rebalances_max :]
    pending = PendingRequest(context.reply, refusal=lambda code: GroupHistoryResponse(error_code=code))

    def finish(parts: list[bytes | None]) -> None:
        result = [part for part in parts if part is not None]
        pending.answer(joined_response(around, context.api_version, result))

    gradually(node.runtime, encoded(context, wanted), finish)
    response: GroupHistoryResponse | None = pending.collect()
    return response


def encoded(context: RequestContext, rebalances: list[Rebalance]) -> Iterator[bytes | None]:
    """Yield each rebalance encoded, and None after each of its members, where other requests may be served."""
    for rebalance in rebalances:
        result = rebalance_of(rebalance)
        for change in rebalance.changes:
            result.changes.append(change_of(context, change))
            yield None
        yield encode(result, context.api_version)


def rebalance_of(rebalance: Rebalance) -> GroupRebalance:
    return GroupRebalance(
        began_ms=rebalance.began_ms,
        ended_ms=rebalance.ended_ms,
        is_rebalance=rebalance.is_rebalance,
        group_type=rebalance.group_type,
        epoch=rebalance.epoch,
        members=rebalance.members,
        notes=[note_of(note) for note in rebalance.notes],
        notes_left_out=rebalance.notes_left_out,
        changes_left_out=rebalance.changes_left_out,
    )


def note_of(note: RebalanceNote) -> GroupNote:
    who = note.who or NO_MEMBER
    return GroupNote(
        at_ms=note.at_ms,
        what=note.what.value,
        member_id=None if note.who is None else who.member_id,
        instance_id=who.instance_id,
        client_id=who.client_id,
        client_host=who.client_host,
        reason=note.reason,
        flaps=note.flaps,
    )


def change_of(context: RequestContext, change: AssignmentChange) -> GroupChange:
    def name_of(topic_id: UUID) -> str:
        topic = context.node.image.topic_by_id(topic_id)
        return f"a topic that is gone ({topic_id})" if topic is None else topic.name

    who, found = change.who, assignment_diff(change.before, change.after, name_of)
    return GroupChange(
        member_id=who.member_id,
        instance_id=who.instance_id,
        client_id=who.client_id,
        client_host=who.client_host,
        is_known=found is not None,
        lost=[] if found is None else partitions_of(found.lost),
        gained=[] if found is None else partitions_of(found.gained),
        kept=0 if found is None else found.kept,
    )


def partitions_of(partitions: Partitions) -> list[GroupPartitions]:
    return [GroupPartitions(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(partitions.items())]
