"""The state of a view is what a stock consumer of committed records would fold, at the end and at any moment before."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.spark.source_ground import WAIT_S
from tests.views.ground import SCHEMA, Feed, folded, rows_of

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.views import AtTime, Desk, ViewFailed, define
from strandline.views.view_store import ends_of


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_now_and_at_any_offset(broker: EmbeddedBroker, topic: str, tmp_path: Path, seed: int) -> None:
    """Transactions with aborts, tombstones, several partitions; before, between and after snapshots."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    feed = Feed(broker, topic)
    feed.random(rng, transactions=8)
    with feed.view(tmp_path) as view:
        assert rows_of(view) == feed.rows()
        moments = [feed.ends()]
        for _ in range(2):
            feed.random(rng, transactions=6)
            assert view.snapshot() is not None
            feed.random(rng, transactions=3)
            moments.append(feed.ends())
        records = feed.records()
        assert rows_of(view) == folded(records)
        ends = feed.ends()
        for _ in range(12):
            moments.append({each: rng.randrange(end + 1) for each, end in ends.items()})
        moments.append(dict.fromkeys(ends, 0))
        for moment in moments:
            assert rows_of(view, as_of=moment) == folded(records, below=moment), moment
            customer = f"c{rng.randrange(40)}"
            expected = {row[0]: row for row in folded(records, below=moment)}.get(customer)
            row = view.get(customer, as_of=moment)
            assert (None if row is None else tuple(row.values())) == expected
    # Who comes next begins with a snapshot.
    with feed.view(tmp_path) as view:
        assert len(view.snapshots) >= 3
        assert rows_of(view) == folded(records)


