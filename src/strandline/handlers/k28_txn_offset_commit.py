"""TxnOffsetCommit (28), versions 0-5: a group's positions, which count from the commit of a producer's transaction on.

Honoured: leader epochs (2), generation, member and instance id (3) as in OffsetCommit, TRANSACTION_ABORTABLE (4). The
coordinator of the transaction is asked whether the group's partition of `__consumer_offsets` is part of it; for clients
of transactions v2 (5) the partition becomes part of it by that. Thousands of partitions are committed in parts, over
several turns of the loop: they become visible all at once, by the marker. Topics are known by name only.
"""

from __future__ import annotations

from functools import partial

from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse, OffsetCommitResponseTopic
from strandline.codec.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from strandline.codec.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.coordinators.groups.events import CommitTransactionalOffsets
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.offsets.offsets import refuse_commit
from strandline.errors import ErrorCode, StrandlineError, error_code, named
from strandline.handlers.k08_offset_commit import is_small, merge, one_answer, parts_of, resolve
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.handlers.support.transactional_produce import ROUNDS_MAX
from strandline.ids import TopicPartition
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import begin_verification
from strandline.partition.transactions import check_verified
from strandline.partition.verification import ONGOING, VerificationGuard
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS
from strandline.runtime.time_slicing import gradually

API_KEY = 28
VERSIONS = (0, 5)

LOADING_FROM_VERSION = 2
"""The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS."""
ABORTABLE_FROM_VERSION = 4
ADDS_FROM_VERSION = 5
NO_SEQUENCE = -1


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
    refused: list[OffsetCommitResponseTopic] = []
    commit = plain_form(request)
    commit.topics = [known for topic in commit.topics if (known := resolve(context, topic, refused)) is not None]
    if not commit.topics:
        return transactional_form(context.api_version, OffsetCommitResponse(topics=refused))

    def answer(response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
        return transactional_form(context.api_version, merge(refused, response))

    pending = PendingRequest(context.reply, refusal=lambda code: answer(refuse_commit(commit, code)), shape=answer)
    if not request.group_id:
        pending.refuse(ErrorCode.INVALID_GROUP_ID)
    else:
        _TransactionalCommit(context, request, commit, pending).verify()
    response: TxnOffsetCommitResponse | None = pending.collect()
    return response


class _TransactionalCommit:
    """One request on its way: to the coordinator of the transaction, and then to the group."""

    def __init__(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        commit: OffsetCommitRequest,
        pending: PendingRequest,
    ) -> None:
        self.context = context
        self.request = request
        self.commit = commit
        self.pending = pending
        index = context.node.groups.partition_index(request.group_id)
        self.place = TopicPartition(CONSUMER_OFFSETS, index)
        self.rounds = 0

    def verify(self) -> None:
        partition = self.led_partition()
        if partition is None:
            self.pending.refuse(ErrorCode.NOT_COORDINATOR)
            return
        request, adds = self.request, self.context.api_version >= ADDS_FROM_VERSION
        try:
            guard = begin_verification(
                partition, request.producer_id, request.producer_epoch, NO_SEQUENCE, supports_epoch_bump=adds
            )
        except StrandlineError as error:
            self.pending.refuse(named(error_code(error)))
            return
        if guard is ONGOING or not (adds or partition.verifies_transactions()):
            self.commit_all(guard)
            return
        self.context.node.transactions.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [self.place],
            adds=adds,
            then=lambda codes: self.on_verified(codes[self.place], guard),
        )

    def on_verified(self, code: ErrorCode, guard: VerificationGuard) -> None:
        if code is not ErrorCode.NONE:
            self.pending.refuse(code_for(code, self.context.api_version))
        elif self.rounds < ROUNDS_MAX and self.is_void(guard):
            self.rounds += 1
            self.verify()
        else:
            self.commit_all(guard)

    def is_void(self, guard: VerificationGuard) -> bool:
        """Return whether a marker came while the coordinator was asked, and it does no harm to ask again.

        Mostly it is the marker of the transaction before, for which the coordinator made us wait. From version 5 on
        each transaction has an epoch of its own, so a retry cannot join the next one.
        """
        partition = self.led_partition()
        if partition is None or self.context.api_version < ADDS_FROM_VERSION:
            return False
        return partition.producers.verifications.guards.get(self.request.producer_id) is not guard

    def commit_all(self, guard: VerificationGuard) -> None:
        if is_small(self.commit.topics):
            self.commit_part(guard, self.commit, self.pending)
            return
        gathering = Gathering(lambda answers: self.pending.answer(one_answer(answers)))

        def submit(part: OffsetCommitRequest) -> None:
            self.commit_part(guard, part, gathering.token(refusal=partial(refuse_commit, part)))

        gradually(self.context.node.runtime, map(submit, parts_of(self.commit)), gathering.end)

    def commit_part(self, guard: VerificationGuard, part: OffsetCommitRequest, pending: PendingRequest) -> None:
        partition = self.led_partition()
        if partition is None:
            pending.refuse(ErrorCode.NOT_COORDINATOR)
            return
        producer_id, epoch = self.request.producer_id, self.request.producer_epoch
        producers = partition.producers
        if not producers.has_open_transaction(producer_id, epoch):
            # Since the coordinator said yes, the transaction may have ended here. The group must not learn of what
            # the partition will not take.
            try:
                check_verified(producers, producer_id, epoch, guard, verifies=partition.verifies_transactions)
            except StrandlineError as error:
                pending.refuse(named(error_code(error)))
                return
        event = CommitTransactionalOffsets(pending, part, producer_id, epoch, guard)
        self.context.node.groups.submit(part.group_id, event)

    def led_partition(self) -> Partition | None:
        partition = self.context.node.partition(*self.place)
        return partition if partition is not None and partition.is_leader else None


def code_for(code: ErrorCode, api_version: int) -> ErrorCode:
    """Return the code of the transaction coordinator as one that producers of this version expect here."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # They come again, and do not look for another coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # It does not know `__consumer_offsets`, which was created a moment ago. Nothing is wrong with their topics.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_FROM_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return code


def plain_form(request: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    """Return the same offsets as an OffsetCommit."""
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        committed_metadata=partition.committed_metadata,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def transactional_form(api_version: int, response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
    def shown(code: int) -> int:
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_FROM_VERSION:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=shown(partition.error_code)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in response.topics
        ]
    )
