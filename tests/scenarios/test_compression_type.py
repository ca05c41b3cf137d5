"""`compression.type` through the front door: what is stored, in which order, and what a client hears of it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import Broker
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.clients.kafka_server import kafka as kafka
from tests.hostile.batches import batch, produce, with_records
from tests.hostile.peer import ROUTES as ROUTES
from tests.hostile.peer import Peer, answer_of, request
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes, until

import strandline
from strandline.codec.columns import Columns, columns_of
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PRODUCE, VERSION = 0, 9
SMALL = b"small"
LARGE = random.Random(4).randbytes(1000) * 300
"""Beyond what is opened on the loop, and within max.message.bytes in any codec."""


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        yield broker
        assert "Traceback" not in broker.stderr_text()


def stored(log: EmbeddedBroker, topic: str) -> list[Columns]:
    """Every batch of the partition, read from its file."""
    (segment,) = sorted((log.data / f"{topic}-0").glob("*.log"))
    return list(columns_of(segment.read_bytes()))


def values(log: EmbeddedBroker, topic: str) -> list[bytes]:
    return [record.value or b"" for columns in stored(log, topic) for record in columns.records()]


def result_of(content: bytes) -> tuple[int, int]:
    """(error code, base offset) of a Produce for one partition."""
    (topic,) = answer_of(ROUTES[PRODUCE], VERSION, content).responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


def send(peer: Peer, topic: str, records: bytes, *, acks: int = -1, correlation_id: int = 1) -> None:
    peer.send(request(produce(topic, records, acks=acks), VERSION, correlation_id=correlation_id))


@pytest.mark.parametrize("target", CODECS)
def test_what_is_stored_has_the_topics_codec(log: EmbeddedBroker, target: str) -> None:
    topic = f"as-{target}"
    log.create_topic(topic, compression_type=target)
    sent: list[bytes] = []
    with Peer(log.port) as peer:
        for codec in CODECS.values():
            for value in (SMALL, LARGE):
                send(peer, topic, batch([value, b"%d" % codec], compression=codec))
                assert result_of(peer.receive_answer()) == (0, len(sent))
                sent += [value, b"%d" % codec]
    assert [int(columns.compression) for columns in stored(log, topic)] == [CODECS[target]] * 10
    assert values(log, topic) == sent


def test_stock_clients_notice_nothing(log: EmbeddedBroker) -> None:
    log.create_topic("stock", compression_type="zstd", compression_zstd_level=7)
    expected = [b"%d " % number * 200 for number in range(500)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": log.bootstrap, "compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
        )
        for value in expected:
            producer.produce("stock", value)
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("stock", 0, 0)])
        read: list[bytes] = []
        while len(read) < 5 * len(expected):
            for message in consumer.consume(100, timeout=1):
                assert message.error() is None
                read.append(message.value() or b"")
    finally:
        consumer.close()
    assert read == expected * 5
    assert {int(columns.compression) for columns in stored(log, "stock")} == {CODECS["zstd"]}


def test_nothing_overtakes_a_batch_that_is_being_opened(log: EmbeddedBroker) -> None:
    log.create_topic("ordered", compression_type="gzip")
    sizes = [LARGE, SMALL, SMALL, LARGE, LARGE, SMALL]
    with Peer(log.port) as peer:
        # All at once, as an idempotent producer does with its five requests in flight.
        frames = [
            request(
                produce("ordered", batch([value], producer_id=900, producer_epoch=0, base_sequence=number)),
                VERSION,
                correlation_id=number,
            )
            for number, value in enumerate(sizes)
        ]
        peer.send(b"".join(frames))
        for number in range(len(sizes)):
            content = peer.receive_answer()
            assert struct.unpack_from(">i", content) == (number,), "answers in the order of the requests"
            assert result_of(content) == (0, number)
    assert values(log, "ordered") == sizes


def test_a_retry_by_another_connection_is_told_the_first_offset(log: EmbeddedBroker) -> None:
    log.create_topic("retried", compression_type="snappy")
    again = batch([LARGE], producer_id=901, producer_epoch=0, base_sequence=0)
    with Peer(log.port) as first, Peer(log.port) as second:
        send(first, "retried", again)
        send(second, "retried", again)
        assert result_of(first.receive_answer()) == (0, 0)
        assert result_of(second.receive_answer()) == (0, 0)
    assert values(log, "retried") == [LARGE]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_other_requests_wait_their_turn(log: EmbeddedBroker, acks: int) -> None:
    topic = f"acks{acks}"
    log.create_topic(topic, compression_type="zstd")
    with Peer(log.port) as peer:
        send(peer, topic, batch([LARGE]), acks=acks)
        send(peer, topic, batch([SMALL]), acks=1, correlation_id=2)
        if acks:
            assert result_of(peer.receive_answer()) == (0, 0)
        content = peer.receive_answer()
        assert struct.unpack_from(">i", content) == (2,)
        assert result_of(content) == (0, 1)
        assert peer.is_served()
    assert values(log, topic) == [LARGE, SMALL]


def test_a_peer_that_hangs_up_has_still_produced(log: EmbeddedBroker) -> None:
    log.create_topic("hung-up", compression_type="gzip")
    with Peer(log.port) as peer:
        send(peer, "hung-up", batch([LARGE]))
    until(lambda: values(log, "hung-up") == [LARGE], "the batch is stored")


def test_append_time_and_codec_together(log: EmbeddedBroker) -> None:
    log.create_topic("stamped", compression_type="lz4", message_timestamp_type="LogAppendTime")
    with Peer(log.port) as peer:
        for value in (SMALL, LARGE):
            send(peer, "stamped", batch([value], timestamp_ms=1))
            assert result_of(peer.receive_answer())[0] == 0
    for columns in stored(log, "stamped"):
        assert int(columns.compression) == CODECS["lz4"]
        assert columns.timestamps[0] > 1_700_000_000_000, "the broker's time, and a CRC that fits"


def test_too_large_once_it_is_opened(log: EmbeddedBroker) -> None:
    log.create_topic("narrow", compression_type="uncompressed", max_message_bytes=100_000)
    too_large = batch([bytes(200_000)], compression=CODECS["zstd"])
    with Peer(log.port) as peer:
        send(peer, "narrow", too_large)
        assert result_of(peer.receive_answer())[0] == ErrorCode.MESSAGE_TOO_LARGE
        send(peer, "narrow", batch([SMALL]))
        assert result_of(peer.receive_answer()) == (0, 0)
        # Nobody waits for an answer here, so hanging up is the only word.
        send(peer, "narrow", too_large, acks=0)
        assert peer.is_closed()


def test_compacted_topics_look_into_large_batches(log: EmbeddedBroker) -> None:
    log.create_topic("keyed", cleanup_policy="compact")
    nothing = b"\x10\x00\x00\x00\x01\x04v1\x00"  # a record without a key
    with Peer(log.port) as peer:
        send(peer, "keyed", batch([LARGE], compression=CODECS["zstd"]))
        assert result_of(peer.receive_answer()) == (0, 0)
        keyless = with_records(batch([b"v1"]), nothing)
        send(peer, "keyed", keyless)
        assert result_of(peer.receive_answer())[0] == ErrorCode.INVALID_RECORD
        send(peer, "keyed", batch([b"v"] * 5_000, compression=CODECS["gzip"]))
        assert result_of(peer.receive_answer()) == (0, 1)


def test_bombs_of_every_codec_are_refused_one_at_a_time(log: EmbeddedBroker) -> None:
    log.create_topic("bombed", compression_type="lz4", max_message_bytes=16 * MIB)
    log.create_topic("bombed-lz4", compression_type="zstd", max_message_bytes=16 * MIB)
    bombs = [
        (batch([bytes(64 * MIB)], compression=codec), "bombed-lz4" if name == "lz4" else "bombed")
        for name, codec in CODECS.items()
        if codec
    ]
    before = resident_bytes(log.pid)
    forget_peak(log.pid)
    peers = [Peer(log.port) for _ in range(2 * len(bombs))]
    try:
        for peer, (bomb, topic) in zip(peers, bombs * 2, strict=True):
            send(peer, topic, bomb)
        for peer in peers:
            assert result_of(peer.receive_answer())[0] == ErrorCode.MESSAGE_TOO_LARGE
            assert peer.is_served()
    finally:
        for peer in peers:
            peer.close()
    assert peak_resident_bytes(log.pid) - before < 96 * MIB


@pytest.mark.slow
def test_a_clean_stop_finishes_what_it_took(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path / "data") as log:
        log.create_topic("stopped", compression_type="gzip", compression_gzip_level=9)
        peers = [Peer(log.port) for _ in range(8)]
        for number, peer in enumerate(peers):
            send(peer, "stopped", batch([LARGE + b"%d" % number]))
            # One answer shows that the broker reads; the others are on their way when it stops.
            if number == 0:
                assert result_of(peer.receive_answer()) == (0, 0)
        log.stop()
        acknowledged = {LARGE + b"0"}
        peers[0].close()
        for number, peer in enumerate(peers[1:], 1):
            content = peer.ask_raw(b"")
            if content is not None:
                assert result_of(content)[0] == 0
                acknowledged.add(LARGE + b"%d" % number)
            peer.close()
        log.start()
        assert acknowledged <= set(values(log, "stopped"))


BESIDE_KAFKA = {
    "small": lambda codec: batch([SMALL], compression=codec),
    "large": lambda codec: batch([LARGE], compression=codec),
    "many records": lambda codec: batch([b"%d" % number for number in range(3_000)], compression=codec),
    "larger than the topic takes, once it is opened": lambda codec: batch([bytes(1_500_000)], compression=codec),
}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", [*CODECS, "producer"])
def test_apache_kafka_stores_and_refuses_the_same(log: EmbeddedBroker, kafka: Broker, target: str) -> None:
    topic = f"beside-{target}"
    log.create_topic(topic, compression_type=target)
    kafka.create_topic(topic, 1, {"compression.type": target})
    answers: list[list[tuple[int, int]]] = []
    for port in (log.port, kafka.port):
        with Peer(port, timeout_s=60) as peer:
            answers.append([])
            for codec in CODECS.values():
                for make in BESIDE_KAFKA.values():
                    send(peer, topic, make(codec))
                    answers[-1].append(result_of(peer.receive_answer()))
    assert answers[0] == answers[1]
    theirs = list(columns_of((kafka.data / f"{topic}-0" / ("0" * 20 + ".log")).read_bytes()))
    ours = stored(log, topic)
    assert [int(columns.compression) for columns in ours] == [int(columns.compression) for columns in theirs]
    assert [list(columns.records()) for columns in ours] == [
        [record._replace(timestamp_ms=at) for record, at in zip(columns.records(), own.timestamps, strict=True)]
        for columns, own in zip(theirs, ours, strict=True)
    ]
