"""The reader of a stream, asked as Spark asks it, without Spark: which offsets make a batch."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StructField, StructType
from tests.spark.source_ground import WAIT_S

from strandline.client.failures import DataLost, TopicMissing
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.source.offset_json import TOPIC_IDS, Offset
from strandline.spark.source.options import parse_options
from strandline.spark.source.stream import StreamReader

OFFSET_ONLY = StructType([StructField("offset", LongType())])
ALL = ReadAllAvailable()

Make = Callable[..., StreamReader]


@pytest.fixture
def make(broker: EmbeddedBroker) -> Iterator[Make]:
    made: list[StreamReader] = []

    def make(**options: str) -> StreamReader:
        said = {"kafka.bootstrap.servers": broker.bootstrap, "fetchOffset.retryIntervalMs": "1"} | options
        made.append(StreamReader(parse_options(said, streaming=True), OFFSET_ONLY))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def produce(broker: EmbeddedBroker, topic: str, count: int, *, partition: int = 0, size: int = 10) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(topic, b"x" * size, partition=partition)
    assert producer.flush(WAIT_S) == 0


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def offsets_read(reader: StreamReader, start: Offset, end: Offset) -> list[int]:
    """What the tasks of a batch read, each by a copy of the reader as a worker gets it."""
    copies = [(pickle.loads(pickle.dumps(reader)), each) for each in reader.partitions(start, end)]  # noqa: S301
    return [row for copy, each in copies for batch in copy.read(each) for row in batch.column("offset").to_pylist()]


def plain(offset: Offset | None) -> dict[str, dict[str, int]]:
    """The positions of an offset, without the ids of their topics."""
    assert offset is not None
    return {topic: partitions for topic, partitions in offset.items() if topic != TOPIC_IDS}


def test_batches_follow_each_other(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, 10)
    reader = make(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert plain(start) == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert plain(end) == plain(reader.reportLatestOffset()) == {topic: {"0": 10, "1": 0}}
    assert offsets_read(reader, start, end) == list(range(10))
    assert reader.latestOffset(end, ALL) == end
    produce(broker, topic, 5, partition=1)
    later = reader.latestOffset(end, ALL)
    assert offsets_read(reader, end, later) == list(range(5))


def test_what_starts_with_the_next_record_starts_with_an_empty_batch(
    broker: EmbeddedBroker, make: Make, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    reader = make(subscribe=topic)
    assert reader.initialOffset() == {}
    first = reader.latestOffset({}, ALL)
    assert plain(first) == plain(reader.reportLatestOffset()) == {topic: {"0": 10}}
    assert reader.partitions({}, first) == []
    produce(broker, topic, 5)
    # Another process after a crash: the checkpoint has the end of the first batch, and that it was not committed.
    again = make(subscribe=topic)
    assert again.initialOffset() == {}
    assert again.partitions({}, first) == []
    second = again.latestOffset(first, ALL)
    assert offsets_read(again, first, second) == [10, 11, 12, 13, 14]


def test_a_pattern_that_fits_nothing_yet(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    for starting in ("latest", "earliest"):
        name = f"{topic}-{starting}"
        reader = make(subscribePattern=name, startingOffsets=starting)
        position = reader.initialOffset()
        assert position == reader.latestOffset(position, ALL) == {}
        broker.create_topic(name, 1)
        produce(broker, name, 3)
        # The topic is new: nothing of it is passed over.
        read = []
        for _ in range(2):
            end = reader.latestOffset(position, ALL)
            read += offsets_read(reader, position, end)
            position = end
        assert read == [0, 1, 2]


def test_a_limit_of_offsets(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, 90)
    produce(broker, topic, 10, partition=1)
    reader = make(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    start = reader.initialOffset()
    assert plain(reader.latestOffset(start, limit)) == {topic: {"0": 45, "1": 5}}
    # Spark may ask for everything all the same.
    assert plain(reader.latestOffset(start, ALL)) == {topic: {"0": 90, "1": 10}}
    assert plain(reader.reportLatestOffset()) == {topic: {"0": 90, "1": 10}}


def test_a_stream_stops_where_it_is_told_to(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 3)
    for partition in range(3):
        produce(broker, topic, 10, partition=partition)
    # The third partition came later, and the other topic is that of another source.
    stop = json.dumps({topic: {"0": 7, "1": 0}, f"{topic}-other": {"0": 3}})
    unlimited: dict[str, str] = {}
    for more in (unlimited, {"maxOffsetsPerTrigger": "4"}):
        reader = make(subscribe=topic, startingOffsets="earliest", stopAt=stop, **more)
        reader.prepareForTriggerAvailableNow()
        position = reader.initialOffset()
        read: list[int] = []
        while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
            read += offsets_read(reader, position, end)
            position = end
        assert plain(position) == {topic: {"0": 7, "1": 0}}
        assert read == list(range(7))
    # One that is further already stays where it is.
    assert plain(reader.latestOffset({topic: {"0": 9, "1": 0}}, ALL)) == {topic: {"0": 9, "1": 0}}


def test_a_stop_behind_the_end_of_the_log_is_data_loss(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    options = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset.numRetries": "0"}
    with pytest.raises(DataLost, match="the log ends at 5"):
        make(**options, stopAt=json.dumps({topic: {"0": 6}})).prepareForTriggerAvailableNow()
    with pytest.raises(DataLost, match="the topic is gone"):
        make(**options, stopAt=json.dumps({topic: {"1": 6}})).prepareForTriggerAvailableNow()


def test_a_limit_of_bytes(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, 100, size=1000)
    produce(broker, topic, 100, partition=1, size=10)
    reader = make(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="20000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(20000)
    end = reader.latestOffset(reader.initialOffset(), limit)[topic]
    # About a fifth of what is there, of each.
    assert 15 <= end["0"] <= 21
    assert 15 <= end["1"] <= 21
    # From the middle of a batch on an offset takes no more than before.
    end = reader.latestOffset({topic: {"0": 80, "1": 80}}, limit)[topic]
    assert min(end.values()) >= 95
    least = make(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert plain(least.latestOffset(least.initialOffset(), ReadMaxBytes(1))) == {topic: {"0": 1, "1": 1}}


def test_too_little_is_waited_for(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    reader = make(**options, maxTriggerDelay="1h", maxOffsetsPerTrigger="15")
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert plain(first) == {topic: {"0": 5}}
    produce(broker, topic, 9)
    assert reader.latestOffset(first, limit) == first
    produce(broker, topic, 9)
    assert plain(reader.latestOffset(first, limit)) == {topic: {"0": 20}}
    impatient = make(**options, maxTriggerDelay="0ms")
    limit = impatient.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    assert plain(impatient.latestOffset({topic: {"0": 20}}, limit)) == {topic: {"0": 23}}
    # Nothing more would ever come.
    available_now = make(**options, maxTriggerDelay="1h")
    available_now.prepareForTriggerAvailableNow()
    first = available_now.latestOffset({topic: {"0": 20}}, limit)
    assert first == available_now.latestOffset(first, limit)
    assert plain(first) == {topic: {"0": 23}}


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_available_now_ends_where_the_log_ended(broker: EmbeddedBroker, make: Make, topic: str, starting: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 10)
    reader = make(subscribe=topic, startingOffsets=starting, maxOffsetsPerTrigger="4")
    reader.prepareForTriggerAvailableNow()
    produce(broker, topic, 10)
    position = reader.initialOffset()
    while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        position = end
    assert plain(position) == {topic: {"0": 10}}


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    for future in admin.delete_records([KafkaPartition(topic, 0, offset)]).values():
        future.result(WAIT_S)


def test_partitions_that_come_are_read_from_their_first_record(
    broker: EmbeddedBroker, make: Make, admin: AdminClient, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    reader = make(subscribe=topic, startingOffsets="latest", maxOffsetsPerTrigger="100")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    produce(broker, topic, 7, partition=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert plain(end) == {topic: {"0": 5, "1": 7}}
    assert offsets_read(reader, start, end) == list(range(7))


def test_a_new_partition_without_its_first_records_is_data_loss(
    broker: EmbeddedBroker, make: Make, admin: AdminClient, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    delete_before(admin, topic, 3)
    reader = make(subscribePattern=f"{topic}.*", startingOffsets="earliest")
    words = f"topic {topic}, partition 0: the offsets 0 to 2 are lost .the partition is new and its log begins at 3"
    with pytest.raises(DataLost, match=words):
        reader.partitions({}, {topic: {"0": 5}})
    careless = make(subscribePattern=f"{topic}.*", startingOffsets="earliest", failOnDataLoss="false")
    assert offsets_read(careless, {}, {topic: {"0": 5}}) == [3, 4]


def made_anew(broker: EmbeddedBroker, admin: AdminClient, topic: str, count: int) -> None:
    admin.delete_topics([topic])[topic].result(WAIT_S)
    broker.create_topic(topic, 1)
    produce(broker, topic, count)


@pytest.mark.parametrize("count", [9, 3], ids=["longer", "shorter"])
def test_a_topic_that_was_made_anew_is_data_loss_however_often_the_query_starts(
    broker: EmbeddedBroker, make: Make, admin: AdminClient, topic: str, count: int
) -> None:
    """The checkpoint has the id of the topic that was read: where the new log ends does not matter."""
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    reader = make(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ALL)))
    admin.delete_topics([topic])[topic].result(WAIT_S)
    with pytest.raises(DataLost, match=f"topic {topic}, partition 0: .*the topic is gone"):
        reader.latestOffset(end, ALL)
    broker.create_topic(topic, 1)
    produce(broker, topic, count)
    lost = f"topic {topic}, partition 0: everything from offset 5 on is lost .the topic was deleted and made again"
    for each in (reader, make(subscribe=topic, startingOffsets="earliest"), make(subscribe=topic)):
        with pytest.raises(DataLost, match=lost):
            each.latestOffset(end, ALL)
    # A batch that was planned before it, and not committed.
    with pytest.raises(DataLost, match=r"partition 0: everything from offset 0 on is lost .the topic was deleted"):
        make(subscribe=topic).partitions(start, end)


@pytest.mark.parametrize("count", [9, 3], ids=["longer", "shorter"])
def test_a_topic_that_was_made_anew_is_read_from_its_first_record_by_who_does_not_mind(
    broker: EmbeddedBroker,
    make: Make,
    admin: AdminClient,
    topic: str,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    options = {"subscribe": topic, "failOnDataLoss": "false", "maxOffsetsPerTrigger": "100"}
    reader = make(**options, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    made_anew(broker, admin, topic, count)
    careless = make(**options)
    assert offsets_read(careless, start, end) == [], "what that batch was to read is gone"
    later = careless.latestOffset(end, careless.getDefaultReadLimit())
    assert offsets_read(careless, end, later) == list(range(count))
    assert plain(later) == {topic: {"0": count}}
    assert careless.latestOffset(later, ALL) == later
    assert "partition 0: everything from offset 5 on is lost (the topic was deleted and made again)" in caplog.text
    assert "the offsets" not in caplog.text, "no other range is named"


def test_offsets_that_an_older_release_wrote_have_no_ids(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    reader = make(subscribe=topic, startingOffsets="earliest")
    end = reader.latestOffset({topic: {"0": 2}}, ALL)
    assert offsets_read(reader, {topic: {"0": 2}}, end) == [2, 3, 4]
    assert list(end[TOPIC_IDS]) == [topic]


def test_a_stream_begins_where_it_began_once(
    broker: EmbeddedBroker, make: Make, admin: AdminClient, topic: str
) -> None:
    """Whatever its other options say. What retention has removed since is lost, unless it is only read again."""
    broker.create_topic(topic, 3)
    for partition in range(3):
        produce(broker, topic, 10, partition=partition)
    delete_before(admin, topic, 5)
    began = json.dumps({topic: {"0": 3, "1": 8}})
    expected = {topic: {"0": 5, "1": 8, "2": 0}}
    for starting in ("latest", json.dumps({topic: {"0": -1, "1": -1, "2": -1}}), "earliest"):
        reader = make(subscribe=topic, startingOffsets=starting, startAt=began)
        with pytest.raises(DataLost, match=r"partition 0: the offsets 3 to 4 are lost .the log begins at 5"):
            reader.initialOffset()
        again = make(subscribe=topic, startingOffsets=starting, startAt=began, stopAt=json.dumps({topic: {"0": 9}}))
        assert plain(again.initialOffset()) == expected
    assert plain(make(subscribe=topic, startAt=began, failOnDataLoss="false").initialOffset()) == expected
    reader = make(subscribe=topic, startingOffsets="latest", startAt=json.dumps({topic: {}}))
    assert plain(reader.initialOffset()) == {topic: {"0": 5, "1": 0, "2": 0}}


def test_a_stream_that_began_in_a_topic_that_was_made_anew_has_lost_it(
    broker: EmbeddedBroker, make: Make, admin: AdminClient, topic: str
) -> None:
    """Also if it has read nothing yet."""
    broker.create_topic(topic, 1)
    produce(broker, topic, 5)
    first = make(subscribe=topic, startingOffsets="earliest").initialOffset()
    began = json.dumps(first | {topic: {"0": 5}})
    made_anew(broker, admin, topic, 9)
    reader = make(subscribe=topic, startAt=began)
    lost = f"topic {topic}, partition 0: everything from offset 5 on is lost .the topic was deleted and made again"
    with pytest.raises(DataLost, match=lost):
        reader.latestOffset(reader.initialOffset(), ALL)
    careless = make(subscribe=topic, startAt=began, failOnDataLoss="false")
    start = careless.initialOffset()
    assert offsets_read(careless, start, careless.latestOffset(start, ALL)) == list(range(9))


def test_a_topic_that_is_not_there_is_named(make: Make, topic: str) -> None:
    with pytest.raises(TopicMissing, match=f"topic {topic} does not exist on .*: create it, or correct the option"):
        make(subscribe=topic).initialOffset()
    with pytest.raises(TopicMissing, match=f"topic {topic} does not exist on .*: create it, or correct the option"):
        make(assign=f'{{"{topic}":[0]}}').initialOffset()


def test_only_what_is_assigned_is_read(broker: EmbeddedBroker, make: Make, topic: str) -> None:
    broker.create_topic(topic, 3)
    reader = make(assign=f'{{"{topic}":[2,0]}}', startingOffsets="earliest")
    assert plain(reader.initialOffset()) == {topic: {"0": 0, "2": 0}}
    with pytest.raises(TopicMissing, match=f"partition {topic}-7 does not exist: correct the option assign"):
        make(assign=f'{{"{topic}":[7]}}').initialOffset()
