"""Batches that the stock clients make are read here, and batches made here are read by them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from types import ModuleType

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from confluent_kafka import Producer
from hypothesis import given, settings
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch
from tests.unit.codec.columns_cases import RECORDS, TWINS, numbered, order_feed, using

from strandline.codec.columns import Compression, Record, decode_batch, encode_batch, records_of

BUILDERS = {"kafka-python": KafkaPythonBuilder, "aiokafka": AiokafkaBuilder}
READERS = {"kafka-python": KafkaPythonBatch, "aiokafka": AiokafkaBatch}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("client", BUILDERS)
def test_a_clients_batch_is_read(twin: ModuleType, codec: Compression, client: str) -> None:
    feed = order_feed(500)
    builder = BUILDERS[client](
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=4001,
        producer_epoch=2,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for record in feed:
        assert builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    with using(twin):
        columns = decode_batch(batch)
        assert list(columns) == feed
        assert list(records_of(batch)) == feed
    assert (columns.compression, columns.is_transactional, columns.producer_id) == (codec, True, 4001)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_our_batch(codec: Compression, client: str) -> None:
    feed = order_feed(500, first_offset=1000)
    batch = READERS[client](encode_batch(feed, base_offset=1000, compression=codec, producer_id=7, producer_epoch=1))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.producer_id) == (1000, 7)
    assert batch.max_timestamp == max(record.timestamp_ms for record in feed)
    read = [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
    ]
    assert read == feed


@settings(max_examples=50, deadline=None, print_blob=True)
@given(records=RECORDS.map(lambda records: [record._replace(timestamp_ms=1_700_000_000_000) for record in records]))
def test_kio_reads_the_same(records: list[Record]) -> None:
    batch = encode_batch(records, base_offset=3)
    read, size = read_batch(batch, 0)
    assert size == len(batch)
    assert [
        Record(
            record.offset,
            int(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            tuple((header.key.decode(), header.value) for header in record.headers),
        )
        for record in read.records
    ] == numbered(records, 3)


# --- librdkafka has no encoder of its own to call, but a broker in its belly that keeps batches as they came ---------


@pytest.mark.parametrize("codec", Compression)
def test_librdkafkas_batch_is_read(codec: Compression) -> None:
    feed = order_feed(200)
    producer = Producer(
        {"test.mock.num.brokers": 1, "compression.type": codec.name.lower(), "linger.ms": 1000, "log_level": 0}
    )
    for record in feed:
        producer.produce(
            "orders",
            record.value,
            record.key,
            partition=0,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert producer.flush(30) == 0
    broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
    fetched = fetch(
        broker.host, broker.port, "orders", size_until=lambda batches: len(list(records_of(batches))) == 200
    )
    assert list(records_of(fetched)) == feed
    columns = decode_batch(fetched[: 12 + int.from_bytes(fetched[8:12], "big")])
    assert columns.compression == codec


def fetch(host: str, port: int, topic: str, *, size_until: Callable[[bytes], bool]) -> bytes:
    """The batches of partition 0, by Fetch version 4, until there is enough of them."""
    fetched = b""
    next_offset = 0
    with socket.create_connection((host, port), timeout=30) as connection:
        while not size_until(fetched):
            answer = ask(connection, fetch_request(topic, next_offset))
            fetched += records_of_answer(answer, topic)
            next_offset = max((record.offset + 1 for record in records_of(fetched)), default=0)
    return fetched


def fetch_request(topic: str, offset: int) -> bytes:
    name = topic.encode()
    header = struct.pack(">hhih4s", 1, 4, 1, 4, b"test")
    body = struct.pack(">iiiib", -1, 1000, 1, 1 << 24, 0)
    topics = struct.pack(f">ih{len(name)}si", 1, len(name), name, 1)
    return header + body + topics + struct.pack(">iqi", 0, offset, 1 << 24)


def ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(struct.pack(">i", len(request)) + request)
    stream = connection.makefile("rb")
    (size,) = struct.unpack(">i", stream.read(4))
    return stream.read(size)


def records_of_answer(answer: bytes, topic: str) -> bytes:
    # correlation id, throttle time, one topic, its name, one partition, and the partition's fields
    _, _, _, _, _, _, _, error, _, _, aborted = struct.unpack_from(f">iiih{len(topic)}siihqqi", answer)
    assert error == 0
    assert aborted <= 0
    start = struct.calcsize(f">iiih{len(topic)}siihqqi")
    (size,) = struct.unpack_from(">i", answer, start)
    return answer[start + 4 : start + 4 + max(size, 0)]
