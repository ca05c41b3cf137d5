"""AllocateProducerIds (67), version 0: a block of producer ids for a broker, from the active controller.

Answered when the record that gives it away is committed. A block whose answer is lost is never used.
"""

from __future__ import annotations

from strandline.codec.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from strandline.codec.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from strandline.errors import RequestError, error_code
from strandline.handlers.support.context import RequestContext

API_KEY = 67
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse | None:
    try:
        records, block = context.node.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    except RequestError as refusal:
        return AllocateProducerIdsResponse(error_code=error_code(refusal))

    def on_done(error: BaseException | None) -> None:
        context.reply(
            AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.end - block.first)
            if error is None
            else AllocateProducerIdsResponse(error_code=error_code(error))
        )

    context.node.controller_write(records, on_done)
    return None
