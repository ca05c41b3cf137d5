"""ShareAcknowledge, versions 1 and 2: a member accepts, releases or rejects records, or renews its locks on them.

It counts in the epochs of the share session that ShareFetch opened; the final epoch ends the session. The response is
sent when the share coordinator has stored the outcome of every partition.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.shares import (
    ShareAcknowledgeRequest,
    SharePartitionResponse,
    encode_share_acknowledge,
    parse_share_acknowledge,
)
from strandline.coordinators.shares.delivery.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.shares.share_requests import Acknowledging, Result, check_member, with_leaders
from strandline.handlers.support.context import BrokerServices, Connection, Exchange

API_KEY: Final = 79
VERSIONS: Final = (1, 2)


def start(
    node: BrokerServices, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
) -> None:
    request = parse_share_acknowledge(view, at, version)
    try:
        group_id, member_id, guard = check_member(
            node, connection, "ShareAcknowledge", request.group_id, request.member_id
        )
        if request.session_epoch == INITIAL_EPOCH:
            raise RequestError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session begins with ShareFetch")
        session = node.share_delivery.sessions.resume(group_id, member_id, request.session_epoch)
    except RequestError as error:
        node.count_error(API_KEY, error.code)
        body = encode_share_acknowledge((), version, error_code=error.code, error_message=str(error))
        connection.reply_now(correlation_id, True, body)
        return
    exchange = connection.begin(correlation_id, flexible_header=True)

    def answer() -> None:
        if not connection.closed:
            _answer(node, exchange, version, request, group_id, acknowledging)

    acknowledging = Acknowledging()
    acknowledging.start(node, group_id, member_id, request.partitions, guard, answer, is_renewal=request.is_renewal)
    if request.session_epoch == FINAL_EPOCH:
        node.share_delivery.end_session(session)


def _answer(
    node: BrokerServices,
    exchange: Exchange,
    version: int,
    request: ShareAcknowledgeRequest,
    group_id: str,
    acknowledging: Acknowledging,
) -> None:
    results: list[Result] = []
    for name, (code, message) in acknowledging.refused.items():
        if code:
            node.count_error(API_KEY, code)
        results.append(SharePartitionResponse(*name, acknowledge_error_code=code, acknowledge_error_message=message))
    results, endpoints = with_leaders(node, results, exchange.connection.listener_name)
    lock_timeout_ms = node.share_delivery.settings_of(group_id).lock_duration_ms
    exchange.reply(encode_share_acknowledge(results, version, lock_timeout_ms=lock_timeout_ms, endpoints=endpoints))
