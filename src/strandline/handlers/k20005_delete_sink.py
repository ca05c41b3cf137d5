"""DeleteSink (20005), version 0: a sink is forgotten, with its transactional ids; what it has open is aborted.

It is Strandline's own; no other broker knows it. Asked of the coordinator of the sink, as CommitBatch. The last batch
is forgotten, too: a driver that continues the sink may commit any batch, even one that was committed before. So this
is for a sink that is no longer written to. CONCURRENT_TRANSACTIONS while its last decision is being carried out.
"""

from __future__ import annotations

from strandline.codec.messages.delete_sink_request import DeleteSinkRequest
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import DeleteSink
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.ids import sink_key

API_KEY = 20_005
VERSIONS = (0, 0)


def handle(context: RequestContext, request: DeleteSinkRequest) -> DeleteSinkResponse | None:
    pending = PendingRequest(context.reply, refusal=_refusal)
    context.node.transactions.submit(sink_key(request.sink_id), DeleteSink(pending, request.sink_id))
    response: DeleteSinkResponse | None = pending.collect()
    return response


def _refusal(code: ErrorCode) -> DeleteSinkResponse:
    return DeleteSinkResponse(error_code=code)
