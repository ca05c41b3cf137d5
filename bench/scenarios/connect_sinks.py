"""Sinks of connectors: rows into PostgreSQL beside a psycopg loop, values into Parquet, a worker that is killed.

The sinks themselves are called in this process, with records that are there already. Through a worker they also pay for
reading the topic and converting it, so those figures have rows of their own. PostgreSQL does not sync its files, for
either of the two.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Producer
from psycopg import sql
from tests.connect.postgres_server import PostgresServer

from bench.brokers import STRANDLINE, Broker
from bench.connect_failover import killed_workers
from bench.connect_workers import ConnectProcess, our_worker
from bench.figures import Figure, at_least, ratio_at_least
from bench.measure import MB
from bench.stage import Stage
from strandline.connect.records import SinkRecord
from strandline.connect.schema import FLOAT64, INT32, INT64, STRING, struct
from strandline.connect.sink import RecordList
from strandline.connect.sinks.lake.objects import ObjectSink
from strandline.connect.sinks.sql.postgres import PostgresSink

NAME = "connect-sinks"
SUMMARY = "rows into PostgreSQL beside a psycopg loop, Parquet, and the tasks of a worker that is killed"
PLAIN: Final = "executemany"
BATCHES: Final = (500, 2_000)
ROWS: Final = 40_000
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
PARQUET_BYTES: Final = 128 * MB
FLUSH_RECORDS: Final = 20_000
"""Records of an object, so that the last one of a round is complete."""
READ_RECORDS: Final = 10_000
"""Records of a batch, as a task reads them."""
WAIT_S: Final = 300.0
_COLUMNS: Final = ("id", "customer", "product", "units", "price")
_SCHEMA: Final = struct({"id": INT64, "customer": STRING, "product": STRING, "units": INT32, "price": FLOAT64})
_KEYS: Final = {"pk.mode": "record_value", "pk.fields": "id"}
_CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    server = PostgresServer().start()
    broker = stage.start(STRANDLINE, settings={"group.initial.rebalance.delay.ms": "0"})
    try:
        figures = [*_postgres(stage, server), *_parquet(stage)]
        with our_worker(broker.bootstrap, stage.root, {"group.id": "sinks", **_topics("sinks")}) as worker:
            figures += [*_postgres_worker(stage, broker, worker, server), *_parquet_worker(stage, broker, worker)]
        return figures + killed_workers(stage, broker)
    finally:
        stage.discard(broker)
        server.remove()


def _topics(group: str) -> dict[str, str]:
    return {f"{each}.storage.topic": f"{group}-{each}" for each in ("config", "offset", "status")}


@dataclass
class Writer:
    """What takes turns: a function that stores a batch."""

    name: str
    write: Callable[[RecordList], None]
    table: str


# PostgreSQL


def _postgres(stage: Stage, server: PostgresServer) -> list[Figure]:
    dsn = server.fresh_database()
    config = {"name": "bench", "connection.url": dsn, **_KEYS}
    sink = PostgresSink(PostgresSink.Config(config))
    sink.open()
    figures = []
    offsets = itertools.count()
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "create table plain (id bigint primary key, customer text, product text, units integer, price float8)"
            )
            connection.commit()
            writers = [Writer(STRANDLINE, sink.write, "ours"), Writer(PLAIN, _plain_loop(connection), "plain")]
            for size in BATCHES:
                count = max(size, stage.scaled(ROWS, 2_000))
                taken = stage.take_turns(
                    writers,
                    lambda writer: _rows_round(connection, writer, offsets, count, size),  # noqa: B023
                    warm_rounds=1,
                )
                figures.append(
                    Figure(
                        f"PostgreSQL, batches of {size:,}",
                        "rows/s",
                        taken.of(STRANDLINE, "rows_s"),
                        taken.of(PLAIN, "rows_s"),
                        PLAIN,
                        ratio_at_least(1.5),
                        "upserts, half of them updates; a commit for each batch; fsync=off",
                    )
                )
    finally:
        sink.close()
    return figures


def _plain_loop(connection: psycopg.Connection[Any]) -> Callable[[RecordList], None]:
    """Return the loop that one writes by hand: an upsert for each row of a batch, and a commit."""
    statement = (
        "insert into plain (id, customer, product, units, price) values (%s, %s, %s, %s, %s) on conflict (id) do update"
        " set customer = excluded.customer, product = excluded.product, units = excluded.units, price = excluded.price"
    )

    def write(batch: RecordList) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(statement, [tuple(value[name] for name in _COLUMNS) for value in batch.values])
        connection.commit()

    return write


def _rows_round(
    connection: psycopg.Connection[Any], writer: Writer, offsets: Iterator[int], count: int, size: int
) -> dict[str, float]:
    """Insert `count` rows and update each, from an empty table on."""
    name = sql.Identifier(writer.table)
    if connection.execute("select to_regclass(%s)", (writer.table,)).fetchone() != (None,):
        connection.execute(sql.SQL("truncate {}").format(name))
    connection.commit()
    values = [*_orders(count, 0), *_orders(count, 1)]
    records = [_record(writer.table, next(offsets), each, value_schema=_SCHEMA) for each in values]
    batches = [RecordList(records[at : at + size]) for at in range(0, len(records), size)]
    began_s = time.monotonic()
    for each in batches:
        writer.write(each)
    seconds = time.monotonic() - began_s
    found = connection.execute(sql.SQL("select count(*), sum(units) from {}").format(name)).fetchone()
    connection.commit()
    assert found == (count, sum(each["units"] for each in values[count:])), f"{writer.name} wrote other rows: {found}"
    return {"rows_s": len(records) / seconds}


def _orders(count: int, turn: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "id": number,
            "customer": f"customer-{number % 1000}",
            "product": f"SKU-{(number * 7919 + turn) % 10_000:04}",
            "units": (number + turn) % 10 + 1,
            "price": (number * 31 + turn) % 50_000 / 100,
        }


def _postgres_worker(stage: Stage, broker: Broker, worker: ConnectProcess, server: PostgresServer) -> list[Figure]:
    count = stage.scaled(ROWS * 4, 2_000)
    _fill(broker, "orders", (json.dumps(each).encode() for each in _orders(count, 0)))
    samples = []
    for number in range(stage.scaled(3, 1)):
        dsn = server.fresh_database()
        config = {"connector.class": "PostgresSink", "topics": "orders", "connection.url": dsn, **_KEYS, **_CONVERTERS}
        with psycopg.connect(dsn, autocommit=True) as connection:
            samples.append(count / _transfer(worker, f"rows-{number}", config, lambda: _has_rows(connection, count)))
    note = "JSON without schema, one task, its start included"
    return [Figure("PostgreSQL, topic to table through a worker", "rows/s", samples, note=note)]


def _has_rows(connection: psycopg.Connection[Any], count: int) -> bool:
    if connection.execute("select to_regclass('orders')").fetchone() == (None,):
        return False
    return connection.execute("select count(*) from orders").fetchone() == (count,)


# Parquet


def _parquet(stage: Stage) -> list[Figure]:
    texts = {label: _texts(size) for label, size in SIZES.items()}
    rows = [{**each, "product": text} for each, text in zip(_orders(1000, 0), _texts(60), strict=True)]
    kinds: dict[str, tuple[Sequence[Any], int]] = {
        label: (found, size) for (label, found), size in zip(texts.items(), SIZES.values(), strict=True)
    }
    kinds["objects of 5 fields, 100 B"] = (rows, 100)
    figures = []
    for label, (pool, size) in kinds.items():
        count = _whole_objects(stage.scaled(PARQUET_BYTES // size, FLUSH_RECORDS))
        samples = []
        for number in range(1 + stage.rounds):
            seconds = _parquet_round(stage.root / "parquet", pool, count)
            stage.say(f"  round {number} parquet, {label}  {count * size / MB / seconds:.4g} MB/s")
            samples.append(count * size / MB / seconds)
        target = None if "fields" in label else at_least(100.0)
        note = "a local directory, snappy, objects of 20,000 records"
        figures.append(Figure(f"Parquet, {label}", "MB/s of values", samples[1:], target=target, note=note))
    return figures


def _parquet_round(directory: Path, pool: Sequence[Any], count: int) -> float:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    sink = ObjectSink(ObjectSink.Config(_parquet_config(directory)))
    sink.open()
    batches = [
        RecordList(_record("values", at + each, pool[each % len(pool)]) for each in range(READ_RECORDS))
        for at in range(0, count, READ_RECORDS)
    ]
    began_s = time.monotonic()
    for each in batches:
        sink.write(each)
        sink.flush()
    seconds = time.monotonic() - began_s
    sink.close()
    assert _objects(directory) == count // FLUSH_RECORDS, "objects are missing"
    return seconds


def _parquet_worker(stage: Stage, broker: Broker, worker: ConnectProcess) -> list[Figure]:
    figures = []
    for label, size in SIZES.items():
        count = _whole_objects(stage.scaled(PARQUET_BYTES // size, FLUSH_RECORDS))
        topic = f"values-{size}"
        _fill(broker, topic, (each.encode() for each in itertools.islice(itertools.cycle(_texts(size)), count)))
        samples = []
        for number in range(stage.scaled(3, 1)):
            directory = stage.root / f"{topic}-{number}"
            directory.mkdir()
            strings = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
            config = {"connector.class": "ObjectSink", "topics": topic, **_parquet_config(directory), **strings}
            wanted = count // FLUSH_RECORDS
            seconds = _transfer(worker, f"{topic}-{number}", config, lambda: _objects(directory) >= wanted)  # noqa: B023
            samples.append(count * size / MB / seconds)
            shutil.rmtree(directory)
        figures.append(
            Figure(
                f"Parquet, topic to directory through a worker, {label}",
                "MB/s of values",
                samples,
                note="one partition, one task, its start included",
            )
        )
    return figures


def _parquet_config(directory: Path) -> dict[str, str]:
    return {"store.url": directory.as_uri(), "flush.size": str(FLUSH_RECORDS)}


def _whole_objects(count: int) -> int:
    return max(1, count // FLUSH_RECORDS) * FLUSH_RECORDS


def _objects(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.parquet"))


def _texts(size: int) -> list[str]:
    """Return texts that compress a little, as values do."""
    rng = random.Random(size)
    return [base64.b64encode(rng.randbytes(size)).decode()[:size] for _ in range(1000)]


# What both need


def _record(topic: str, offset: int, value: Any, **more: Any) -> SinkRecord:
    return SinkRecord(topic, value, None, 0, offset=offset, original_topic=topic, original_partition=0, **more)


def _fill(broker: Broker, topic: str, values: Iterator[bytes]) -> None:
    broker.create_topic(topic, 1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    )
    for each in values:
        while True:
            try:
                producer.produce(topic, each)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0, f"{topic} could not be filled"


def _transfer(worker: ConnectProcess, name: str, config: Mapping[str, str], is_done: Callable[[], bool]) -> float:
    """Run a connector until it is done; return the seconds from its creation on."""
    began_s = time.monotonic()
    worker.create(name, {**config, "tasks.max": "1"})
    try:
        while not is_done():
            assert time.monotonic() - began_s < WAIT_S, f"{name} was not done in {WAIT_S:.0f} s"
            time.sleep(0.02)
        return time.monotonic() - began_s
    finally:
        with contextlib.suppress(OSError):
            worker.ask("DELETE", f"/connectors/{name}")
