"""Quotas on the requests of clients: found, charged, and obeyed by connections that are not read for a while.

An answer comes first and tells its throttle time; then nothing is read from the connection for that long (KIP-219).
So a client that ignores the time is held back by its own socket.

- Produce is charged for its bytes when it is started, Fetch for its records when it is answered.
- All requests are charged for the time that the loop spent on starting them. The next answer tells of it.
- A fetch above its quota is answered with nothing, and nothing is charged. What it read alone may be more than the
  quota allows in all windows: then it is sent when nothing else counts, and paid for afterwards.
- Exempt are replication, requests between brokers, authentication, and the listener of controllers.

The client id stands before the body of every request, so it is compared with the last one of the connection. The quota
of a client is looked up again only when it changes, when the client authenticates, or when the quotas change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil
from struct import Struct
from typing import Any, Final

from strandline.broker.environment import Environment
from strandline.broker.network.admission import plain_address
from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import Route
from strandline.codec.answers import response_class
from strandline.config.quota_keys import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from strandline.config.settings import INT_MAX
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import EncodedResponse, MutationQuota
from strandline.handlers.support.mutation_quota import FREE
from strandline.observability.log_lines import fields
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.principal import Session
from strandline.security.quotas.bucket_table import BucketTable, name_of
from strandline.security.quotas.limits import EntityPart, Match, QuotaLimits
from strandline.security.quotas.rate_bucket import RateBucket
from strandline.security.quotas.token_bucket import TokenBucket

THROTTLE_MS_MAX: Final = INT_MAX
"""The field of the protocol holds no more."""
CLIENT_ID_BYTES_MAX: Final = 1024
"""So much of a client id tells clients apart: ids are made up by clients, and kept with what they used."""
CLIENTS_MAX: Final = 10_000
"""Clients whose quotas are remembered; then all are looked up again."""
LOG_MS: Final = 60_000.0
LINES_PER_MINUTE_MAX: Final = 30
_HEADER_BYTES: Final = 10
_PERCENT_PER_NS: Final = 100 / 1e9
_INT32: Final = Struct(">i")
_SASL_HANDSHAKE, _ADD_PARTITIONS_TO_TXN, _WRITE_TXN_MARKERS, _SASL_AUTHENTICATE = 17, 24, 27, 36
_VERIFIES_FROM: Final = 4
"""From this version on AddPartitionsToTxn is a request of brokers."""

log = logging.getLogger("strandline.broker")


class ConnectionQuota:
    """What the client of a connection may use."""

    __slots__ = ("_monotonic", "_throttling", "client_id", "fetch", "fetch_bytes_max", "produce", "requests", "session")

    def __init__(self, throttling: Throttling, session: Session, client_id: bytes) -> None:
        self._throttling = throttling
        self._monotonic = throttling.monotonic
        self.session = session
        self.client_id = client_id
        user, name = session.principal.name, client_id.decode("utf-8", "replace")
        self.produce = throttling.bucket_of(PRODUCER_BYTE_RATE, user, name)
        self.fetch = throttling.bucket_of(CONSUMER_BYTE_RATE, user, name)
        self.requests = throttling.bucket_of(REQUEST_PERCENTAGE, user, name)
        self.fetch_bytes_max = INT_MAX if self.fetch is None else max(1, min(INT_MAX, int(self.fetch.burst)))

    def charge_produce(self, connection: Any, size_bytes: int, acks: int) -> int:
        produce, requests = self.produce, self.requests
        if produce is None and requests is None:
            return 0
        now_ms = self._monotonic() * 1000
        throttle_ms = 0 if produce is None else produce.charge(size_bytes + _HEADER_BYTES, now_ms)
        if requests is not None and acks != 0 and (of_time_ms := requests.charge(0.0, now_ms)) > throttle_ms:
            throttle_ms, produce = of_time_ms, requests
        if throttle_ms:
            assert produce is not None
            self._throttling.mute(connection, throttle_ms, produce, now_ms)
        return throttle_ms

    def charge_fetch(self, connection: Any, size_bytes: int) -> tuple[int, bool]:
        fetch, requests = self.fetch, self.requests
        if fetch is None and requests is None:
            return 0, True
        now_ms = self._monotonic() * 1000
        throttle_ms, may_send = 0, True
        if fetch is not None:
            is_alone = fetch.is_idle(now_ms)
            throttle_ms = fetch.charge(size_bytes, now_ms)
            may_send = is_alone or not throttle_ms
        if requests is not None and (of_time_ms := requests.charge(0.0, now_ms)):
            may_send = False
            if of_time_ms > throttle_ms:
                throttle_ms, fetch = of_time_ms, requests
        if not may_send and self.fetch is not None:
            self.fetch.take_back(size_bytes)
        if throttle_ms:
            assert fetch is not None
            self._throttling.mute(connection, throttle_ms, fetch, now_ms)
        return throttle_ms, may_send


class BucketMutations:
    """What a client may change of topics and partitions."""

    def __init__(self, throttling: Throttling, bucket: TokenBucket, *, is_strict: bool) -> None:
        self._throttling = throttling
        self._bucket = bucket
        self._is_strict = is_strict
        self._until_ms = 0.0

    def pay(self, partitions: int) -> None:
        now_ms = self._throttling.now_ms()
        throttle_ms = self._bucket.charge(partitions, now_ms, is_strict=self._is_strict)
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
            self._throttling.note(self._bucket, throttle_ms, now_ms)
            if self._is_strict:
                raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self) -> int:
        # The response may come long after the change was decided.
        return max(0, min(THROTTLE_MS_MAX, round(self._until_ms - self._throttling.now_ms())))


class Throttling:
    """The quotas in force on this node, and the connections that wait because of them."""

    def __init__(self, environment: Environment, dispatchers: Callable[[], Iterable[Dispatcher]]) -> None:
        self._environment = environment
        self._runtime = environment.runtime
        self.monotonic = environment.runtime.monotonic
        self._dispatchers = dispatchers
        """The listeners of clients; the controller's is exempt."""
        self._kept: KeptRecords | None = None
        self._version = -1
        config = environment.config()
        window_ms = config.quota_window_size_seconds * 1000
        make = partial(_rate_bucket, windows=config.quota_window_num, window_ms=window_ms)
        self.limits = QuotaLimits()
        self.rates: dict[str, BucketTable[RateBucket]] = {
            PRODUCER_BYTE_RATE: BucketTable(make),
            CONSUMER_BYTE_RATE: BucketTable(make),
            REQUEST_PERCENTAGE: BucketTable(partial(make, throttle_ms_max=window_ms)),
        }
        controller_window_ms = config.controller_quota_window_size_seconds * 1000
        make_tokens = partial(_token_bucket, windows=config.controller_quota_window_num, window_ms=controller_window_ms)
        self.mutations: BucketTable[TokenBucket] = BucketTable(make_tokens)
        self.connections: BucketTable[RateBucket] = BucketTable(partial(make, throttle_ms_max=window_ms))
        self._clients: dict[tuple[Session, bytes], ConnectionQuota] = {}
        self._throttle_is_first: dict[tuple[int, int], bool] = {}
        self._lines = 0
        self._lines_since_ms = 0.0

    def now_ms(self) -> float:
        return self.monotonic() * 1000

    # The quotas

    def renew(self) -> None:
        """Put the quotas of the image in force, if they changed."""
        kept = self._environment.image().kept
        version = kept.versions.get("quota", 0)
        if kept is self._kept and version == self._version:
            return
        self._kept, self._version = kept, version
        self.limits = QuotaLimits(kept.of_kind("quota"))
        self._clients.clear()
        for dispatcher in self._dispatchers():
            dispatcher.quotas = self if self.limits.has_client_quotas else None
            dispatcher.limits.creation_delay_ms = self._creation_delay_ms if self.limits.has_ip_quotas else None
            for connection in dispatcher.limits.connections:
                connection.quota = None

    def bucket_of(self, key: str, user: str, client_id: str) -> RateBucket | None:
        match = self.limits.of_client(key, user, client_id)
        return None if match is None else self.rates[key].bucket_of(match, self.now_ms())

    def _creation_delay_ms(self, host: str) -> int:
        """Count a connection of an address; return how long it is held before it is closed, 0 if it is welcome."""
        address = plain_address(host)
        limit = self.limits.of_ip(address)
        if limit is None:
            return 0
        now_ms = self.now_ms()
        match = Match(limit, (EntityPart.DEFAULT, EntityPart.ABSENT), (address, None))
        bucket = self.connections.bucket_of(match, now_ms)
        delay_ms = bucket.charge(1.0, now_ms)
        if delay_ms:
            # One that is not served does not count.
            bucket.take_back(1.0)
            self.note(bucket, delay_ms, now_ms)
        return delay_ms

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        self.renew()
        match = self.limits.of_client(CONTROLLER_MUTATION_RATE, user, client_id)
        if match is None:
            return FREE
        return BucketMutations(self, self.mutations.bucket_of(match, self.now_ms()), is_strict=is_strict)

    # Requests

    def begin(self, connection: Connection, view: memoryview, api_key: int, version: int, client_id_size: int) -> int:
        if api_key in _EXEMPT and (api_key != _ADD_PARTITIONS_TO_TXN or version >= _VERIFIES_FROM):
            connection.quota = None
            return 0
        quota: Any = connection.quota
        if client_id_size > CLIENT_ID_BYTES_MAX:
            client_id_size = CLIENT_ID_BYTES_MAX
        # -1 is a client without an id, which is the same as an empty one.
        client_id = view[:client_id_size] if client_id_size > 0 else b""
        if quota is None or quota.session is not connection.session or quota.client_id != client_id:
            quota = connection.quota = self._quota_of(connection.session, bytes(client_id))
        return 0 if quota.requests is None else self._runtime.monotonic_ns()

    def _quota_of(self, session: Session, client_id: bytes) -> ConnectionQuota:
        quota = self._clients.get((session, client_id))
        if quota is None or quota.session is not session:
            if len(self._clients) >= CLIENTS_MAX:
                # The buckets stay, so nothing is forgotten that was used.
                self._clients.clear()
            quota = self._clients[session, client_id] = ConnectionQuota(self, session, client_id)
        return quota

    def end(self, connection: Connection, began_ns: int) -> None:
        quota: Any = connection.quota
        if quota is not None and quota.requests is not None:
            took_ns = self._runtime.monotonic_ns() - began_ns
            quota.requests.charge(took_ns * _PERCENT_PER_NS, self.monotonic() * 1000)

    def throttle(self, connection: Connection, route: Route, version: int, response: Any) -> Any:
        quota: Any = connection.quota
        now_ms = self.now_ms()
        throttle_ms = 0 if quota.requests is None else quota.requests.charge(0.0, now_ms)
        told_ms = self._told_ms(route, version, response)
        throttle_ms = max(throttle_ms, told_ms or 0)
        if not throttle_ms:
            return response
        self.mute(connection, throttle_ms, quota.requests, now_ms)
        if told_ms is None:
            return response
        if type(response) is EncodedResponse:
            return EncodedResponse(_INT32.pack(throttle_ms) + response.body[_INT32.size :])
        response.throttle_time_ms = throttle_ms
        return response

    def _told_ms(self, route: Route, version: int, response: Any) -> int | None:
        """Return the throttle time that the controller told already; None if the response has no room for one."""
        if type(response) is not EncodedResponse:
            told_ms: int | None = getattr(response, "throttle_time_ms", None)
            return told_ms
        key = route.api_key, version
        if key not in self._throttle_is_first:
            fields_of = response_class(route.load().request_class).FIELDS
            first = next((field.name for field in fields_of if field.present(version)), "")
            self._throttle_is_first[key] = first == "throttle_time_ms"
        return int(_INT32.unpack_from(response.body)[0]) if self._throttle_is_first[key] else None

    # Connections that wait

    def mute(self, connection: Connection, throttle_ms: int, bucket: RateBucket | None, now_ms: float) -> None:
        """Read nothing from the connection for so long. What it has sent already waits in its inbox."""
        if bucket is not None:
            self.note(bucket, throttle_ms, now_ms)
        if connection.closed:
            return
        delay_s = throttle_ms / 1000
        limits = connection.limits
        before = limits.muted.pop(connection, None)
        if before is not None:
            before.cancel()
        limits.muted[connection] = self._runtime.call_later(delay_s, self._unmute, connection)
        # It cannot send meanwhile, so it is not idle before its wait is over.
        connection.used_at = limits.ticks + ceil(delay_s)
        connection.mute()

    def _unmute(self, connection: Connection) -> None:
        connection.limits.muted.pop(connection, None)
        connection.unmute()

    def note(self, bucket: RateBucket | TokenBucket, throttle_ms: int, now_ms: float) -> None:
        """Count a throttle time, and log it once a minute."""
        bucket.throttled_ms += throttle_ms
        if now_ms - bucket.logged_ms >= LOG_MS:
            bucket.logged_ms = now_ms
            self._log(bucket, throttle_ms, now_ms)

    def _log(self, bucket: RateBucket | TokenBucket, throttle_ms: int, now_ms: float) -> None:
        if now_ms - self._lines_since_ms >= LOG_MS:
            self._lines, self._lines_since_ms = 0, now_ms
        self._lines += 1
        if self._lines > LINES_PER_MINUTE_MAX:
            return
        for key, (user, client_id), each in self.buckets():
            if each is bucket:
                facts = {"ip": user} if key == CONNECTION_CREATION_RATE else {"user": user, "client_id": client_id}
                whom = ", ".join(f"{kind.replace('_', ' ')} {name!r}" for kind, name in facts.items() if name)
                log.info(
                    "throttling %s: above %s=%g; waits %d ms",
                    whom,
                    key,
                    bucket.limit,
                    throttle_ms,
                    extra=fields(quota=key, throttle_ms=throttle_ms, **facts),
                )
                return

    def buckets(self) -> Iterator[tuple[str, tuple[str, str], RateBucket | TokenBucket]]:
        """Yield all buckets, each with the key of its quota, and user and client id, or an address for the user."""
        for key, table in self.rates.items():
            for name, bucket in table.buckets.items():
                yield key, name_of(name), bucket
        for name, tokens in self.mutations.buckets.items():
            yield CONTROLLER_MUTATION_RATE, name_of(name), tokens
        for name, bucket in self.connections.buckets.items():
            yield CONNECTION_CREATION_RATE, name_of(name), bucket


_EXEMPT: Final = frozenset((_SASL_HANDSHAKE, _SASL_AUTHENTICATE, _ADD_PARTITIONS_TO_TXN, _WRITE_TXN_MARKERS))


def _token_bucket(limit: float, now_ms: float, *, windows: int, window_ms: int) -> TokenBucket:
    return TokenBucket(limit, windows=windows, window_ms=window_ms, now_ms=now_ms)


def _rate_bucket(
    limit: float, now_ms: float, *, windows: int, window_ms: int, throttle_ms_max: int = THROTTLE_MS_MAX
) -> RateBucket:
    return RateBucket(limit, windows=windows, window_ms=window_ms, throttle_ms_max=throttle_ms_max)
