"""InitProducerId (22), versions 0-5.

Honoured: idempotent producers. Each request gets an id of its own with epoch 0, as in Kafka, even if it names an id
and an epoch: to raise an epoch on request would let any client fence any other.
Not yet: a transactional id is refused with UNSUPPORTED_VERSION, which clients take as final.
"""

from __future__ import annotations

from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.errors import ErrorCode, error_code
from strandline.handlers.context import RequestContext

API_KEY = 22
VERSIONS = (0, 5)


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refusal(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)

    def on_id(producer_id: int, error: BaseException | None) -> None:
        if error is not None:
            context.reply(_refusal(error_code(error)))
        else:
            context.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    context.node.producer_ids.next(on_id)
    return None


def _refusal(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
