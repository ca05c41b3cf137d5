"""A broker with a virtual clock, as users' tests see it: what time decides happens on `advance`, and only then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from strandline.client.connection import BrokerConnection
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from strandline.codec.messages.describe_producers_response import DescribeProducersResponse
from strandline.testing import BrokerFailed, VirtualClockBroker, embedded

pytestmark = pytest.mark.lengthy("starts brokers as processes, and waits for them")

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def log() -> Iterator[VirtualClockBroker]:
    with embedded(clock="virtual") as broker:
        yield broker


def produce(log: VirtualClockBroker, topic: str, value: bytes) -> Message:
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": log.bootstrap})
    producer.produce(topic, value, on_delivery=lambda error, message: delivered.append(message))
    assert producer.flush(30) == 0
    assert delivered[0].error() is None
    return delivered[0]


def start_offset(log: VirtualClockBroker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "offsets"})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(low)
    finally:
        consumer.close()


def read_committed(log: VirtualClockBroker, topic: str) -> list[bytes | None]:
    """Read a topic to its end, as far as transactions are decided."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "reader", **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            values.append(message.value())
        return values
    finally:
        consumer.close()


def transactional(log: VirtualClockBroker, transactional_id: str) -> Producer:
    settings = {"transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    producer = Producer({"bootstrap.servers": log.bootstrap, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def members(log: VirtualClockBroker, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    return len(admin.describe_consumer_groups([group])[group].result(30).members)


def test_retention_deletes_what_is_old_by_the_clock(log: VirtualClockBroker) -> None:
    log.create_topic("kept", retention_ms=DAY_MS)
    produce(log, "kept", b"old")
    log.clock.advance(hours=23)
    assert start_offset(log, "kept") == 0
    log.clock.advance(days=2)
    assert start_offset(log, "kept") == 1
    assert not list((log.data / "kept-0").glob("*.deleted")), "files outlive file.delete.delay.ms"


def test_broker_timestamps_follow_the_clock(log: VirtualClockBroker) -> None:
    log.create_topic("stamped", message_timestamp_type="LogAppendTime")
    first = produce(log, "stamped", b"1").timestamp()[1]
    assert first == int(log.clock.now().timestamp() * 1000)
    assert produce(log, "stamped", b"2").timestamp()[1] == first
    log.clock.advance(timedelta(days=3), seconds=1.5)
    assert produce(log, "stamped", b"3").timestamp()[1] == first + 3 * DAY_MS + 1500


MEMBER = """
import sys
from confluent_kafka import Consumer

settings = {"bootstrap.servers": sys.argv[1], "group.id": "readers", "session.timeout.ms": 6000}
consumer = Consumer(settings)
consumer.subscribe(["read"])
while not consumer.assignment():
    consumer.poll(0.1)
print("member", flush=True)
sys.stdin.read()
"""


def test_a_dead_member_leaves_its_group_when_its_session_ends(log: VirtualClockBroker) -> None:
    log.create_topic("read")
    command = [sys.executable, "-c", MEMBER, log.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"member\n"
        member.kill()
    assert members(log, "readers") == 1
    log.clock.advance(seconds=5)
    assert members(log, "readers") == 1
    log.clock.advance(seconds=2)
    assert members(log, "readers") == 0


def test_a_transaction_is_aborted_when_its_timeout_is_over(log: VirtualClockBroker) -> None:
    log.create_topic("paid")
    late = transactional(log, "late")
    late.produce("paid", b"late")
    assert late.flush(30) == 0
    log.clock.advance(seconds=59)
    in_time = transactional(log, "in time")
    in_time.produce("paid", b"in time")
    assert in_time.flush(30) == 0
    assert read_committed(log, "paid") == []
    log.clock.advance(seconds=2)
    in_time.commit_transaction(30)
    with pytest.raises(KafkaException):
        late.commit_transaction(30)
    assert read_committed(log, "paid") == [b"in time"]


def producers(log: VirtualClockBroker, topic: str) -> list[int]:
    connection = BrokerConnection(log.host, log.port, client_id="test", timeout_s=30)
    try:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (described,) = connection.ask(request, DescribeProducersResponse).topics
        return [each.producer_id for each in described.partitions[0].active_producers]
    finally:
        connection.close()


def test_a_silent_producer_is_forgotten(log: VirtualClockBroker) -> None:
    log.create_topic("sent")
    producer = Producer({"bootstrap.servers": log.bootstrap, "enable.idempotence": True})
    producer.produce("sent", b"1")
    assert producer.flush(30) == 0
    log.clock.advance(hours=23)
    assert len(producers(log, "sent")) == 1
    log.clock.advance(hours=2)
    assert producers(log, "sent") == []


def test_compaction_is_done_when_the_clock_has_moved(log: VirtualClockBroker) -> None:
    # Segments roll by the times of their records, and a client's clock is real.
    stamped = {"message_timestamp_type": "LogAppendTime"}
    log.create_topic("table", cleanup_policy="compact", segment_ms=60_000, min_cleanable_dirty_ratio="0.01", **stamped)
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for value in (b"1", b"2", b"3"):
        producer.produce("table", value, b"key")
        assert producer.flush(30) == 0
        log.clock.advance(minutes=5)
    assert read_committed(log, "table") == [b"2", b"3"]


def test_time_passes_while_the_broker_is_down() -> None:
    with embedded(clock="virtual") as log:
        log.create_topic("stamped", message_timestamp_type="LogAppendTime")
        first = produce(log, "stamped", b"1").timestamp()[1]
        log.clock.advance(hours=1)
        log.kill()
        log.clock.advance(hours=1)
        log.restart()
        assert produce(log, "stamped", b"2").timestamp()[1] == first + 2 * 3_600_000


def test_a_broker_that_dies_on_the_way_is_reported() -> None:
    with embedded(clock="virtual") as log:
        log.pause()
        log._running().kill()
        with pytest.raises(BrokerFailed, match="status -9 before its clock had moved"):
            log.clock.advance(days=1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a virtual clock is for one broker"):
        embedded(nodes=3, clock="virtual")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="'real' or 'virtual', not 'fast'"):
        embedded(clock="fast")  # type: ignore[call-overload]


def test_a_clock_does_not_go_back(log: VirtualClockBroker) -> None:
    with pytest.raises(ValueError, match="cannot go back by 1 day"):
        log.clock.advance(days=-1)
