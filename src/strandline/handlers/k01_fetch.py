"""Fetch, versions 4 to 18: sessions (KIP-227), waiting for `min_bytes`, both isolation levels; followers (their replica
id and broker epoch are given) by `follower_fetch`.

A consumer is served by the leader and, from version 11 on, by a follower (KIP-392), never above the high watermark that
is known there. A partition that is led elsewhere is answered with who leads it, from version 12 on.

A reader that names the epoch of its last record gets the offset where the log was truncated, if it was.

With read_committed nothing from the last stable offset on is sent, and aborted transactions among the rest are named.

A leader sends a consumer that names its rack to a replica there, with `replica.selector.class`.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.fetch import (
    FLEXIBLE_FROM,
    TOPIC_ID_FROM,
    FetchRequest,
    PartitionData,
    encode_fetch_response,
    parse_fetch,
)
from strandline.config.cluster_settings import RACK_AWARE_SELECTOR
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.access.data_access import guard_of, may_replicate
from strandline.handlers.support.context import BrokerServices, Connection, Exchange
from strandline.handlers.support.fetching import follower_fetch
from strandline.handlers.support.fetching.fetch_attempt import FetchAttempt
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.fetch_session import FetchSession
from strandline.partition.follower_session import FollowerSession

API_KEY: Final = 1
VERSIONS: Final = (4, 18)
PARTITIONS_PER_TURN_MAX: Final = 2000
"""A request that names more is only read in its turn; its session is made in the next, and the answer in a third."""


def start(
    node: BrokerServices, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
) -> None:
    request = parse_fetch(view, at, version)
    if request.replica_id >= 0:
        # Replication is never throttled, and its time is not a client's.
        connection.quota = None
    flexible = version >= FLEXIBLE_FROM
    guard: ClientGuard | None = None
    if node.authorizer is not None:
        guard = guard_of(node, connection, "Fetch")
        if request.replica_id >= 0 and not may_replicate(guard):
            connection.reply_now(correlation_id, flexible, _refused_follower(node, request, version))
            return
    if len(request.partitions) > PARTITIONS_PER_TURN_MAX:
        exchange = connection.begin(correlation_id, flexible_header=flexible)
        node.runtime.call_soon(_start_long, node, connection, exchange, request, version, guard)
        return
    try:
        session, is_full = node.sessions.session_for(
            request,
            uses_topic_ids=version >= TOPIC_ID_FROM,
            now=node.runtime.monotonic(),
            session_type=FetchSession if request.replica_id < 0 else FollowerSession,
        )
    except RequestError as error:
        node.count_error(API_KEY, error.code)
        connection.reply_now(correlation_id, flexible, _refusal(version, error.code))
        return
    exchange = connection.begin(correlation_id, flexible_header=flexible)
    _attempt(node, exchange, session, request, version, guard, is_full=is_full).look()


def _start_long(
    node: BrokerServices,
    connection: Connection,
    exchange: Exchange,
    request: FetchRequest,
    version: int,
    guard: ClientGuard | None,
) -> None:
    if connection.closed:
        return
    try:
        session, is_full = node.sessions.session_for(
            request,
            uses_topic_ids=version >= TOPIC_ID_FROM,
            now=node.runtime.monotonic(),
            session_type=FetchSession if request.replica_id < 0 else FollowerSession,
        )
    except RequestError as error:
        exchange.count_error(error.code)
        exchange.reply(_refusal(version, error.code))
        return
    node.runtime.call_soon(_attempt(node, exchange, session, request, version, guard, is_full=is_full).maybe_look)


def _refusal(version: int, code: int) -> bytes:
    pieces, _ = encode_fetch_response([], version, session_id=0, error_code=code)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _refused_follower(node: BrokerServices, request: FetchRequest, version: int) -> bytes:
    """Return the response to a client that fetches as a follower and may not: all its partitions are refused."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.count_error(API_KEY, code)
    data: list[PartitionData[LogSlice]] = [
        PartitionData(fetch[0], fetch[1], code, -1, -1, -1, None) for fetch in request.partitions
    ]
    pieces, _ = encode_fetch_response(data, version, session_id=0)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _attempt(
    node: BrokerServices,
    exchange: Exchange,
    session: FetchSession,
    request: FetchRequest,
    version: int,
    guard: ClientGuard | None,
    *,
    is_full: bool,
) -> FetchAttempt:
    if isinstance(session, FollowerSession):
        return follower_fetch.attempt(node, exchange, session, request, version, is_full=is_full)
    attempt = FetchAttempt(node, exchange, session, version, is_full=is_full)
    attempt.size_bytes_max = min(request.size_bytes_max, node.config.fetch_max_bytes)
    if exchange.connection.quota is not None:
        attempt.size_bytes_max = min(attempt.size_bytes_max, exchange.connection.quota.fetch_bytes_max)
    attempt.size_bytes_min = min(request.size_bytes_min, attempt.size_bytes_max)
    attempt.wait_ms = request.wait_ms_max
    attempt.isolation_level = request.isolation_level
    if node.config.replica_selector_class == RACK_AWARE_SELECTOR:
        attempt.rack_id = request.rack_id
    attempt.guard = guard
    exchange.on_abandoned = attempt.abandon
    return attempt
