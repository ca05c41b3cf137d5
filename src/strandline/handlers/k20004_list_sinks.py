"""ListSinks (20004), version 0: the sinks that the node coordinates, and how far each is.

It is Strandline's own; no other broker knows it. A node tells of what it has loaded; while some is still to be loaded
the answer says COORDINATOR_LOAD_IN_PROGRESS. `sink_ids` picks some; null means all. It is for people to look at: a
batch whose record is being written is listed as the last one already. The response of CommitBatch decides.

With `include_notes` it tells what the driver of each has kept with the last batch, if asked for by `sink_ids`, and
these are 16 at the most; else INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.list_sinks_response import ListedSink, ListSinksResponse
from strandline.coordinators.transactions.sinks import NO_NOTE, BatchedSink
from strandline.coordinators.transactions.transaction import TransactionStatus
from strandline.coordinators.transactions.transaction_shard import TransactionShard
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts

API_KEY = 20_004
VERSIONS = (0, 0)

NOTED_SINKS_MAX: Final = 16
"""Sinks whose notes are in one response: each may have half a megabyte."""


def handle(context: RequestContext, request: ListSinksRequest) -> None:
    node = context.node
    is_whole = len(node.transactions.loaded_shards()) >= len(node.transactions.led_indexes())
    code = ErrorCode.NONE if is_whole else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    around = ListSinksResponse(error_code=code, node_id=node.node_id, now_ms=node.runtime.now_ms())
    asked = None if request.sink_ids is None else set(request.sink_ids)
    if request.include_notes and (asked is None or len(asked) > NOTED_SINKS_MAX):
        context.reply(ListSinksResponse(error_code=ErrorCode.INVALID_REQUEST, node_id=node.node_id))
        return

    def encoded() -> Iterator[bytes]:
        for shard in node.transactions.loaded_shards():
            for sink in list(shard.sinks.values()):
                if asked is None or sink.sink_id in asked:
                    yield encode(_listed(shard, sink, with_note=request.include_notes), context.api_version)

    reply_in_parts(context, around, encoded())


def _listed(shard: TransactionShard, sink: BatchedSink, *, with_note: bool) -> ListedSink:
    # The ids may have gone since the request came, and the sink with them.
    found = [shard.transactions.get(each) for each in sink.transactional_ids]
    return ListedSink(
        sink_id=sink.sink_id,
        last_batch_id=sink.last_batch_id,
        decided_ms=sink.decided_ms,
        transactional_ids=len(found),
        open_transactions=sum(1 for each in found if each is not None and each.status is TransactionStatus.ONGOING),
        note=sink.note if with_note else NO_NOTE,
    )
