"""InitProducerId (22), versions 0-5.

Honoured: idempotent producers, each request of which gets an id of its own with epoch 0, as in Kafka, even if it names
an id and an epoch: to raise an epoch on request would let any client fence any other. With a transactional id the
coordinator answers. The producer that had the id before is fenced, and its open transaction is aborted first (the
client gets CONCURRENT_TRANSACTIONS and retries). One that names its id and epoch gets the next epoch (KIP-360).
"""

from __future__ import annotations

from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import InitProducerId
from strandline.errors import ErrorCode, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import fenced_code

API_KEY = 22
VERSIONS = (0, 5)


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refusal(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _ask_coordinator(context, request, request.transactional_id)

    def on_id(producer_id: int, error: BaseException | None) -> None:
        if error is not None:
            context.reply(_refusal(error_code(error)))
        else:
            context.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    context.node.producer_ids.next(on_id)
    return None


def _ask_coordinator(
    context: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse | None:
    def shape(response: InitProducerIdResponse) -> InitProducerIdResponse:
        response.error_code = fenced_code(response.error_code, api_key=API_KEY, version=context.api_version)
        return response

    pending = PendingRequest(context.reply, refusal=_refusal, shape=shape)
    event = InitProducerId(pending, request, context.client_id or "", context.client_host)
    context.node.transactions.submit(transactional_id, event)
    response: InitProducerIdResponse | None = pending.collect()
    return response


def _refusal(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
