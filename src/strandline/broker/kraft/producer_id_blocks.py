"""Blocks of producer ids, asked of the active controller for `quorum/controller/producer_ids`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.codec.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from strandline.codec.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import ControllerChannel
from strandline.quorum.controller.producer_ids import OnBlock

TIMEOUT_S: Final = 5.0
"""A producer that waits for longer asks again by itself."""


def producer_id_blocks(
    channel: ControllerChannel, *, broker_id: int, broker_epoch: Callable[[], int]
) -> Callable[[OnBlock], None]:
    """What `ProducerIds` is made with. Wired as `ProducerIds(producer_id_blocks(node.controller_channel, ...))`."""

    def allocate(on_block: OnBlock) -> None:
        def on_answer(response: AllocateProducerIdsResponse | None, error: BaseException | None) -> None:
            if response is not None and not response.error_code:
                on_block(response.producer_id_start, response.producer_id_len, None)
                return
            reason = str(error) if response is None else f"the controller answered with code {response.error_code}"
            # A code of ours about the controller means nothing to a producer; this one it tries again.
            on_block(-1, 0, RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id for now: {reason}"))

        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch())
        channel.ask(request, 0, on_answer, timeout_s=TIMEOUT_S)

    return allocate
