"""Produce requests that something is wrong with: Kafka's code, nothing stored, and readers survive what is stored."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.hostile.batches import batch, now_ms, produce, with_fields, with_records
from tests.hostile.peer import ROUTES, Peer, answer_of, raw_request, request
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes
from tests.hostile.produce_cases import (
    APPEND_TIME_TOPIC,
    CASES,
    COMPACTED_TOPIC,
    OK,
    TOPIC,
    TOPICS,
    twice_the_partition,
)
from tests.hostile.stage import stage

from strandline.codec.columns import Record, columns_of, encode_batch
from strandline.codec.compression import Compression, compress
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.produce_response import PartitionProduceResponse
from strandline.codec.produce import RECORD_ERRORS_MAX
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

GROUP = "reader"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with stage(dict.fromkeys(TOPICS, 2), configs=TOPICS) as log:
        commit_an_offset(log)
        yield log


def commit_an_offset(log: EmbeddedBroker) -> None:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    consumer.close()


def end_offset(peer: Peer, topic: str, partition: int = 0) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    answer = peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])]), 5)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def outcome(peer: Peer, content: bytes, version: int) -> PartitionProduceResponse:
    answer = peer.ask_raw(content)
    assert answer is not None, "the broker hung up"
    result: PartitionProduceResponse = answer_of(ROUTES[0], version, answer).responses[0].partition_responses[0]
    return result


@pytest.mark.parametrize("name", CASES)
def test_each_fault_has_its_code_and_stores_nothing(broker: EmbeddedBroker, name: str) -> None:
    case = CASES[name]
    message = case.make()
    topic = message.topic_data[0].name  # type: ignore[attr-defined]
    with Peer(broker.port) as peer:
        before = end_offset(peer, topic) if topic in TOPICS else -1
        result = outcome(peer, request(message, case.version), case.version)
        assert ErrorCode(result.error_code) == case.code
        if topic in TOPICS:
            grown = end_offset(peer, topic) - before
            assert (grown > 0) == (case.code == OK)
        if case.code != OK:
            assert result.base_offset == -1
        assert peer.is_served()


@pytest.mark.parametrize("name", CASES)
def test_without_acks_a_fault_closes_the_connection(broker: EmbeddedBroker, name: str) -> None:
    case = CASES[name]
    message = case.make()
    if message.acks not in (-1, 0, 1):  # type: ignore[attr-defined]
        return
    message.acks = 0  # type: ignore[attr-defined]
    with Peer(broker.port) as peer:
        peer.send(request(message, case.version))
        assert peer.is_served() == (case.code == OK)


def test_one_bad_partition_spoils_no_other(broker: EmbeddedBroker) -> None:
    message = produce(TOPIC, with_fields(batch(), crc=1))
    message.topic_data += produce(TOPIC, batch([b"good"]), partition=1).topic_data
    message.topic_data += produce("nowhere", batch()).topic_data
    with Peer(broker.port) as peer:
        before = end_offset(peer, TOPIC, 1)
        answer = peer.ask(message, 9)
        codes = {
            (topic.name, each.index): each.error_code
            for topic in answer.responses
            for each in topic.partition_responses
        }
        assert codes == {
            (TOPIC, 0): ErrorCode.CORRUPT_MESSAGE,
            (TOPIC, 1): OK,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert end_offset(peer, TOPIC, 1) == before + 1


def test_a_partition_named_twice(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        before = end_offset(peer, TOPIC)
        content = peer.ask_raw(raw_request(0, 3, twice_the_partition()))
        assert content is not None
        results = answer_of(ROUTES[0], 3, content).responses[0].partition_responses
        stored = [each for each in results if each.error_code == 0]
        assert end_offset(peer, TOPIC) == before + len(stored)


def test_an_append_time_topic_tells_its_own_time(broker: EmbeddedBroker) -> None:
    began_ms = now_ms()
    with Peer(broker.port) as peer:
        sent = produce(APPEND_TIME_TOPIC, batch([b"late"], timestamp_ms=17), partition=1)
        result = outcome(peer, request(sent, 9), 9)
        assert result.error_code == 0
        # The clock of the machine, which the test shares; no bound on how long anything took.
        assert began_ms <= result.log_append_time_ms <= now_ms()
        fetch = FetchRequest(
            max_wait_ms=100,
            topics=[
                FetchTopic(topic=APPEND_TIME_TOPIC, partitions=[FetchPartition(partition=1, partition_max_bytes=MIB)])
            ],
        )
        read = peer.ask(fetch, 11).responses[0].partitions[0].records
    (columns,) = columns_of(read)
    assert [record.timestamp_ms for record in columns] == [result.log_append_time_ms]


GARBAGE = {
    "lz4 of garbage": with_fields(with_records(batch(), b"\xff" * 40), attributes=3),
    "lz4 of a wrong record": with_fields(with_records(batch(), compress(Compression.LZ4, b"\xff" * 40)), attributes=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GARBAGE)
def test_readers_survive_what_nobody_checked(broker: EmbeddedBroker, name: str) -> None:
    """The bad batch is refused by the reader itself; the broker, its time look-up and the records behind are fine."""
    topic = name.replace(" ", "-")
    broker.create_topic(topic, strandline_validate_records="off")
    with Peer(broker.port) as peer:
        for records in (batch([b"before"]), GARBAGE[name], batch([b"behind"])):
            assert outcome(peer, request(produce(topic, records), 9), 9).error_code == 0
        for timestamp in (0, now_ms() - 60_000, -3):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            answer = peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])]), 7)
            # The look-up may meet the bad batch, and then finds its beginning.
            assert answer.topics[0].partitions[0].error_code == 0
            assert 0 <= answer.topics[0].partitions[0].offset <= 2
        assert peer.is_served()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "opaque", "log_level": 0, "check.crcs": True}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert values_until_error(consumer) == [b"before"]
        consumer.assign([TopicPartition(topic, 0, 2)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"behind"
    finally:
        consumer.close()


def values_until_error(consumer: Consumer) -> list[bytes]:
    values = []
    while (message := consumer.poll(5)) is not None:
        error: KafkaError | None = message.error()
        if error is not None:
            break
        if message.offset() >= 1:
            break
        values.append(message.value())
    return values


BOMBS = {
    "gzip": lambda zeros: (Compression.GZIP, zlib.compress(zeros, 9, 31)),
    "lz4": lambda zeros: (Compression.LZ4, compress(Compression.LZ4, zeros)),
    "zstd": lambda zeros: (Compression.ZSTD, compress(Compression.ZSTD, zeros)),
    "snappy": lambda zeros: (Compression.SNAPPY, compress(Compression.SNAPPY, zeros)),
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", BOMBS)
def test_a_time_look_up_does_not_inflate_a_bomb(broker: EmbeddedBroker, codec: str) -> None:
    topic = f"bomb-{codec}"
    broker.create_topic(topic, strandline_validate_records="off")
    attributes, payload = BOMBS[codec](bytes((20 if codec == "snappy" else 200) * MIB))
    bomb = with_fields(with_records(batch(), payload), attributes=int(attributes))
    assert len(bomb) < 1_048_588
    pid = broker.pid
    with Peer(broker.port) as peer:
        assert outcome(peer, request(produce(topic, bomb), 9), 9).error_code == 0
        before = resident_bytes(pid)
        forget_peak(pid)
        asked = ListOffsetsPartition(partition_index=0, timestamp=now_ms() - 1000)
        answer = peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])]), 7)
        grown = peak_resident_bytes(pid) - before
        print(f"{codec}: {len(bomb)} bytes, memory grew by {grown / MIB:.0f} MiB, {answer.topics[0].partitions[0]}")
        assert grown < 64 * MIB
        assert answer.topics[0].partitions[0].error_code == 0
        assert answer.topics[0].partitions[0].offset == 0
        assert peer.is_served()


def test_garbage_cannot_reach_the_coordinator(broker: EmbeddedBroker) -> None:
    """A client that could write `__consumer_offsets` could move or break any group."""
    rng_values = [b"\xff" * 8, b"\x00\x01\x00", b""]
    with Peer(broker.port) as peer:
        for partition in range(50):
            sent = produce("__consumer_offsets", batch(rng_values), partition=partition)
            assert outcome(peer, request(sent, 9), 9).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
        assert committed.offset == 0
    finally:
        consumer.close()


def test_idempotent_sequences_of_a_liar(broker: EmbeddedBroker) -> None:
    """Somebody else's producer id with wild sequences: refused, and at most the liar's own partition is touched."""
    with Peer(broker.port) as peer:

        def send(sequence: int, epoch: int = 0, count: int = 1) -> int:
            made = batch([b"x"] * count, producer_id=77_000, producer_epoch=epoch, base_sequence=sequence)
            return outcome(peer, request(produce(TOPIC, made, partition=1), 9), 9).error_code

        assert send(0) == OK
        assert send(1, count=3) == OK
        assert send(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(2**31 - 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(-5) == ErrorCode.INVALID_RECORD
        assert send(5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(0, epoch=1) == OK
        assert send(4, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(1, epoch=-3) == ErrorCode.INVALID_PRODUCER_EPOCH


NAMED = {
    "records are garbage": [0],
    "record: a record after the records": [],
    "record: key leaves its record": [0],
    "one record fewer than counted": [1],
    "offset deltas with a gap": [1],
    "lz4 of offset deltas with a gap": [1],
    "lz4 of garbage": [],
    "two null keys among four on a compacted topic": [1, 3],
    "lz4 of a null key on a compacted topic": [1],
}
"""Which records the response names; none where the fault is one of the batch."""


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("name", NAMED)
def test_the_response_names_the_bad_records(broker: EmbeddedBroker, name: str, version: int) -> None:
    with Peer(broker.port) as peer:
        result = outcome(peer, request(CASES[name].make(), version), version)
        assert result.error_code == ErrorCode.INVALID_RECORD
        named = [(each.batch_index, bool(each.batch_index_error_message)) for each in result.record_errors]
        assert named == ([(row, True) for row in NAMED[name]] if version >= 8 else [])
        assert bool(result.error_message) == (version >= 8)


def test_one_response_names_only_so_many_records(broker: EmbeddedBroker) -> None:
    keyless = encode_batch([Record(timestamp_ms=now_ms(), value=b"v")] * (RECORD_ERRORS_MAX + 5))
    few = encode_batch([Record(timestamp_ms=now_ms(), value=b"v")] * 5)
    message = produce(COMPACTED_TOPIC, few)
    message.topic_data[0].partition_data += produce(COMPACTED_TOPIC, keyless, partition=1).topic_data[0].partition_data
    with Peer(broker.port) as peer:
        alone = outcome(peer, request(produce(COMPACTED_TOPIC, keyless), 9), 9)
        assert [each.batch_index for each in alone.record_errors] == list(range(RECORD_ERRORS_MAX))
        both = peer.ask(message, 9).responses[0].partition_responses
    assert [(each.error_code, len(each.record_errors)) for each in both] == [
        (ErrorCode.INVALID_RECORD, 5),
        (ErrorCode.INVALID_RECORD, 0),
    ]


def test_a_refused_batch_changes_nothing_of_its_producer(broker: EmbeddedBroker) -> None:
    """The same sequence may come again with records that can be read, and a duplicate is still one."""
    with Peer(broker.port) as peer:

        def send(sequence: int, records: bytes | None = None) -> tuple[int, int]:
            made = batch([b"x"], producer_id=78_000, producer_epoch=0, base_sequence=sequence)
            made = made if records is None else with_records(made, records)
            result = outcome(peer, request(produce(TOPIC, made, partition=1), 9), 9)
            return result.error_code, result.base_offset

        refused = (int(ErrorCode.INVALID_RECORD), -1)
        start = end_offset(peer, TOPIC, 1)
        assert send(0, b"\xff" * 40) == refused
        assert send(0) == (0, start)
        assert send(1, b"\xff" * 40) == refused
        assert send(2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(1) == (0, start + 1)
        assert send(0) == (0, start)
        # A batch that is here already is not stored again, so its bytes do not matter.
        assert send(1, b"\xff" * 40) == (0, start + 1)
        assert end_offset(peer, TOPIC, 1) == start + 2
