"""AddOffsetsToTxn (25), versions 0-4: the offsets of a group become part of a transaction.

That is: the partition of `__consumer_offsets` that holds the group does. Clients of transactions v2 leave it to
TxnOffsetCommit.
"""

from __future__ import annotations

from strandline.codec.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from strandline.codec.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import AddPartitions, PartitionCodes
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import fenced_code
from strandline.ids import TopicPartition
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS

API_KEY = 25
VERSIONS = (0, 4)


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    if not request.transactional_id:
        return _refusal(ErrorCode.INVALID_REQUEST)
    node = context.node
    place = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_index(request.group_id))

    def shape(codes: PartitionCodes) -> AddOffsetsToTxnResponse:
        return _refusal(fenced_code(codes[place], api_key=API_KEY, version=context.api_version))

    pending = PendingRequest(context.reply, refusal=_refusal, shape=shape)
    event = AddPartitions(pending, request.transactional_id, request.producer_id, request.producer_epoch, (place,))
    node.transactions.submit(request.transactional_id, event)
    response: AddOffsetsToTxnResponse | None = pending.collect()
    return response


def _refusal(code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)
