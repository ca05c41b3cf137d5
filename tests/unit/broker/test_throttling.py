"""Quotas on connections: what is charged to which client, and how a connection waits."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.peer import FakeTransport, feed, request
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.network.admission import Admission
from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.listener import SocketListener
from strandline.broker.network.routes import Handler, Route
from strandline.broker.network.throttled_newcomer import ThrottledNewcomer
from strandline.broker.network.throttling import CLIENT_ID_BYTES_MAX, LINES_PER_MINUTE_MAX, ConnectionQuota, Throttling
from strandline.codec.message_codec import decode_exact
from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.config.node_config import BrokerConfig
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.principal import Principal, Session

PRODUCE, FETCH, HEARTBEAT, WRITE_TXN_MARKERS = 0, 1, 12, 27
BYTES, READ, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CREATED = "connection_creation_rate"


class SpentRuntime(ManualRuntime):
    """A loop whose time passes only where a test says so; timers fire in `pass_time`."""

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = sorted(
                (each for each in self.timers if each.due <= end and not each.cancelled), key=lambda each: each.due
            )
            if not due:
                break
            self.now = max(self.now, due[0].due)
            self.timers.remove(due[0])
            due[0].callback()
            self.settle()
        self.now = end


class Ground:
    """A dispatcher with quotas, and handlers that charge as the real ones do."""

    def __init__(self) -> None:
        self.runtime = SpentRuntime()
        self.kept = KeptRecords()
        self.node: Any = SimpleNamespace(runtime=self.runtime, run=self.runtime.settle, authorizer=None)
        self.throttles: list[int] = []
        self.fetched: list[tuple[int, bool]] = []
        self.fetch_bytes = 0
        self.replica_id = -1
        self.acks = 1
        self.takes_s = 0.0
        routes = {
            PRODUCE: Route(PRODUCE, "Produce", (0, 13), 20, "none", hot=self._produce),
            FETCH: Route(FETCH, "Fetch", (0, 13), 20, "none", hot=self._fetch),
            HEARTBEAT: Route(HEARTBEAT, "Heartbeat", (0, 4), 4, "none"),
            WRITE_TXN_MARKERS: Route(WRITE_TXN_MARKERS, "WriteTxnMarkers", (0, 4), 4, "none"),
        }
        for key in (HEARTBEAT, WRITE_TXN_MARKERS):
            routes[key]._handler = Handler(HeartbeatRequest, self._heartbeat)
        self.dispatcher = Dispatcher(self.node, routes, frame_size_max=1 << 20, inbox_bytes_max=1 << 30)
        environment: Any = SimpleNamespace(
            runtime=self.runtime,
            config=lambda: BrokerConfig.load(""),
            image=lambda: SimpleNamespace(kept=self.kept),
        )
        self.throttling = Throttling(environment, lambda: [self.dispatcher])
        self.throttling.renew()

    def _produce(self, _: Any, connection: Any, view: memoryview, at: int, version: int, correlation_id: int) -> None:
        self.runtime.now += self.takes_s
        quota = connection.quota
        self.throttles.append(0 if quota is None else quota.charge_produce(connection, len(view), self.acks))
        connection.reply_now(correlation_id, False, b"")

    def _fetch(self, _: Any, connection: Any, view: memoryview, at: int, version: int, correlation_id: int) -> None:
        if self.replica_id >= 0:
            connection.quota = None
        self.runtime.now += self.takes_s
        quota = connection.quota
        self.fetched.append((0, True) if quota is None else quota.charge_fetch(connection, self.fetch_bytes))
        connection.reply_now(correlation_id, False, b"")

    def _heartbeat(self, context: Any, asked: Any) -> HeartbeatResponse:
        self.runtime.now += self.takes_s
        return HeartbeatResponse()

    def set(self, key: str, value: float | None, **entity: str | None) -> None:
        parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
        self.kept.apply(ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None))
        self.throttling.renew()

    def connect(self, user: str = "alice") -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        connection = Connection(self.dispatcher, transport)
        connection.session = Session(Principal("User", user))
        self.dispatcher.limits.welcome(connection)
        return connection, transport

    def produce(self, connection: Connection, size: int, client_id: bytes | None = b"app") -> int:
        """Send a Produce of this size; its throttle time."""
        empty = request(1, key=PRODUCE, client_id=client_id)
        count = len(self.throttles)
        feed(connection, request(1, key=PRODUCE, client_id=client_id, body=bytes(size + 4 - len(empty))))
        assert len(self.throttles) == count + 1, "it was started"
        return self.throttles[-1]

    def heartbeat(self, connection: Connection, transport: FakeTransport, key: int = HEARTBEAT) -> int:
        body = struct.pack(">hih", 0, 0, 0)
        count = len(transport.sent)
        feed(connection, request(1, key=key, version=3, body=body + b"\xff\xff"))
        answer = b"".join(part for part in transport.sent[count:] if isinstance(part, bytes))
        assert answer, "it was answered"
        return int(decode_exact(HeartbeatResponse, 3, answer[8:]).throttle_time_ms)


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_without_quotas_nothing_is_looked_up(ground: Ground) -> None:
    connection, _ = ground.connect()
    assert ground.produce(connection, 100_000) == 0
    assert ground.dispatcher.quotas is None
    assert connection.quota is None


def test_client_above_its_quota_is_answered_and_not_read(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, user="alice")
    connection, transport = ground.connect()
    assert ground.produce(connection, 10_000) == 0
    assert ground.produce(connection, 2_000) == 2_000
    assert len(transport.sent) == 2, "the answer comes first"
    assert connection.muted
    assert not transport.reading
    # What had been read already waits, in order, and is bounded by the buffer that it was read into.
    feed(connection, request(7, body=bytes(100)) + request(8, body=bytes(100)))
    assert len(ground.throttles) == 2
    ground.runtime.pass_time(1.9)
    assert len(ground.throttles) == 2
    ground.runtime.pass_time(0.2)
    assert len(ground.throttles) > 2, "it goes on"


def test_requests_that_came_together_wait_behind_the_one_that_was_too_much(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, user="alice")
    connection, _ = ground.connect()
    feed(connection, request(1, body=bytes(12_000)) + request(2, body=bytes(10)) + request(3, body=bytes(10)))
    assert len(ground.throttles) == 1
    assert connection.inbox_size > 0
    ground.runtime.pass_time(60.0)
    assert len(ground.throttles) == 3
    assert connection.inbox_size == 0


def test_user_quota_is_shared_by_its_clients_and_not_by_other_users(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, user=None)
    first, _ = ground.connect("alice")
    second, _ = ground.connect("alice")
    other, _ = ground.connect("bob")
    assert ground.produce(first, 10_000, b"one") == 0
    assert ground.produce(second, 1_000, b"two") == 1000
    assert ground.produce(other, 10_000, b"one") == 0


def test_changed_client_id_has_its_own_quota(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, client_id=None)
    connection, _ = ground.connect()
    assert ground.produce(connection, 10_000, b"one") == 0
    assert ground.produce(connection, 10_000, b"two") == 0
    assert ground.produce(connection, 10_000, None) == 0
    assert ground.produce(connection, 1_000, b"one") == 1000


def test_long_client_ids_are_kept_in_part(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, client_id=None)
    connection, _ = ground.connect()
    assert ground.produce(connection, 12_000, b"x" * 5_000 + b"one") == 2000
    other, _ = ground.connect()
    assert ground.produce(other, 6_000, b"x" * 5_000 + b"two") == 8000
    assert isinstance(other.quota, ConnectionQuota)
    assert len(other.quota.client_id) == CLIENT_ID_BYTES_MAX


def test_client_that_authenticates_has_its_own_quota(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, user="alice")
    connection, _ = ground.connect("ANONYMOUS")
    assert ground.produce(connection, 100_000) == 0
    connection.session = Session(Principal("User", "alice"))
    assert ground.produce(connection, 11_000) == 1000


def test_quota_changes_while_a_client_is_connected(ground: Ground) -> None:
    connection, _ = ground.connect()
    assert ground.produce(connection, 100_000) == 0
    ground.set(BYTES, 1000.0, user="alice")
    assert ground.produce(connection, 10_000) == 0
    ground.set(BYTES, 10_000.0, user="alice")
    assert ground.produce(connection, 10_000) == 0
    ground.set(BYTES, None, user="alice")
    assert ground.dispatcher.quotas is None
    assert ground.produce(connection, 100_000) == 0


def test_request_time_is_counted_and_bounded(ground: Ground) -> None:
    ground.set(TIME, 10.0, user="alice")
    connection, transport = ground.connect()
    ground.takes_s = 0.5
    assert ground.heartbeat(connection, transport) == 0
    assert ground.heartbeat(connection, transport) == 0
    assert ground.heartbeat(connection, transport) == 0
    # 1.5 seconds in 10 and a fraction are above 10 %; the time of a request is in the next answer.
    assert 0 < ground.heartbeat(connection, transport) <= 1000
    assert connection.muted
    other, of_other = ground.connect("bob")
    assert ground.heartbeat(other, of_other) == 0


def test_acks_0_pays_for_bytes_only(ground: Ground) -> None:
    ground.set(TIME, 1.0, user="alice")
    connection, _ = ground.connect()
    ground.takes_s, ground.acks = 5.0, 0
    assert ground.produce(connection, 100) == 0
    assert ground.produce(connection, 100) == 0
    ground.acks = 1
    assert ground.produce(connection, 100) == 1000


def test_fetch_above_its_quota_is_empty_and_not_charged(ground: Ground) -> None:
    ground.set(READ, 1000.0, user="alice")
    connection, _ = ground.connect()
    ground.fetch_bytes = 6_000
    for _ in range(2):
        feed(connection, request(1, key=FETCH))
        ground.runtime.pass_time(3.0)
    assert ground.fetched == [(0, True), (2000, False)]
    assert connection.quota is not None
    assert connection.quota.fetch_bytes_max == 10_000
    ground.fetch_bytes = 3_000
    feed(connection, request(2, key=FETCH))
    assert ground.fetched[-1] == (0, True), "what was not sent is not counted"


def test_fetch_that_is_larger_than_all_windows_passes_alone_and_is_paid_for(ground: Ground) -> None:
    ground.set(READ, 1000.0, user="alice")
    connection, _ = ground.connect()
    ground.fetch_bytes = 50_000
    feed(connection, request(1, key=FETCH))
    assert ground.fetched == [(40_000, True)]
    assert connection.muted


def test_replication_is_exempt(ground: Ground) -> None:
    for key in (BYTES, READ, TIME):
        ground.set(key, 1.0, user=None)
    connection, transport = ground.connect()
    ground.replica_id, ground.fetch_bytes, ground.takes_s = 2, 1_000_000, 5.0
    for _ in range(5):
        feed(connection, request(1, key=FETCH))
    assert ground.fetched == [(0, True)] * 5
    assert ground.heartbeat(connection, transport, key=WRITE_TXN_MARKERS) == 0
    ground.takes_s = 0.0
    assert ground.heartbeat(connection, transport) == 0, "none of that time was a client's"


def test_muted_connection_is_not_idle_and_can_be_closed(ground: Ground) -> None:
    ground.set(BYTES, 1.0, user="alice")
    limits = ground.dispatcher.limits
    connection, transport = ground.connect()
    assert ground.produce(connection, 60) == 50_000
    limits.ticks += 45
    limits.close_idle(idle_s=10)
    assert not connection.closed
    limits.ticks += 20
    limits.close_idle(idle_s=10)
    assert connection.closed, "its wait was over for longer than a connection may be idle"
    assert not limits.muted
    assert all(timer.cancelled for timer in ground.runtime.timers), "nothing holds what is closed"
    ground.runtime.pass_time(100.0)
    assert not transport.reading


def test_peer_that_leaves_while_it_waits_is_forgotten(ground: Ground) -> None:
    ground.set(BYTES, 1.0, user="alice")
    connection, _ = ground.connect()
    ground.produce(connection, 1_000)
    connection.on_closed()
    assert not ground.dispatcher.limits.muted
    ground.runtime.pass_time(10_000.0)
    again, _ = ground.connect()
    assert ground.produce(again, 100) >= 0


def test_muted_connection_starts_nothing_while_the_node_stops(ground: Ground) -> None:
    ground.set(BYTES, 1000.0, user="alice")
    connection, _ = ground.connect()
    feed(connection, request(1, body=bytes(12_000)) + request(2, body=bytes(10)))
    ground.dispatcher.limits.is_stopping = True
    ground.runtime.pass_time(60.0)
    assert len(ground.throttles) == 1


def test_waits_are_logged_once_a_minute_for_each_bucket(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "strandline.broker")
    ground.set(BYTES, 1.0, user=None)

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if "throttling" in each.getMessage()]

    connection, _ = ground.connect()
    ground.produce(connection, 60)
    ground.runtime.pass_time(55.0)
    ground.produce(connection, 60)
    assert len(lines()) == 1
    assert "user 'alice'" in lines()[0]
    for number in range(2 * LINES_PER_MINUTE_MAX):
        other, _ = ground.connect(f"user-{number}")
        ground.produce(other, 60)
    assert len(lines()) <= 1 + LINES_PER_MINUTE_MAX
    assert ground.throttling.rates[BYTES].buckets


def test_forwarded_answer_keeps_the_greater_throttle_time(ground: Ground) -> None:
    ground.set(TIME, 100.0, user="alice")
    connection, transport = ground.connect()

    def told(context: Any, asked: Any) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=700)

    ground.dispatcher.routes[HEARTBEAT]._handler = Handler(HeartbeatRequest, told)
    assert ground.heartbeat(connection, transport) == 700
    assert connection.muted


class NewTransport(FakeTransport):
    def __init__(self, host: str) -> None:
        super().__init__()
        self.peer_host = host


def test_connections_that_come_too_fast_are_held_and_closed(ground: Ground) -> None:
    listener = SocketListener(
        None,  # type: ignore[arg-type]  # nothing listens
        ground.runtime,
        ground.dispatcher,
        Admission(connections_max=1000),
    )

    def accept(host: str = "10.0.0.1") -> tuple[Any, NewTransport]:
        transport = NewTransport(host)
        return listener._on_accept(transport), transport

    assert all(isinstance(accept()[0], Connection) for _ in range(50)), "without a quota all are welcome"
    ground.set(CREATED, 1.0, ip="10.0.0.1")
    ground.set(CREATED, 5.0, ip=None)
    assert [isinstance(accept("::ffff:10.0.0.1")[0], Connection) for _ in range(11)] == [True] * 10 + [False]
    held, transport = accept()
    assert isinstance(held, ThrottledNewcomer)
    held.receive(memoryview(b"something"))
    assert not transport.reading
    assert not transport.sent
    assert not transport.closed
    ground.runtime.pass_time(1.1)
    assert transport.closed
    assert ground.dispatcher.limits.refusals["rate"] == 2
    # Others have the default, each its own.
    assert [isinstance(accept("10.0.0.2")[0], Connection) for _ in range(51)] == [True] * 50 + [False]
    assert isinstance(accept("10.0.0.3")[0], Connection)
    # Those that were turned away did not count.
    ground.runtime.pass_time(12.0)
    assert [isinstance(accept()[0], Connection) for _ in range(11)] == [True] * 10 + [False]


def test_few_newcomers_are_held_at_one_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.network.listener.NEWCOMERS_HELD_MAX", 2)
    ground.set(CREATED, 1.0, ip=None)
    listener = SocketListener(
        None,  # type: ignore[arg-type]  # nothing listens
        ground.runtime,
        ground.dispatcher,
        Admission(connections_max=1000),
    )
    accepted = [listener._on_accept(NewTransport("10.0.0.1")) for _ in range(13)]
    assert [type(each) for each in accepted[10:]] == [ThrottledNewcomer, ThrottledNewcomer, type(None)]
    first = accepted[10]
    assert first is not None
    first.on_closed()
    assert isinstance(listener._on_accept(NewTransport("10.0.0.1")), ThrottledNewcomer)
