"""What a batch reads, planned as Spark has it planned, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from tests.spark.source_ground import WAIT_S

from strandline.client.failures import DataLost
from strandline.client.fetcher import OffsetRange
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.source.batch import BatchReader, FilteringBatchReader
from strandline.spark.source.columns import arrow_schema
from strandline.spark.source.options import parse_options
from strandline.spark.source.source_spec import OptionRefused, RowShape

FIRST_MS = 1_700_000_000_000
OFFSET_ONLY = StructType([StructField("offset", LongType())])

Plan = Callable[..., list[tuple[int, int, int]]]


@pytest.fixture
def orders(broker: EmbeddedBroker, topic: str) -> str:
    """Ten records in each of two partitions, the first three of partition 1 deleted; a record a millisecond."""
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(topic, b"x", partition=number % 2, timestamp=FIRST_MS + number)
    assert producer.flush(WAIT_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, 1, 3)]).values():
        future.result(WAIT_S)
    return topic


@pytest.fixture
def reader(broker: EmbeddedBroker, orders: str) -> Callable[..., FilteringBatchReader]:
    def reader(**options: str) -> FilteringBatchReader:
        said = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": orders, "pushFilters": "true"} | options
        return FilteringBatchReader(parse_options(said, streaming=False), OFFSET_ONLY)

    return reader


@pytest.fixture
def plan(reader: Callable[..., BatchReader]) -> Plan:
    return lambda **options: ranges_of(reader(**options))


def ranges_of(reader: BatchReader) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each task."""
    found = []
    for each in reader.partitions():
        offsets = each.value
        assert isinstance(offsets, OffsetRange)
        found.append((offsets.partition, offsets.start, offsets.end))
    return found


def test_everything_that_is_there(plan: Plan) -> None:
    assert plan() == [(0, 0, 10), (1, 3, 10)]
    assert plan(minPartitions="4") == [(0, 0, 5), (0, 5, 10), (1, 3, 6), (1, 6, 10)]
    assert plan(maxRecordsPerPartition="8") == [(0, 0, 5), (0, 5, 10), (1, 3, 10)]


def test_offsets_that_were_written_down(plan: Plan, orders: str) -> None:
    start, end = json.dumps({orders: {"0": 4, "1": -2}}), json.dumps({orders: {"0": -1, "1": 5}})
    assert plan(startingOffsets=start, endingOffsets=end) == [(0, 4, 10), (1, 3, 5)]


def test_times(plan: Plan, orders: str) -> None:
    assert plan(startingTimestamp=str(FIRST_MS + 9)) == [(0, 5, 10), (1, 4, 10)]
    assert plan(endingTimestamp=str(FIRST_MS + 9)) == [(0, 0, 5), (1, 3, 4)]
    # Where no record is that late, all of them are read.
    by_partition = json.dumps({orders: {"0": FIRST_MS + 999, "1": FIRST_MS}})
    assert plan(endingOffsetsByTimestamp=by_partition) == [(0, 0, 10)]
    with pytest.raises(
        OptionRefused, match=rf"no record of {orders}-0 is as late as {FIRST_MS + 19}: choose an earlier"
    ):
        plan(startingTimestamp=str(FIRST_MS + 19))
    later = {"startingTimestamp": str(FIRST_MS + 19), "startingOffsetsByTimestampStrategy": "latest"}
    assert plan(**later) == [(1, 9, 10)]


def test_a_pattern_leaves_internal_topics_out(broker: EmbeddedBroker, orders: str) -> None:
    # A group with a position makes the topic of positions.
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": orders})
    consumer.commit(offsets=[KafkaPartition(orders, 0, 1)], asynchronous=False)
    consumer.close()
    said = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"__consumer_offsets|{orders}"}
    found = BatchReader(parse_options(said, streaming=False), OFFSET_ONLY).partitions()
    assert {each.value.topic for each in found} == {orders}


