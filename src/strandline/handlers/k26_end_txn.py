"""EndTxn (26), versions 0-5: a transaction is committed or aborted.

The answer leaves when the decision is committed; markers follow it. From version 5 on the client speaks transactions
v2: the end raises its epoch, and the answer carries the id and the epoch to go on with.
"""

from __future__ import annotations

from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import EndTransaction
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import fenced_code

API_KEY = 26
VERSIONS = (0, 5)

TRANSACTIONS_V2_FROM_VERSION = 5


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | None:
    if not request.transactional_id:
        return _refusal(ErrorCode.INVALID_REQUEST)

    def shape(response: EndTxnResponse) -> EndTxnResponse:
        response.error_code = fenced_code(response.error_code, api_key=API_KEY, version=context.api_version)
        return response

    pending = PendingRequest(context.reply, refusal=_refusal, shape=shape)
    event = EndTransaction(
        pending,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        transaction_version=2 if context.api_version >= TRANSACTIONS_V2_FROM_VERSION else 0,
    )
    context.node.transactions.submit(request.transactional_id, event)
    response: EndTxnResponse | None = pending.collect()
    return response


def _refusal(code: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)
