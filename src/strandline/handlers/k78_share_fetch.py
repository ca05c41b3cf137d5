"""ShareFetch, versions 1 and 2: a member acquires records of the partitions in its share session.

Acknowledgements of earlier records come along. The response is sent when they are stored, and when there are records
or the wait is over. A request that renews locks fetches nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from strandline.codec.shares import ShareFetchRequest, encode_share_fetch, parse_share_fetch
from strandline.coordinators.shares.delivery.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.shares.share_fetch_attempt import ShareFetchAttempt
from strandline.handlers.shares.share_requests import Result, check_member
from strandline.handlers.support.context import BrokerServices, Connection, Exchange
from strandline.handlers.support.services import SessionConnection

API_KEY: Final = 78
VERSIONS: Final = (1, 2)


def start(
    node: BrokerServices, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
) -> None:
    request = parse_share_fetch(view, at, version)
    exchange = connection.begin(correlation_id, flexible_header=True)
    try:
        group_id, member_id, guard = check_member(node, connection, "ShareFetch", request.group_id, request.member_id)
        _check(request)
        session = _session(node, connection, request, group_id, member_id)
    except RequestError as error:
        refuse = partial(_refuse, node, exchange, error)
        if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.wait_ms_max > 0:
            # Held back, because the client asks again at once.
            node.runtime.call_later(request.wait_ms_max / 1000, refuse)
        else:
            refuse()
        return
    _fetch(node, exchange, session, request, guard)


def _check(request: ShareFetchRequest) -> None:
    if request.session_epoch == INITIAL_EPOCH and any(asked.batches for asked in request.partitions):
        raise RequestError(ErrorCode.INVALID_REQUEST, "acknowledgements with a new share session")
    if request.is_renewal and (
        request.size_bytes_max or request.size_bytes_min or request.records_max or request.wait_ms_max
    ):
        raise RequestError(ErrorCode.INVALID_REQUEST, "a request that renews locks fetches nothing")


def _session(
    node: BrokerServices, connection: Connection, request: ShareFetchRequest, group_id: str, member_id: str
) -> ShareSession[SessionConnection]:
    delivery = node.share_delivery
    if request.session_epoch == INITIAL_EPOCH:
        session = delivery.open_session(group_id, member_id, connection)
    else:
        session = delivery.sessions.resume(group_id, member_id, request.session_epoch)
    if request.session_epoch != FINAL_EPOCH:
        session.update([(asked.topic_id, asked.partition) for asked in request.partitions], request.forgotten)
    return session


def _fetch(
    node: BrokerServices,
    exchange: Exchange,
    session: ShareSession[SessionConnection],
    request: ShareFetchRequest,
    guard: ClientGuard | None,
) -> None:
    attempt = ShareFetchAttempt(node, exchange, session, request, guard)
    exchange.on_abandoned = attempt.abandon
    is_final = request.session_epoch == FINAL_EPOCH
    attempt.acknowledge([asked for asked in request.partitions if asked.batches])
    if is_final:
        node.share_delivery.end_session(session)
    if is_final or request.is_renewal:
        attempt.end_fetch()
    else:
        attempt.look()


def _refuse(node: BrokerServices, exchange: Exchange, error: RequestError) -> None:
    if exchange.connection.closed:
        return
    exchange.count_error(error.code)
    results: list[Result] = []
    pieces, size = encode_share_fetch(results, error_code=error.code, error_message=str(error))
    exchange.reply_pieces(pieces, size)
