"""AllocateProducerIds (67), version 0: a block of producer ids for a broker, from the active controller.

Answered when the record that gives it away is committed. A block whose answer is lost is never used.
"""

from __future__ import annotations

from strandline.codec.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from strandline.codec.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from strandline.errors import error_code
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.controller import ProducerIdBlock

API_KEY = 67
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> None:
    def on_done(block: ProducerIdBlock | None, error: BaseException | None) -> None:
        if error is not None:
            context.reply(AllocateProducerIdsResponse(error_code=error_code(error)))
            return
        assert block is not None
        context.reply(
            AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.end - block.first)
        )

    controller = context.node.controller
    controller.submit(lambda: controller.allocate_producer_ids(request.broker_id, request.broker_epoch), on_done)
