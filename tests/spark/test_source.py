"""`spark.read` and `spark.readStream` of the format "strandline", in a session as a user has it."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.spark.source_ground import WAIT_S, Seen, consumed, wait_until_decided

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.data_source import StrandlineDataSource
from strandline.spark.error_translation import explain_failure as explain
from strandline.spark.source.offset_json import TOPIC_IDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FIRST_MS = 1_700_000_000_000


def produce(broker: EmbeddedBroker, topic: str, numbers: range, *, partitions: int = 1) -> None:
    """Number n is the value, and its time; the partition is n modulo partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
    for number in numbers:
        value = json.dumps({"n": number})
        headers = [("even", b"")] if number % 2 == 0 else None
        place = number % partitions
        producer.produce(topic, value, str(number), partition=place, timestamp=FIRST_MS + number, headers=headers)
    assert producer.flush(WAIT_S) == 0


def batch(spark: SparkSession, broker: EmbeddedBroker, topic: str | None, **options: str) -> DataFrame:
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap).options(**options)
    return (reader.option("subscribe", topic) if topic else reader).load()


def delete_topic(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_S)


class Streams:
    """Streaming queries into memory, each with the checkpoint of its name; what one has read, and in which batches."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, home: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._home = home
        self.rows: list[Any] = []
        self.sizes: list[int] = []
        """Rows of each batch that has any."""
        self._queries: list[StreamingQuery] = []

    def start(self, name: str, *, available_now: bool = True, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("strandline")
        reader = reader.option("kafka.bootstrap.servers", self._broker.bootstrap).options(**options)
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._home / name))
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        query = writer.start()
        self._queries.append(query)
        return query

    def run(self, name: str, **options: str) -> list[int]:
        """To the end of what is there; how many rows came in each batch."""
        query = self.start(name, **options)
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def _take(self, frame: DataFrame, _batch_id: int) -> None:
        rows = frame.collect()
        self.sizes += [len(rows)] if rows else []
        self.rows += rows

    def values(self) -> list[int]:
        return sorted(json.loads(row.value)["n"] for row in self.rows)

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


@pytest.fixture
def streams(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Streams]:
    streams = Streams(spark, broker, tmp_path)
    yield streams
    streams.stop()


def test_a_batch_has_the_columns_of_sparks_own_source(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, range(100), partitions=2)
    frame = batch(spark, broker, topic, includeHeaders="true", includeLeaderEpoch="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("leaderEpoch", "int"),
    ]
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition", "offset").collect()
    for partition in (0, 1):
        found = [
            Seen(row.offset, row.ms, row.timestampType, row.key, row.value, row.headers)
            for row in rows
            if row.partition == partition
        ]
        assert found == consumed(broker.bootstrap, topic, partition=partition)
    assert {(row.topic, row.leaderEpoch) for row in rows} == {(topic, 0)}


def test_partitions_are_split_when_asked(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, range(101), partitions=2)
    assert batch(spark, broker, topic).rdd.getNumPartitions() == 2
    split = batch(spark, broker, topic, minPartitions="7", columns="value,offset,partition")
    assert split.rdd.getNumPartitions() == 7
    assert sorted(json.loads(row.value)["n"] for row in split.collect()) == list(range(101))
    assert batch(spark, broker, topic, maxRecordsPerPartition="20").rdd.getNumPartitions() == 6


def test_fewer_columns_by_a_schema(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(5))
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", topic).schema("offset BIGINT, key BINARY").load()
    assert [tuple(row) for row in frame.collect()] == [(number, str(number).encode()) for number in range(5)]


def test_batches_by_offset_and_time(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(50))

    def offsets(**options: str) -> list[int]:
        return [row.offset for row in batch(spark, broker, topic, columns="offset", **options).collect()]

    exact = {"startingOffsets": json.dumps({topic: {"0": 7}}), "endingOffsets": json.dumps({topic: {"0": 11}})}
    assert offsets(**exact) == [7, 8, 9, 10]
    assert offsets(startingTimestamp=str(FIRST_MS + 40)) == list(range(40, 50))
    by_time = json.dumps({topic: {"0": FIRST_MS + 3}})
    assert offsets(endingOffsetsByTimestamp=by_time) == [0, 1, 2]
    late = {"startingTimestamp": str(FIRST_MS + 99)}
    assert offsets(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="choose an earlier time"):
        offsets(**late)


def test_filters_are_pushed_down(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 4)
    produce(broker, topic, range(400), partitions=4)
    frame = batch(spark, broker, topic, pushFilters="true")
    assert frame.rdd.getNumPartitions() == 4
    few = frame.where("partition = 2 and offset between 10 and 12")
    assert few.rdd.getNumPartitions() == 1
    assert sorted(int(row.key) for row in few.collect()) == [42, 46, 50]
    later = frame.where(f"timestamp > timestamp_millis({FIRST_MS + 389}) and partition in (0, 1)")
    assert later.rdd.getNumPartitions() == 2
    assert sorted(int(row.key) for row in later.collect()) == [392, 393, 396, 397]
    nothing = frame.where(f"timestamp > timestamp_millis({FIRST_MS + 9999})")
    assert nothing.collect() == []


def test_sql_reads_what_was_there_when_it_was_planned(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    """Spark plans a view once, and anew for a query with a filter, as docs/spark.md says."""
    view = "orders_" + uuid.uuid4().hex
    broker.create_topic(topic, 1)
    produce(broker, topic, range(3))
    using = f"USING strandline OPTIONS ('kafka.bootstrap.servers' = '{broker.bootstrap}', subscribe = '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW {view} {using}")
    count = f"SELECT count(*) FROM {view}"
    assert spark.sql(count).collect()[0][0] == 3
    produce(broker, topic, range(3, 5))
    assert spark.sql(count).collect()[0][0] == 3
    assert spark.sql(f"{count} WHERE offset >= 0").collect()[0][0] == 5
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} {using}")
    assert spark.sql(count).collect()[0][0] == 5
    with pytest.raises(Exception, match="say CREATE TEMPORARY VIEW") as refused:
        spark.sql(f"CREATE TABLE {view}_table {using}")
    assert explain(refused.value).startswith("Spark does not hand the options of a table")


def test_a_frame_is_whole_whatever_filters_it_was_used_with(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    """Spark 4.3 plans a frame of a Python source once for all its uses, and the last filter that was pushed counts."""
    broker.create_topic(topic, 2)
    produce(broker, topic, range(20), partitions=2)
    frame = batch(spark, broker, topic)
    assert frame.where("partition = 1 and offset >= 8").count() == 2
    assert frame.where("offset > 8 or partition = 0").count() == 11
    assert frame.count() == 20
    assert frame.where("partition = 0").unionByName(frame.where("partition = 1")).count() == 20


def test_a_session_that_pushes_nothing_down_reads_all_the_same(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(10))
    conf = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(conf)
    spark.conf.set(conf, "false")
    try:
        assert batch(spark, broker, topic).where("offset = 3").count() == 1
    finally:
        spark.conf.set(conf, str(before))


def test_json_values_are_columns(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(3))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"no json", None, b'{"n": 5, "tags": ["a"]}'):
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    schema = "n INT, tags ARRAY<STRING>"
    frame = batch(spark, broker, topic, valueSchema=schema, columns="offset")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (0, None, 0, None),
        (1, None, 1, None),
        (2, None, 2, None),
        (None, None, 3, "no json"),
        (None, None, 4, None),
        (5, ["a"], 5, None),
    ]
    with pytest.raises(Exception) as failure:
        batch(spark, broker, topic, valueSchema=schema, mode="failfast").collect()
    assert f"the value of {topic}-0 at offset 3 does not fit valueSchema" in explain(failure.value)


def test_columns_of_a_value_may_be_named_like_those_of_a_record(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        value = {"key": f"k{number}", "offset": 70 + number, "timestamp": "2020-02-02T00:00:00Z", "value": number / 2}
        producer.produce(topic, json.dumps(value), b"the record's", partition=0)
    assert producer.flush(WAIT_S) == 0
    schema = "key STRING, offset BIGINT, timestamp TIMESTAMP, value DOUBLE"
    frame = batch(spark, broker, topic, valueSchema=schema, columns="partition", mode="failfast")
    rows = frame.where("offset >= 71").selectExpr("key", "offset", "unix_seconds(timestamp)", "value", "partition")
    assert sorted(map(tuple, rows.collect())) == [("k1", 71, 1580601600, 0.5, 0), ("k2", 72, 1580601600, 1.0, 0)]


def test_a_stream_reads_everything_once_and_goes_on(
    streams: Streams, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 3)
    produce(broker, topic, range(1000), partitions=3)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    counts = streams.run("one", **options)
    assert len(counts) == 4
    assert max(counts) <= 303
    assert streams.values() == list(range(1000))
    produce(broker, topic, range(1000, 1100), partitions=3)
    assert sum(streams.run("one", **options, minPartitions="6")) == 100
    assert streams.values() == list(range(1100))
    # The checkpoint reads as that of Spark's own source does, with the ids of the topics beside it.
    offsets = sorted((tmp_path / "one" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    written = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert written == {topic: {"0": 367, "1": 367, "2": 366}, TOPIC_IDS: {topic: written[TOPIC_IDS][topic]}}
    assert sum(streams.run("one", **options)) == 0


def test_a_stream_that_starts_with_the_next_record_remembers_which_it_was(
    streams: Streams, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, range(10), partitions=2)
    assert streams.run("one", subscribe=topic) == []
    # It came while no query ran, behind the place where this one had started.
    produce(broker, topic, range(10, 20), partitions=2)
    assert sum(streams.run("one", subscribe=topic)) == 10
    assert streams.values() == list(range(10, 20))


@pytest.mark.slow
def test_a_stream_in_bytes(streams: Streams, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(400):
        producer.produce(topic, json.dumps({"n": number, "filler": "x" * 500}), partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    counts = streams.run("one", subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="60000")
    # 400 records of about 530 bytes are 212 kB, about 110 records a batch.
    assert 3 <= len(counts) <= 6
    assert streams.values() == list(range(400))


def test_a_stream_that_runs_sees_new_partitions_and_topics(
    streams: Streams, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(10))
    query = streams.start("one", available_now=False, subscribePattern=f"{topic}.*", startingOffsets="earliest")
    wait_for(query, lambda: len(streams.rows) == 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    broker.create_topic(f"{topic}-second", 1)
    produce(broker, topic, range(10, 20), partitions=2)
    produce(broker, f"{topic}-second", range(20, 30))
    wait_for(query, lambda: len(streams.rows) == 30)
    assert streams.values() == list(range(30))
    assert Counter((row.topic, row.partition) for row in streams.rows)[topic, 1] == 5


@pytest.mark.slow
def test_a_stream_waits_for_enough(streams: Streams, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(10))
    limits = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h"}
    query = streams.start("one", available_now=False, subscribe=topic, startingOffsets="earliest", **limits)
    # The first batch takes what is there; then 50 must have come together.
    wait_for(query, lambda: len(streams.rows) == 10)
    for more in range(10, 60, 10):
        produce(broker, topic, range(more, more + 10))
    wait_for(query, lambda: len(streams.rows) == 60)
    assert streams.sizes == [10, 50]


def wait_for(query: StreamingQuery, is_there: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_there():
        assert time.monotonic() < deadline, "the stream does not get there"
        failure = query.exception()
        assert failure is None, failure
        query.awaitTermination(0.2)


def test_what_was_aborted_is_left_out(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(number), partition=0)
        assert producer.flush(WAIT_S) == 0
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(WAIT_S)
    wait_until_decided(broker.bootstrap, topic)
    frame = batch(spark, broker, topic, minPartitions="5")
    assert sorted(int(row.value) for row in frame.collect()) == [1, 2, 4, 5]
    everything = batch(spark, broker, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert everything.count() == 6


def test_lost_records_stop_a_stream_and_its_checkpoint_stays_usable(
    streams: Streams, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(100))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    query = streams.start("one", available_now=False, **options)
    wait_for(query, lambda: len(streams.rows) == 100)
    query.processAllAvailable()  # The last batch is committed too, and not only written.
    query.stop()
    produce(broker, topic, range(100, 200))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, 0, 150)]).values():
        future.result(WAIT_S)
    with pytest.raises(Exception) as failure:
        streams.run("one", **options)
    words = f"topic {topic}, partition 0: the offsets 100 to 139 are lost (the log begins at 150)"
    assert words in explain(failure.value)
    assert 'option("failOnDataLoss", "false")' in explain(failure.value)
    assert sum(streams.run("one", **options, failOnDataLoss="false")) == 50
    assert streams.values() == [*range(100), *range(150, 200)]


def test_a_topic_that_is_gone_stops_a_stream(streams: Streams, broker: EmbeddedBroker, topic: str) -> None:
    for name in (topic, f"{topic}-stays"):
        broker.create_topic(name, 1)
        produce(broker, name, range(10))
    options = {"subscribe": f"{topic},{topic}-stays", "startingOffsets": "earliest"}
    assert sum(streams.run("one", **options)) == 20
    delete_topic(broker, topic)
    produce(broker, f"{topic}-stays", range(10, 15))
    with pytest.raises(Exception) as failure:
        streams.run("one", **options)
    assert f"topic {topic}, partition 0: " in explain(failure.value)
    assert "is gone" in explain(failure.value)
    assert sum(streams.run("one", **options, failOnDataLoss="false")) == 5


@pytest.mark.slow
def test_a_topic_that_was_made_anew_stops_a_stream(streams: Streams, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker, topic, range(20))
    options = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}
    assert sum(streams.run("one", **options)) == 20
    delete_topic(broker, topic)
    broker.create_topic(topic, 1)
    produce(broker, topic, range(5))
    with pytest.raises(Exception) as failure:
        streams.run("one", **options)
    lost = f"topic {topic}, partition 0: everything from offset 20 on is lost (the topic was deleted and made again)"
    assert lost in explain(failure.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nowhere"}, "topic nowhere does not exist on"),
        ({"subscrib": "x"}, "subscrib is no option of the source: did you mean subscribe?"),
        ({"startingOffsets": '{"TOPIC":{"0":50}}'}, "everything from offset 50 on is lost (the log ends at 10)"),
        ({"valueSchema": "key STRING"}, "the column key is there twice"),
    ],
)
def test_bad_input_gets_a_sentence(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, options: dict[str, str], words: str
) -> None:
    topic = topic.replace("[", "").replace("]", "")[-30:].strip("-")
    broker.create_topic(topic, 1)
    produce(broker, topic, range(10))
    said = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(Exception) as failure:
        batch(spark, broker, None if "subscribe" in said else topic, **said).collect()
    sentence = explain(failure.value)
    assert words.replace("TOPIC", topic) in sentence
    assert "\n" not in sentence


def test_it_is_found_without_being_registered() -> None:
    import pyspark_strandline

    assert issubclass(pyspark_strandline.DefaultSource, StrandlineDataSource)
    assert pyspark_strandline.DefaultSource.name() == "strandline"
