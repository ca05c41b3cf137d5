"""TransactionProgress (20003), version 0: who has a transaction open, and which markers of it are still to be written.

It is Strandline's own; no other broker knows it. Asked of the node that coordinates the transactional ids; one that it
does not coordinate, or has not loaded, is left out, which is no error: who asks has less to tell then, as on any other
cluster. The client is remembered since it said InitProducerId, and by the coordinator that it said it to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.transaction_progress_request import TransactionProgressRequest
from strandline.codec.messages.transaction_progress_response import (
    TransactionProgressResponse,
    TransactionWatched,
    WaitingMarker,
)
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.handlers.support.response_parts import joined_response
from strandline.runtime.time_slicing import gradually

API_KEY = 20_003
VERSIONS = (0, 0)

WAITING_MARKERS_MAX: Final = 100
"""Partitions without their marker that are named of each transaction."""


def handle(context: RequestContext, request: TransactionProgressRequest) -> None:
    node = context.node
    around = TransactionProgressResponse(node_id=node.node_id, now_ms=node.runtime.now_ms())

    def finish(parts: list[bytes | None]) -> None:
        result = [part for part in parts if part is not None]
        context.reply(joined_response(around, context.api_version, result))

    gradually(node.runtime, encoded(node, request.transactional_ids, context.api_version), finish)


def encoded(node: BrokerServices, transactional_ids: list[str], version: int) -> Iterator[bytes | None]:
    """Yield each transaction encoded; None for an unknown one."""
    for transactional_id in dict.fromkeys(transactional_ids):
        result = _watched(node, transactional_id)
        yield None if result is None else encode(result, version)


def _watched(node: BrokerServices, transactional_id: str) -> TransactionWatched | None:
    shard = node.transactions.shard_of(transactional_id)
    transaction = None if shard is None else shard.transactions.get(transactional_id)
    if shard is None or transaction is None:
        return None
    client_id, client_host = shard.client_of(transactional_id) or ("", "")
    waiting = node.transactions.waiting_markers(transactional_id, count_max=WAITING_MARKERS_MAX)
    return TransactionWatched(
        transactional_id=transactional_id,
        client_id=client_id,
        client_host=client_host,
        last_update_ms=transaction.last_update_ms,
        waiting=[
            WaitingMarker(topic=place.topic, partition=place.partition, leader_id=leader, error_code=code)
            for place, leader, code in waiting
        ],
    )