def test_as_of_a_time(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = Feed(broker, topic, partitions=2)
    begin_ms = 1_700_000_000_000
    for minute in range(10):
        for customer in range(4):
            total = None if (minute, customer) == (6, 1) else float(minute)
            feed.put(f"c{customer}", total, partition=customer % 2, time_ms=begin_ms + minute * 60_000 + customer)
        feed.flush()
        if minute == 4:
            with feed.view(tmp_path) as view:
                assert view.snapshot() is not None

    def at(minute: float) -> AtTime:
        return AtTime(begin_ms + int(minute * 60_000))

    with feed.view(tmp_path) as view:
        assert len(view.snapshots) == 1
        assert rows_of(view, as_of=at(-1)) == []
        assert rows_of(view, as_of=at(3.5)) == [(f"c{each}", 3.0, 3) for each in range(4)]
        # The very millisecond of a record counts.
        assert rows_of(view, as_of=AtTime(begin_ms + 5 * 60_000 + 1)) == [
            ("c0", 5.0, 5),
            ("c1", 5.0, 5),
            ("c2", 4.0, 4),
            ("c3", 4.0, 4),
        ]
        assert rows_of(view, as_of=at(6.5)) == [("c0", 6.0, 6), ("c2", 6.0, 6), ("c3", 6.0, 6)]
        now = rows_of(view)
        assert rows_of(view, as_of=datetime.now(UTC)) == now == [(f"c{each}", 9.0, 9) for each in range(4)]


def test_an_open_transaction_is_not_seen(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    feed = Feed(broker, topic, partitions=1)
    feed.put("ada", 1.0)
    feed.flush()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, key="ada", value='{"total": 2.0, "visits": 2}')
    producer.flush(30)
    with feed.view(tmp_path) as view:
        assert rows_of(view) == [("ada", 1.0, 1)]
        assert view.freshness.records_behind == 0
        with pytest.raises(ViewFailed, match="is not there yet: what is committed ends at 0:1"):
            view.query(as_of={0: 2})
        producer.commit_transaction(30)
        feed.settle()
        assert view.freshness.records_behind == 2
        assert rows_of(view) == [("ada", 2.0, 2)]
        assert view.freshness.records_behind == 0


def test_a_refresh_reads_only_what_is_new(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = Feed(broker, topic, partitions=1)
    for number in range(500):
        feed.put(f"c{number}", float(number))
    feed.flush()
    with feed.view(tmp_path) as view:
        read: list[int] = []
        view._session.on_read = read.append
        feed.put("c7", None)
        feed.flush()
        assert view.get("c7") is None
        assert len(rows_of(view)) == 499
        assert sum(read) == 1


def test_a_read_that_fails_half_way_changes_nothing(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = Feed(broker, topic, partitions=3)
    for number in range(9):
        feed.put(f"c{number}", 1.0, partition=number % 3)
    feed.flush()
    with feed.view(tmp_path) as view:
        before = rows_of(view)
        for number in range(9):
            feed.put(f"c{number}", 2.0, partition=number % 3)
        feed.flush()
        batches = 0

        def fail_at_the_second(records: int) -> None:
            nonlocal batches
            batches += 1
            if batches == 2:
                raise ConnectionError("planted")

        view._session.on_read = fail_at_the_second
        with pytest.raises(ConnectionError):
            view.query()
        assert [row[1] for row in before] == [1.0] * 9
        assert rows_of(view) == feed.rows()


def test_a_read_that_cannot_be_committed_changes_nothing(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """DuckDB ends the transaction by itself, as with a full disk: there is nothing to roll back then."""
    feed = Feed(broker, topic, partitions=1)
    feed.put("ada", 1.0)
    feed.flush()
    with feed.view(tmp_path) as view:
        definition = view.definition
        state = view._session._store(definition, ends_of(view._session.client, definition)).at_hand
        assert state is not None
        real = state.fold._connection
        state.fold._connection = FullDisk(real)  # type: ignore[assignment]
        feed.put("ada", None)
        feed.put("bob", 2.0)
        feed.flush()
        with pytest.raises(ViewFailed, match=f"the rows of {topic} cannot be held: planted: no space left; they need "):
            view.query()
        state.fold._connection = real
        assert rows_of(view) == [("bob", 2.0, 2)]


class FullDisk:
    """A connection that cannot commit."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def execute(self, sql: str) -> object:
        if sql == "COMMIT":
            self._connection.execute("ROLLBACK")
            raise duckdb.IOException("planted: no space left")
        return self._connection.execute(sql)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


def test_times_of_what_readers_do_not_get(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """Markers have the time of the broker, and aborted records any time: neither is a change of the table."""
    begin_ms = 1_700_000_000_000
    feed = Feed(broker, topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(WAIT_S)
    for second, ends in ((1, "commit"), (50, "abort"), (2, "commit")):
        producer.begin_transaction()
        value = f'{{"total": {second}, "visits": {second}}}'
        producer.produce(topic, key=f"c{second}", value=value, timestamp=begin_ms + second * 1000)
        getattr(producer, f"{ends}_transaction")(WAIT_S)
    feed.settle()
    feed.put("c3", 3.0, time_ms=begin_ms + 30_000)
    feed.put("c4", 4.0, time_ms=begin_ms + 3_000)
    feed.flush()
    two = [("c1", 1.0, 1), ("c2", 2.0, 2)]
    for directory in ("one", "two"):
        with feed.view(tmp_path / directory) as view:
            assert rows_of(view, as_of=AtTime(begin_ms)) == []
            assert rows_of(view, as_of=AtTime(begin_ms + 10_000)) == two
            assert rows_of(view, as_of=AtTime(begin_ms + 30_000)) == [*two, ("c3", 3.0, 3), ("c4", 4.0, 4)]
            assert rows_of(view, as_of="1960-01-01T00:00:00Z") == []


def test_a_new_partition_is_behind_by_what_its_log_has(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = Feed(broker, topic, partitions=1, cleanup_policy="compact,delete")
    feed.put("ada", 1.0)
    feed.flush()
    with feed.view(tmp_path) as view:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        # One that has not heard of the topic before.
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(5):
            producer.produce(topic, key=f"c{number}", value='{"total": 1.0, "visits": 1}', partition=1)
        assert producer.flush(WAIT_S) == 0
        for told in admin.delete_records([TopicPartition(topic, 1, 3)]).values():
            told.result()
        assert view.freshness.records_behind == 2
        assert view._session.records_since("totals", view.snapshots[-1].offsets) == 2
        assert rows_of(view) == [("ada", 1.0, 1), ("c3", 1.0, 1), ("c4", 1.0, 1)]
        assert view.freshness.records_behind == 0


def test_values_that_do_not_fit(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """One strange record makes nulls of its own row, before and after a snapshot."""
    from confluent_kafka import Producer

    feed = Feed(broker, topic, partitions=1)
    strange = {
        b"no-json": b"total",
        b"no-text": b"\xff\xfe",
        b"list": b"[1]",
        b"empty": b"",
        b"other": b'{"total": "many", "visits": 3, "more": {}}',
    }
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for key, value in strange.items():
        producer.produce(topic, key=key, value=value)
    feed.put("ada", 1.0)
    producer.flush(30)
    feed.flush()
    expected = [("ada", 1.0, 1), ("empty", None, None), ("list", None, None), ("no-json", None, None)]
    expected += [("no-text", None, None), ("other", None, 3)]
    with feed.view(tmp_path) as view:
        assert rows_of(view) == expected
        view.snapshot()
        assert rows_of(view) == expected
        assert view.get("other") == {"customer": "other", "total": None, "visits": 3}


def test_records_without_a_key_are_no_rows(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    feed = Feed(broker, topic, partitions=1, cleanup_policy="delete")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, value=b'{"total": 1.0}')
    producer.produce(topic, key=b"", value=b'{"total": 2.0}')
    producer.flush(30)
    with feed.view(tmp_path) as view:
        assert rows_of(view) == [("", 2.0, None)]


def test_a_key_that_moved_to_another_partition(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """`get` shows the row that a producer would replace now, wherever the tail and the snapshot have it."""
    feed = Feed(broker, topic, partitions=2)
    names = [f"c{number}" for number in range(20)]
    for name in names:
        for partition in range(2):
            feed.put(name, 1.0 + partition, partition=partition)
    feed.flush()
    # Where librdkafka, which hashes otherwise than Kafka by default, or anybody else puts a key is found, too.
    for name in ("only-0", "only-1"):
        feed.put(name, 7.0, partition=int(name[-1]))
    feed.flush()
    from_kafka = {name: 1.0 + murmur2_of(name) % 2 for name in names}
    with feed.view(tmp_path) as view:
        assert view.snapshots
        for name in names:
            row = view.get(name)
            assert row is not None
            assert row["total"] == from_kafka[name]
        for name in ("only-0", "only-1"):
            assert view.get(name) == {"customer": name, "total": 7.0, "visits": 7}
        feed.put("c1", 9.0, partition=0)
        feed.flush()
        assert view.get("c1") == {"customer": "c1", "total": 9.0, "visits": 9}


def murmur2_of(key: str) -> int:
    import pyarrow as pa

    from strandline.client.partitioner import murmur2

    return int(murmur2(pa.array([key.encode()], pa.binary()))[0]) & 0x7FFFFFFF


def test_columns_of_json_may_be_called_key_and_value(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """As in a table of a pipeline with these two columns: it is not a view without a schema."""
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, key=b"a", value=b'{"value":"one"}')
    assert producer.flush(WAIT_S) == 0
    with Desk(broker.bootstrap, directory=tmp_path) as desk:
        desk.add(define("parsed", topic, schema="key STRING, value STRING", key=("key",)))
        desk.add(define("plain", topic, schema=None, key=()))
        for name in ("plain", "parsed"):
            # What the snapshot of one has in its columns is not what the other has in them.
            for _ in range(2):
                expected = [("a", "one" if name == "parsed" else '{"value":"one"}')]
                assert desk.query(f"select * from {name}").rows == expected
                assert tuple((desk.row(name, "a") or {}).values()) == expected[0]
                desk.snapshot(name)


def test_names_with_dots_and_dashes(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = Feed(broker, topic, partitions=1)
    feed.put("ann", 4.0)
    feed.flush()
    with Desk(broker.bootstrap, directory=tmp_path) as desk:
        for name in ("daily-totals", "totals.by-day"):
            desk.add(define(name, topic, schema=SCHEMA, key=("customer",)))
        for written in ('"daily-totals"', '"totals.by-day"', 'totals."by-day"'):
            assert desk.query(f"select customer, total from {written}").rows == [("ann", 4.0)]