def test_a_pattern_may_fit_any_part_of_a_name(broker: EmbeddedBroker, topic: str) -> None:
    """As in Spark's own source; who means whole names says so."""
    names = (topic, f"{topic}-eu", f"old-{topic}")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name in names:
        broker.create_topic(name, 1)
        producer.produce(name, b"x")
    assert producer.flush(WAIT_S) == 0
    patterns = {topic: names, f"^{topic}": names[:2], f"^{topic}$": names[:1], f"{topic}-.u": names[1:2]}
    for pattern, fitting in patterns.items():
        said = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": pattern}
        found = BatchReader(parse_options(said, streaming=False), OFFSET_ONLY).partitions()
        assert {each.value.topic for each in found} == set(fitting)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (
            {"startingOffsets": {"0": 0, "1": 0}},
            DataLost,
            "partition 1: the offsets 0 to 2 are lost .the log begins at 3",
        ),
        (
            {"startingOffsets": {"0": 99, "1": 5}},
            DataLost,
            "partition 0: everything from offset 99 on is lost .the log ends at 10",
        ),
        (
            {"endingOffsets": {"0": 99, "1": 5}},
            DataLost,
            "partition 0: the offsets 10 to 98 are lost .the log ends at 10",
        ),
        ({"startingOffsets": {"0": 0}}, OptionRefused, "startingOffsets says nothing of .*-1: say every partition; -2"),
        ({"startingOffsets": {"0": 0, "1": 0, "2": 0}}, OptionRefused, "startingOffsets names .*-2, which is not read"),
        (
            {"startingOffsets": {"0": 7, "1": 5}, "endingOffsets": {"0": 6, "1": 6}},
            OptionRefused,
            "startingOffsets has .*-0 begin at 7, behind its end 6 in endingOffsets",
        ),
        ({"endingOffsetsByTimestamp": {"0": 5}}, OptionRefused, "endingOffsetsByTimestamp says nothing of .*-1"),
    ],
)
def test_offsets_that_the_log_does_not_have(
    plan: Plan, orders: str, options: dict[str, dict[str, int]], kind: type[Exception], words: str
) -> None:
    said = {name: json.dumps({orders: offsets}) for name, offsets in options.items()}
    with pytest.raises(kind, match=words):
        plan(**said)


def test_times_that_end_before_they_begin(plan: Plan) -> None:
    with pytest.raises(
        OptionRefused, match=r"startingTimestamp has .*-0 begin at 5, behind its end 2 in endingTimestam"
    ):
        plan(startingTimestamp=str(FIRST_MS + 10), endingTimestamp=str(FIRST_MS + 4))
    assert plan(startingTimestamp=str(FIRST_MS + 10), endingTimestamp=str(FIRST_MS + 10)) == []


def test_what_is_lost_is_left_out_if_the_user_does_not_mind(plan: Plan, orders: str) -> None:
    start, end = json.dumps({orders: {"0": 99, "1": 0}}), json.dumps({orders: {"0": 120, "1": 99}})
    assert plan(startingOffsets=start, endingOffsets=end, failOnDataLoss="false") == [(1, 3, 10)]


def test_filters_narrow_down_what_is_planned(reader: Callable[..., FilteringBatchReader]) -> None:
    filters = [EqualTo(("partition",), 0), GreaterThanOrEqual(("offset",), 8), EqualTo(("value",), b"x")]
    few = reader()
    assert list(few.pushFilters(filters)) == filters
    assert ranges_of(few) == [(0, 8, 10)]
    late = reader()
    at = datetime.fromtimestamp((FIRST_MS + 15) / 1000, UTC)
    late.pushFilters([GreaterThan(("timestamp",), at)])
    assert ranges_of(late) == [(0, 8, 10), (1, 7, 10)]
    late.pushFilters([GreaterThan(("timestamp",), at.replace(year=2040))])
    assert ranges_of(late) == []


def test_filters_leave_nothing_out_unless_the_user_says_so(reader: Callable[..., FilteringBatchReader]) -> None:
    """Spark uses what was planned for one filter for all others on the same frame."""
    whole = reader(pushFilters="false")
    filters = [EqualTo(("partition",), 0)]
    assert list(whole.pushFilters(filters)) == filters
    assert ranges_of(whole) == [(0, 0, 10), (1, 3, 10)]


def test_filters_on_columns_of_the_value_leave_offsets_alone(broker: EmbeddedBroker, orders: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": orders, "valueSchema": "offset BIGINT"}
    options |= {"columns": "partition", "pushFilters": "true"}
    schema = StructType([StructField("offset", LongType()), StructField("partition", IntegerType())])
    reader = FilteringBatchReader(parse_options(options, streaming=False), schema)
    reader.pushFilters([EqualTo(("offset",), 5000), EqualTo(("partition",), 0)])
    assert ranges_of(reader) == [(0, 0, 10)]


@pytest.mark.parametrize(
    ("field", "value_schema", "words"),
    [
        (StructField("valeu", BinaryType()), None, "a log has no column valeu: it has key, value"),
        (StructField("value", StringType()), None, "the column value of a log is BINARY, not string: convert it"),
        (
            StructField("m", ArrayType(MapType(StringType(), IntegerType()))),
            "m ARRAY<MAP<STRING, INT>>",
            "valueSchema: m has the type MAP<STRING,INT>, which is not supported: say STRUCT<...>",
        ),
        (
            StructField("pause", StructType([StructField("long", DayTimeIntervalType())])),
            "pause STRUCT<long: INTERVAL DAY TO SECOND>",
            "pause has the type INTERVAL DAY TO SECOND, which is not supported: say STRING",
        ),
    ],
)
def test_columns_that_a_log_does_not_have(field: StructField, value_schema: str | None, words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        arrow_schema(StructType([field]), RowShape(value_schema=value_schema))
