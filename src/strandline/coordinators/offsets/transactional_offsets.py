"""Offsets committed within transactions: TxnOffsetCommit, and the effect of the marker on them.

Until its marker is written such an offset is pending. It is invisible, a fetch of stable offsets has to be retried, and
neither the previous offset nor the group expires. A commit marker replaces the committed offset by the pending one,
unless the committed one is later in the log. Compaction keeps the later of the two records, and a coordinator that
loads the log afterwards must get the same result.

A tombstone removes the pending offsets of a partition, as in Kafka: a deleted group, topic or offset does not come back
with the marker.
"""

from __future__ import annotations

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer import offset_access as consumer_offsets
from strandline.coordinators.groups.consumer.consumer_group import MEMBER_EPOCH_FROM_VERSION, ConsumerGroup
from strandline.coordinators.groups.events import CommitTransactionalOffsets
from strandline.coordinators.groups.group_records import offset_commit_record
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.offsets.offsets import CommittedOffsets, accepted
from strandline.errors import ErrorCode

NO_EPOCH = -1


def commit_error(group: Group | None, request: OffsetCommitRequest) -> ErrorCode:
    """Return whether a producer may move these positions for whom it says it does (KIP-447).

    Looser than a plain commit for a producer that names no member, as those before TxnOffsetCommit 3 do: its
    transactional id alone has to fence zombies. And a generation may commit while its assignment is not given out yet.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ConsumerGroup):
        if generation_id == NO_EPOCH and names_no_member(request):
            return ErrorCode.NONE
        code = consumer_offsets.commit_error(group, request, MEMBER_EPOCH_FROM_VERSION)
        # Producers know nothing of member epochs.
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
    if isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if generation_id < 0 and (group.state is GroupState.EMPTY or names_no_member(request)):
        return ErrorCode.NONE
    return classic_error(group, request)


def names_no_member(request: OffsetCommitRequest) -> bool:
    return not request.member_id and request.group_instance_id is None


def classic_error(group: ClassicGroup, request: OffsetCommitRequest) -> ErrorCode:
    code = group.member_error(request.member_id, request.group_instance_id)
    if code is ErrorCode.NONE and request.generation_id_or_member_epoch != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def commit(offsets: CommittedOffsets, event: CommitTransactionalOffsets, step: StepContext) -> None:
    """Commit what `commit_error` let pass, once the transaction is. As in Kafka it is no sign of life of a member."""
    group_id = event.request.group_id
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    for topic, partition, value in accepted(event.request, response, step):
        offsets.pending.put(event.producer_id, group_id, topic, partition, value)
        records.append(offset_commit_record(group_id, topic, partition, value))
    if records:
        step.append_transactional(event.producer_id, event.producer_epoch, records, verified=event.verified)
    step.reply(event.token, response)
