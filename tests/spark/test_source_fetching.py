"""A range of offsets is read exactly as a stock consumer reads it, or a sentence says why not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.spark.source_ground import (
    RECORD_SCHEMA,
    WAIT_S,
    Relay,
    client_of,
    consumed,
    end_of,
    fill,
    read,
    wait_until_decided,
)

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClusterFailed, DataLost, TopicMissing
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition
from strandline.local.embedded_broker import EmbeddedBroker

SEED = random.randrange(2**32)


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[ClusterClient]:
    with client_of(broker.bootstrap) as client:
        yield client


def produce(broker: EmbeddedBroker, topic: str, count: int, *, size: int = 20) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50, "linger.ms": 2})
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"-" * size, partition=0)
    assert producer.flush(WAIT_S) == 0


def cuts(rng: random.Random, end: int, count: int) -> list[tuple[int, int]]:
    """Ranges that lie side by side from 0 to `end`."""
    bounds = sorted({0, end, *(rng.randrange(end) for _ in range(count))})
    return list(itertools.pairwise(bounds))


def test_any_split_equals_a_stock_consumer(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    # Segments so small that transactions, and their aborted ranges, go across many of them.
    broker.create_topic(topic, 1, internal_segment_bytes=8192)
    fill(broker.bootstrap, topic, rng, transactions=30)
    for committed in (True, False):
        expected = consumed(broker.bootstrap, topic, committed=committed)
        end = end_of(client, topic, committed=committed)
        assert read(client, topic, 0, end, committed=committed) == expected
        for size in (1, 3000, 1 << 22):
            found = []
            for start, behind in cuts(rng, end, 12):
                part = read(client, topic, start, behind, committed=committed, partition_bytes_max=size)
                assert all(start <= seen.offset < behind for seen in part)
                found += part
            assert found == expected


def test_a_range_may_be_one_record(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 120)
    expected = consumed(broker.bootstrap, topic)
    assert [read(client, topic, at, at + 1) for at in range(120)] == [[seen] for seen in expected]


def test_only_columns_that_are_asked_for_are_there(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    schema = pa.schema([FIELDS["offset"], FIELDS["leaderEpoch"]])
    batches = list(read_range(client, OffsetRange(topic, 0, 2, 7), FetchSettings(), schema))
    assert pa.Table.from_batches(batches).to_pydict() == {"offset": [2, 3, 4, 5, 6], "leaderEpoch": [0] * 5}


@pytest.mark.parametrize("fetch", [4, 5, 7, 9, 11, 12, 13, 15, 16, 17])
def test_older_brokers_are_read_in_their_versions(broker: EmbeddedBroker, topic: str, fetch: int) -> None:
    """Below 13 topics go by their names; ids of topics came with Metadata 10."""
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(WAIT_S) == 0
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(WAIT_S)
    wait_until_decided(broker.bootstrap, topic)

    class Older(ClusterClient):
        def connection(self, address: tuple[str, int]) -> BrokerConnection:
            connection = super().connection(address)
            older = {1: (4, fetch), 2: (1, 2 if fetch < 12 else 6), 3: (0, 8 if fetch < 13 else 12)}
            connection.offered.versions.update(older)
            return connection

    client = Older(ClientSettings(broker.bootstrap))
    assert [seen.value for seen in read(client, topic, 0, end_of(client, topic))] == [b"1", b"3"]
    client.close()


def test_append_time_is_told(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1, message_timestamp_type="LogAppendTime")
    produce(broker, topic, 10)
    found = read(client, topic, 0, 10)
    assert {seen.timestamp_type for seen in found} == {1}
    assert found == consumed(broker.bootstrap, topic)


def test_a_flipped_bit_is_noticed(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 200)

    def flip(answer: bytearray) -> bytearray:
        # In the value of a record, far from every length.
        answer[answer.index(b"117--") + 4] ^= 0x10
        return answer

    with Relay(broker.bootstrap, flip) as relay:
        client = relay.client(broker.bootstrap)
        with pytest.raises(ClusterFailed, match=rf"{topic}-0 cannot be read in the range 0 to 200: .*CRC"):
            read(client, topic, 0, 200)
        client.close()


def test_lost_connections_lose_nothing(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 2000)
    answers = 0

    def lose_every_third(answer: bytearray) -> bytearray | None:
        nonlocal answers
        answers += 1
        return None if answers % 3 == 0 else answer

    with Relay(broker.bootstrap, lose_every_third) as relay:
        client = relay.client(broker.bootstrap)
        assert read(client, topic, 0, 2000, partition_bytes_max=5000) == consumed(broker.bootstrap, topic)
        client.close()
    assert answers > 6


def test_a_reader_that_stops_early_spoils_nothing_for_the_next(
    broker: EmbeddedBroker, client: ClusterClient, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 500)
    for start in (0, 100):
        schema = pa.schema([FIELDS["offset"]])
        settings = FetchSettings(partition_bytes_max=2000)
        batches = read_range(client, OffsetRange(topic, 0, start, 500), settings, schema)
        assert next(batches).column("offset")[0].as_py() == start
        batches.close()  # type: ignore[attr-defined]
    assert len(read(client, topic, 0, 500)) == 500


def test_deleted_records_are_data_loss(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 100)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, 0, 60)]).values():
        future.result(WAIT_S)
    words = f"topic {topic}, partition 0: the offsets 50 to 59 are lost .the log begins at 60.; say option"
    with pytest.raises(DataLost, match=words):
        read(client, topic, 50, 100)
    found = read(client, topic, 50, 100, fails_on_data_loss=False)
    assert [seen.offset for seen in found] == list(range(60, 100))
    assert read(client, topic, 0, 10, fails_on_data_loss=False) == []


def test_a_range_behind_the_log_is_data_loss(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    with pytest.raises(
        DataLost, match=f"topic {topic}, partition 0: the offsets 20 to 29 are lost .the log ends at 10"
    ):
        read(client, topic, 20, 30)


def test_a_range_that_never_comes_is_told_in_time(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    with pytest.raises(ClusterFailed, match=rf"nothing of {topic}-0 came from offset 10 on \(up to 20\) within 0.3 s"):
        read(client, topic, 5, 20, stall_timeout_s=0.3)


def test_a_topic_of_the_same_name_is_another(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    known = client.topics([topic])[topic]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_S)
    schema = pa.schema([FIELDS["offset"]])
    planned = OffsetRange(topic, 0, 0, 10, known.topic_id)
    with pytest.raises(DataLost, match=f"topic {topic}, partition 0: the offsets 0 to 9 are lost .the topic is gone"):
        list(read_range(client, planned, FetchSettings(), schema))
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    with pytest.raises(DataLost, match="the topic is gone"):
        list(read_range(client, planned, FetchSettings(), schema))
    assert list(read_range(client, planned, FetchSettings(fails_on_data_loss=False), schema)) == []


def test_what_was_heard_of_a_topic_may_be_older_than_its_partitions(
    broker: EmbeddedBroker, client: ClusterClient, topic: str
) -> None:
    broker.create_topic(topic, 1)
    assert list(client.topics([topic])[topic].leaders) == [0]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    with client_of(broker.bootstrap) as other:
        planned_id = other.topics([topic])[topic].topic_id
    assert client.leader_of(TopicPartition(topic, 1), topic_id=planned_id)[1] == planned_id
    admin.delete_topics([topic])[topic].result(WAIT_S)
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    with client_of(broker.bootstrap) as other:
        planned = OffsetRange(topic, 0, 0, 10, other.topics([topic])[topic].topic_id)
    assert sum(each.num_rows for each in read_range(client, planned, FetchSettings(), RECORD_SCHEMA)) == 10


def test_offsets_by_time_and_word(broker: EmbeddedBroker, client: ClusterClient, topic: str) -> None:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_000_000 + number)
    assert producer.flush(WAIT_S) == 0
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert client.list_offsets({first: -1, second: -1}) == {first: 10, second: 0}
    assert client.list_offsets({first: 1_000_004, second: 0}) == {first: 4, second: -1}
    assert client.list_offsets({first: -2}) == {first: 0}
    with pytest.raises(TopicMissing, match=f"partition {topic}-7 does not exist"):
        client.list_offsets({TopicPartition(topic, 7): -1})


def test_a_cluster_that_is_not_there_is_named() -> None:
    with (
        client_of("127.0.0.1:1", api_timeout_s=0.2) as client,
        pytest.raises(ClusterFailed, match=r"within 0\.2 s: 127\.0\.0\.1:1 cannot be reached: connection refused"),
    ):
        client.topics(None)
