"""The object sink writes each record into one object, and the same objects again after a crash."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore, S3Store
from tests.connect.sink_records import PLACE, batch, opened, record

from strandline.connect import schema as connect_schema
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.records import Header, SinkRecord, TopicPosition
from strandline.connect.sinks.lake.objects import ObjectSink
from strandline.runtime.fault_points import VARIABLE, PlantedFault

POINTS = ("before-produce", "after-produce", "before-commit", "after-commit")
COLUMNS = connect_schema.struct({"id": connect_schema.INT64, "name": connect_schema.OPTIONAL_STRING})
WIDER = connect_schema.struct({"id": connect_schema.INT64, "city": connect_schema.OPTIONAL_STRING})


class Target:
    """A store that outlives the sinks that write to it."""

    def __init__(self, **properties: str) -> None:
        self.store = MemoryStore()
        self.clock = [0.0]
        self.properties = {"store.url": "memory:///", "name": "lake", **properties}

    def sink(self) -> Any:
        sink = opened(ObjectSink, self.properties)
        sink.store = self.store
        sink.now = lambda: self.clock[0]
        return sink

    def contents(self) -> dict[str, bytes]:
        found = [each["path"] for part in obstore.list(self.store) for each in part]
        return {
            each: bytes(obstore.get(self.store, each).bytes()) for each in sorted(found) if "_strandline" not in each
        }

    def names(self) -> list[str]:
        return list(self.contents())

    def rows(self) -> list[dict[str, Any]]:
        made = []
        for path, content in self.contents().items():
            if path.endswith(".parquet"):
                made += pq.read_table(io.BytesIO(content)).to_pylist()
            else:
                text = gzip.decompress(content) if path.endswith(".gz") else content
                made += [json.loads(line) for line in text.splitlines()]
        return made


def mixed(count: int) -> list[SinkRecord]:
    """Return records of three partitions with structs, texts, JSON that changes its types, tombstones and gaps."""
    dice = random.Random(7)
    made = []
    ends = [0, 0, 0]
    for number in range(count):
        partition = dice.randrange(3)
        ends[partition] += dice.choice((1, 1, 1, 4))
        stage = number * 6 // count
        schema = (None, COLUMNS, WIDER, None, None, COLUMNS)[stage]
        value: Any = {"id": number, "city": f"ü/{dice.randrange(3)}"}
        if stage == 3:
            value = dice.choice(({"id": number}, {"id": str(number)}, {"id": number + 0.5}, {}))
        if stage == 4:
            value = dice.choice((f"text {number}", b"\xff%d" % number))
        if dice.random() < 0.05:
            value, schema = None, None
        stamp = 1_700_000_000_000 + number * 1000 + dice.randrange(3000)
        made.append(record(ends[partition] - 1, value, b"k", partition, timestamp_ms=stamp, value_schema=schema))
    return made


def run(
    target: Target, records: list[SinkRecord], sizes: Callable[[], int], crashes: Callable[[], bool]
) -> dict[TopicPosition, int]:
    """Write records as a worker does: from the committed offsets on, again after each crash. Return the last ones."""
    committed: dict[TopicPosition, int] = {}
    positions = [TopicPosition("orders", each) for each in range(3)]
    while True:
        sink = target.sink()
        committed |= sink.resume(positions)
        left = [
            each
            for each in records
            if each.offset >= committed.get(TopicPosition("orders", each.original_partition), 0)
        ]
        try:
            while left:
                size = sizes()
                sink.write(batch(*left[:size]))
                left = left[size:]
                ends = sink.flush()
                if crashes():
                    # The objects are there, but the offsets were not committed.
                    raise PlantedFault
                committed |= ends
            return committed
        except PlantedFault:
            continue


def compare_objects(seed: int, partitioner: str) -> None:
    """Write the same records at once, and in small batches with crashes: the objects are the same."""
    settings_of = {
        "partitioner": partitioner,
        "partition.fields": "city",
        "path.format": "%Y/%M",
        "flush.size": "17",
        "buffer.bytes.max": "700",
        "rotate.interval.ms": "20000",
        "behavior.on.null.values": "write",
        "include.metadata": "true",
    }
    records = mixed(150)
    whole, cut = Target(**settings_of), Target(**settings_of)
    run(whole, records, lambda: len(records), lambda: False)
    dice = random.Random(seed)
    ends = run(cut, records, lambda: dice.choice((1, 2, 7, 30)), lambda: dice.random() < 0.1)

    assert cut.contents() == whole.contents()
    # What is behind the last offsets is not written yet; everything before is, once.
    done = [each for each in records if each.offset < ends[TopicPosition("orders", each.original_partition)]]
    places = [(each["__partition"], each["__offset"]) for each in cut.rows()]
    assert sorted(places) == sorted((each.original_partition, each.offset) for each in done)
    assert len(done) > 100


@pytest.mark.parametrize("partitioner", ["none", "time", "field"])
def test_objects_are_the_same_whatever_the_batches_and_crashes_were(partitioner: str) -> None:
    compare_objects(7, partitioner)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), partitioner=st.sampled_from(("none", "time", "field")))
def test_objects_are_the_same_for_any_batches_and_crashes(seed: int, partitioner: str) -> None:
    compare_objects(seed, partitioner)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("by_clock", [False, True])
def test_a_crash_between_any_two_steps_loses_nothing_and_doubles_nothing(
    point: str, by_clock: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(
        **{"format": "json", "flush.size": "1000" if by_clock else "10"},
        **({"rotate.schedule.interval.ms": "1"} if by_clock else {}),
        **{"partitioner": "field", "partition.fields": "n"},
    )
    records = [record(each, {"id": each, "n": each % 3}) for each in range(40)]
    committed: Mapping[TopicPosition, int] = {}
    dice = random.Random(3)
    crashes = 0
    for attempt in range(60):
        sink = target.sink()
        committed = {**committed, **sink.resume([PLACE])}
        left = records[committed.get(PLACE, 0) :]
        # In every other attempt the store is left in the middle; in the others the offsets may be lost.
        monkeypatch.setenv(VARIABLE, f"{point}:fail:{tmp_path / str(attempt)}" if attempt % 2 else "")
        try:
            for _ in range(dice.randrange(2, 5)):
                size = dice.randrange(1, 15)
                sink.write(batch(*left[:size]))
                left = left[size:]
                target.clock[0] += 1
                ends = sink.flush()
                if dice.random() < 0.5:
                    committed = {**committed, **ends}
        except PlantedFault:
            crashes += 1
    assert crashes > 0
    assert committed == {PLACE: 40}
    assert sorted(each["id"] for each in target.rows()) == list(range(40))


def test_offsets_are_those_behind_complete_objects() -> None:
    target = Target(**{"flush.size": "3"})
    sink = target.sink()
    sink.write(batch(*(record(each, b"x") for each in range(5))))
    assert sink.flush() == {PLACE: 3}
    assert target.names() == ["topics/orders/orders+0+00000000000000000000.parquet"]


def test_offsets_wait_while_the_store_is_away() -> None:
    target = Target(**{"flush.size": "2"})
    sink = target.sink()
    # It does not try for minutes.
    sink.store = S3Store.from_url(
        "s3://bucket/path",
        config={"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a", "aws_secret_access_key": "b"},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    records = batch(*(record(each, b"x") for each in range(3)))
    with pytest.raises(RetriableFailure, match="was not read"):
        sink.write(records)
    with pytest.raises(RetriableFailure):
        sink.flush()
    sink.store = target.store
    sink.write(records)
    assert sink.flush() == {PLACE: 2}
    assert len(target.rows()) == 2


def test_a_batch_that_is_written_again_is_taken_once() -> None:
    target = Target(**{"flush.size": "4"})
    sink = target.sink()
    sink.write(batch(record(0, "a"), record(1, "b")))
    sink.write(batch(record(0, "a"), record(1, "b"), record(2, "c"), record(3, "d")))
    assert [each["value"] for each in target.rows()] == ["a", "b", "c", "d"]


def test_a_bad_record_changes_nothing_and_is_named() -> None:
    target = Target(**{"flush.size": "2"})
    sink = target.sink()
    for bad in ({"a": [1, "x"]}, {"a": 2**70}, "\ud800"):
        poison = record(1, bad)
        with pytest.raises(RecordFailed, match="orders-0 at offset 1") as failed:
            sink.write(batch(record(0, {"a": 1}), poison, record(2, {"a": 2})))
        assert failed.value.record is poison
        assert target.names() == []
    sink.write(batch(record(0, {"a": 1}), record(2, {"a": 2})))
    assert target.rows() == [{"a": 1}, {"a": 2}]
    assert sink.flush() == {PLACE: 3}


def test_connect_types_become_columns() -> None:
    schema = connect_schema.struct(
        {
            "amount": connect_schema.decimal_schema(2),
            "day": connect_schema.DATE_SCHEMA,
            "at": connect_schema.TIME_SCHEMA,
            "stamp": connect_schema.TIMESTAMP_SCHEMA,
            "tags": connect_schema.array(connect_schema.STRING),
            "counts": connect_schema.map_of(connect_schema.STRING, connect_schema.INT32),
            "raw": connect_schema.BYTES,
            "inner": connect_schema.struct({"x": connect_schema.FLOAT64}),
        }
    )
    value = {
        "amount": Decimal("12.50"),
        "day": date(2026, 1, 2),
        "at": time(1, 2, 3),
        "stamp": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "tags": ["a", "ü"],
        "counts": {"k": 1},
        "raw": b"\x00",
        "inner": {"x": 1.5},
    }
    target = Target(**{"flush.size": "1"})
    target.sink().write(batch(record(0, value, value_schema=schema)))
    assert target.rows() == [{**value, "counts": [("k", 1)]}]


def test_another_schema_begins_another_object() -> None:
    target = Target(**{"flush.size": "3"})
    sink = target.sink()
    first, second = ({"id": 1, "name": "a"}, COLUMNS), ({"id": 2, "city": "b"}, WIDER)
    for offset, (value, schema) in enumerate((first, second, second, second)):
        sink.write(batch(record(offset, value, value_schema=schema)))
    assert [each[-28:] for each in target.names()] == [f"{each:020}.parquet" for each in (0, 1)]
    assert target.rows() == [{"id": 1, "name": "a"}, *[{"id": 2, "city": "b"}] * 3]


def test_columns_of_json_are_merged_and_types_that_exclude_each_other_are_split() -> None:
    target = Target(**{"flush.size": "4"})
    target.sink().write(
        batch(record(0, {"a": 1}), record(1, {"a": 2.5, "b": {}}), record(2, {"a": "x"}), record(3, {"c": []}))
    )
    assert target.rows() == [{"a": 1.0}, {"a": 2.5}, {"a": "x"}, {"a": None}]
    assert len(target.names()) == 2


def test_paths_of_fields_and_times_are_escaped() -> None:
    target = Target(**{"flush.size": "4", "partitioner": "field", "partition.fields": "city,ok"})
    cities = ["../../etc", "a/b", None, ".."]
    target.sink().write(batch(*(record(at, {"city": each, "ok": True, "n": at}) for at, each in enumerate(cities))))
    assert sorted(each.split("/")[2] for each in target.names()) == [
        "city=%2E%2E",
        "city=..%2F..%2Fetc",
        "city=__HIVE_DEFAULT_PARTITION__",
        "city=a%2Fb",
    ]
    assert len(target.rows()) == 4

    timed = Target(**{"flush.size": "2", "partitioner": "time", "timezone": "Asia/Tokyo", "timestamp.field": "at"})
    sink = timed.sink()
    sink.write(batch(record(0, {"at": "2026-01-01T20:30:00Z"}), record(1, {"at": "2026-01-02T05:40:00+09:00"})))
    assert timed.names() == ["topics/orders/year=2026/month=01/day=02/hour=05/orders+0+00000000000000000000.parquet"]
    with pytest.raises(RecordFailed, match="no time in the field at"):
        sink.write(batch(record(2, {"at": "yesterday"})))


def test_records_that_a_transform_moved_to_one_topic_keep_apart() -> None:
    target = Target(**{"flush.size": "1", "format": "json"})
    sink = target.sink()
    sink.write(batch(*(record(0, each, topic="all", original_topic=each) for each in ("a", "b"))))
    assert target.names() == [f"topics/all/{each}+0+{0:020}.json" for each in ("a", "b")]


def test_tombstones_are_left_out_kept_or_refused() -> None:
    ignoring = Target(**{"flush.size": "1"})
    sink = ignoring.sink()
    sink.write(batch(record(0), record(1)))
    assert (sink.flush(), ignoring.names()) == ({PLACE: 2}, [])

    keeping = Target(**{"flush.size": "2", "behavior.on.null.values": "write", "include.metadata": "true"})
    headers = [Header("h", b"\xff"), Header("h", 1)]
    keeping.sink().write(batch(record(0, None, b"\xfe", headers=headers), record(1, {"a": 1}, {"id": 1})))
    gone, kept = keeping.rows()
    assert (gone["a"], gone["__key"], kept["a"], kept["__key"]) == (None, "\\xfe", 1, '{"id":1}')
    assert gone["__headers"] == [{"name": "h", "value": "\\xff"}, {"name": "h", "value": "1"}]

    refusing = Target(**{"behavior.on.null.values": "fail"})
    with pytest.raises(RecordFailed, match="has no value"):
        refusing.sink().write(batch(record(0)))


def test_json_lines_are_compressed_and_say_where_they_come_from() -> None:
    target = Target(**{"format": "json", "compression": "gzip", "flush.size": "2", "include.metadata": "true"})
    target.sink().write(batch(record(0, {"a": "ü"}, "k"), record(1, "text", "k")))
    assert [(each.get("a"), each.get("value"), each["__offset"]) for each in target.rows()] == [
        ("ü", None, 0),
        (None, "text", 1),
    ]


def test_objects_are_files_of_a_directory(tmp_path: Path) -> None:
    sink = opened(ObjectSink, {"store.url": f"{tmp_path.as_uri()}/new", "flush.size": "2"})
    sink.write(batch(record(0, b"a"), record(1, b"b")))
    (found,) = (tmp_path / "new").rglob("*.parquet")
    assert pq.ParquetFile(found).read().to_pylist() == [{"value": b"a"}, {"value": b"b"}]


def test_partitions_that_went_elsewhere_are_forgotten() -> None:
    target = Target(**{"flush.size": "2"})
    sink = target.sink()
    sink.write(batch(record(0, "a")))
    sink.revoked([PLACE])
    sink.write(batch(record(0, "a"), record(1, "b")))
    assert target.rows() == [{"value": "a"}, {"value": "b"}]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"timezone": "Mars/Base"}, "no such time zone"),
        ({"path.format": "a//%Y"}, "empty part"),
        ({"format": "json", "compression": "snappy"}, "not with snappy"),
        ({"partitioner": "field"}, "at least one field"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, str], message: str) -> None:
    found = ObjectSink.Config.errors_of({"store.url": "memory:///", **wrong})
    assert message in str(list(found.values()))


def test_an_address_of_no_store_is_named() -> None:
    wrong = ObjectSink.Config.errors_of({"store.url": "zz://x"})
    assert wrong["store.url"][0].startswith("Invalid value zz://x for configuration store.url: it begins with one of")
    assert issubclass(InvalidConnectorConfig, ConnectFailed)
