"""KIP-714, as a story of one client and its broker: who is asked for what, and which pushes are taken."""

from __future__ import annotations

import uuid

import pytest

from strandline.errors import ErrorCode, RequestError
from strandline.ids import ZERO_UUID
from strandline.observability.client_telemetry import (
    CLIENT_INSTANCES_MAX,
    ONE_UUID,
    Client,
    ClientInstance,
    ClientTelemetry,
    kafka_text,
    subscription_id,
)

ME = uuid.UUID(int=0x1234_5678_9ABC_DEF0_1111_2222_3333_4444)
JAVA = Client("app-1", "apache-kafka-java", "4.3.1", "10.1.2.3", "40001")
INTERVAL_MS = 1_000
SIZE_MAX = 100


class Line:
    closed = False


class Broker:
    """The telemetry with a clock that the story moves."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.telemetry = ClientTelemetry()
        self.telemetry.subscribe(subscriptions or {"all": {"interval.ms": str(INTERVAL_MS), "metrics": "*"}})
        self.now_ms = 1_000_000
        self.line = Line()

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def get(self, instance_id: uuid.UUID = ME, client: Client = JAVA) -> ClientInstance:
        return self.telemetry.get(instance_id, client, self.line, self.now_ms)

    def push(
        self,
        subscription: int | None = None,
        *,
        instance_id: uuid.UUID = ME,
        terminating: bool = False,
        codec: int = 4,
        size_bytes: int = 10,
    ) -> ErrorCode:
        if subscription is None:
            subscription = subscription_id(("*",), INTERVAL_MS, ME)
        try:
            self.telemetry.push(
                instance_id,
                JAVA,
                self.line,
                self.now_ms,
                asked_subscription_id=subscription,
                is_terminating=terminating,
                codec=codec,
                size_bytes=size_bytes,
                size_bytes_max=SIZE_MAX,
            )
        except RequestError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE


def refusal(broker: Broker) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        broker.get()
    return ErrorCode(refused.value.code)


def test_a_client_gets_its_subscription_and_pushes_at_its_interval() -> None:
    broker = Broker()
    asked = broker.get()
    assert (asked.metrics, asked.interval_ms) == (("*",), INTERVAL_MS)
    broker.wait(500)
    assert broker.push(asked.subscription_id) is ErrorCode.NONE, "the first may come after half an interval"
    broker.wait(INTERVAL_MS - 1)
    assert broker.push(asked.subscription_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.wait(1)
    assert broker.push(asked.subscription_id) is ErrorCode.NONE


def test_a_client_that_asks_again_too_soon_is_throttled() -> None:
    broker = Broker()
    broker.get()
    broker.wait(INTERVAL_MS - 1)
    assert refusal(broker) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.wait(1)
    broker.get()


def test_a_client_that_was_refused_may_ask_again_at_once() -> None:
    broker = Broker()
    asked = broker.get()
    assert broker.push(asked.subscription_id + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    broker.get()
    broker.wait(INTERVAL_MS)
    assert broker.push(asked.subscription_id, codec=5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    broker.get()
    assert refusal(broker) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", [-1, 5, 127])
def test_unknown_codecs(codec: int) -> None:
    assert Broker().push(codec=codec) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", range(5))
def test_known_codecs(codec: int) -> None:
    assert Broker().push(codec=codec) is ErrorCode.NONE


def test_too_large() -> None:
    broker = Broker()
    assert broker.push(size_bytes=SIZE_MAX) is ErrorCode.NONE
    broker.wait(INTERVAL_MS)
    assert broker.push(size_bytes=SIZE_MAX + 1) is ErrorCode.TELEMETRY_TOO_LARGE


def test_the_last_push_may_come_at_any_time_and_is_the_last() -> None:
    broker = Broker()
    assert broker.push() is ErrorCode.NONE
    assert broker.push(terminating=True) is ErrorCode.NONE
    broker.wait(INTERVAL_MS)
    assert broker.push() is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("instance_id", [ZERO_UUID, ONE_UUID])
def test_ids_that_no_client_has(instance_id: uuid.UUID) -> None:
    assert Broker().push(instance_id=instance_id) is ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_is_heard_of_at_once() -> None:
    broker = Broker()
    before = broker.get()
    broker.telemetry.subscribe({"all": {"interval.ms": "2000", "metrics": "a.,b."}})
    broker.wait(INTERVAL_MS)
    assert broker.push(before.subscription_id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = broker.get()
    assert (after.metrics, after.interval_ms) == (("a.", "b."), 2_000)
    assert after.subscription_id != before.subscription_id


def test_metrics_of_all_that_fit_at_the_shortest_interval() -> None:
    broker = Broker(
        java={"metrics": "a.,b.", "interval.ms": "5000", "match": "client_software_name=apache-kafka-java"},
        app={"metrics": "b.,c.", "interval.ms": "3000", "match": "client_id=app-.*,client_source_port=40001"},
        other={"metrics": "*", "interval.ms": "100", "match": "client_id=app"},
    )
    asked = broker.get()
    assert (asked.metrics, asked.interval_ms) == (("a.", "b.", "c."), 3_000)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (f"client_instance_id={kafka_text(ME)}", True),
        (f"client_instance_id={ME}", False),
        ("client_source_address=10\\.1\\..*", True),
        ("client_source_address=10", False),
        ("client_software_version=4\\.[0-9.]+,client_id=app-1", True),
        ("client_software_version=4\\.[0-9.]+,client_id=app-2", False),
        ("", True),
    ],
)
def test_a_pattern_must_fit_the_whole(match: str, fits: bool) -> None:
    asked = Broker(one={"metrics": "m", "match": match} if match else {"metrics": "m"}).get()
    assert asked.metrics == (("m",) if fits else ())


def test_nobody_subscribed_and_nothing_is_asked_for() -> None:
    broker = Broker()
    broker.telemetry.subscribe({})
    asked = broker.get()
    assert (asked.metrics, asked.interval_ms) == ((), 300_000)


def test_a_connection_that_is_gone_takes_the_client_along() -> None:
    broker = Broker()
    broker.get()
    broker.line.closed = True
    broker.line = Line()
    broker.get()


def test_the_number_of_clients_is_bounded() -> None:
    broker = Broker()
    for number in range(CLIENT_INSTANCES_MAX + 10):
        broker.get(uuid.UUID(int=number + 2))
    assert len(broker.telemetry) == CLIENT_INSTANCES_MAX
    assert not broker.telemetry.knows(uuid.UUID(int=2)), "the one not heard of for longest goes"


def test_the_subscription_id_is_kafkas() -> None:
    # CRC-32C of "[*]300000" mixed with the hash of the id, computed with Kafka 4.3.1's own classes.
    assert subscription_id(("*",), 300_000, ZERO_UUID) == KAFKAS_ID_OF_ZERO
    assert subscription_id(("*",), 300_000, ME) == KAFKAS_ID_OF_ME


KAFKAS_ID_OF_ZERO = 1_012_207_395
KAFKAS_ID_OF_ME = -1_761_615_411
