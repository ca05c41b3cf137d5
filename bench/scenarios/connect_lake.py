"""Topics into tables of Iceberg and Delta: `engine=spark` beside `engine=local`, through one worker, in turn.

The records of a round become readable at once, by the end of a transaction, when the connector has been running for a
while. So what is measured is reading, converting, writing and committing, without the start of Spark, which has a row
of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

from confluent_kafka import Producer
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from bench.brokers import STRANDLINE, Broker
from bench.connect_workers import ConnectProcess, our_worker
from bench.figures import Figure
from bench.measure import MB
from bench.stage import Stage

NAME = "connect-lake"
SUMMARY = "rows into tables of Iceberg and Delta by engine=spark beside engine=local"
ENGINES: Final = ("spark", "local")
ROWS: Final = 400_000
FIRST_ROWS: Final = 1_000
PARTITIONS: Final = 4
WAIT_S: Final = 600.0
_CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    broker = stage.start(STRANDLINE, settings={"group.initial.rebalance.delay.ms": "0"})
    topics = {f"{each}.storage.topic": f"lakes-{each}" for each in ("config", "offset", "status")}
    figures = []
    try:
        with our_worker(broker.bootstrap, stage.root, {"group.id": "lakes", **topics}) as worker:
            for kind in ("iceberg", "delta"):
                figures += _tables(stage, broker, worker, kind)
        return figures
    finally:
        stage.discard(broker)


def _tables(stage: Stage, broker: Broker, worker: ConnectProcess, kind: str) -> list[Figure]:
    rounds = stage.scaled(3, 1)
    count = stage.scaled(ROWS, 20_000)
    found: dict[str, dict[str, list[float]]] = {each: {"rows": [], "bytes": [], "start": []} for each in ENGINES}
    for number in range(rounds):
        for engine in ENGINES:
            name = f"{kind}-{engine}-{number}"
            _round(stage, broker, worker, name, count, found[engine])
            rows, size = found[engine]["rows"][-1], found[engine]["bytes"][-1]
            stage.say(f"  round {number} {name}  {rows:,.0f} rows/s, {size:.4g} MB/s")
    spark, local = (found[each] for each in ENGINES)
    note = "engine=spark with local[*], JSON without schema of 5 fields, one task, commit.interval.ms=1000"
    title = kind.capitalize()
    return [
        Figure(f"{title}, topic to table", "rows/s", spark["rows"], local["rows"], "engine=local", note=note),
        Figure(f"{title}, topic to table", "MB/s of values", spark["bytes"], local["bytes"], "engine=local"),
        Figure(f"{title}, config to first rows", "s", spark["start"], local["start"], "engine=local"),
    ]


def _round(
    stage: Stage, broker: Broker, worker: ConnectProcess, name: str, count: int, found: dict[str, list[float]]
) -> None:
    kind, engine, _ = name.split("-")
    broker.create_topic(name, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 300_000,
            "queue.buffering.max.messages": 200_000,
            "linger.ms": 20,
        }
    )
    producer.init_transactions(60)
    _produce(producer, name, 0, FIRST_ROWS)
    producer.commit_transaction(60)
    home = stage.root / name
    home.mkdir()
    rows_of = _counter(kind, home, name)
    began_s = time.monotonic()
    config = {"connector.class": f"{kind.capitalize()}Sink", "topics": name, "engine": engine, "tasks.max": "1"}
    worker.create(name, {**config, "commit.interval.ms": "1000", **_place(kind, home), **_CONVERTERS})
    try:
        found["start"].append(_wait_for(name, rows_of, FIRST_ROWS, began_s))
        size_bytes = _produce(producer, name, FIRST_ROWS, count)
        began_s = time.monotonic()
        producer.commit_transaction(60)
        seconds = _wait_for(name, rows_of, FIRST_ROWS + count, began_s)
    finally:
        _delete(worker, name)
    found["rows"].append(count / seconds)
    found["bytes"].append(size_bytes / MB / seconds)


def _delete(worker: ConnectProcess, name: str) -> None:
    """Remove a connector; a worker whose group rebalances does not answer at once."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            worker.ask("DELETE", f"/connectors/{name}")
            return
        except HTTPError as error:
            if error.code not in (409, 500, 503) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _produce(producer: Producer, topic: str, first: int, count: int) -> int:
    """Write records in a transaction that stays open. Return the bytes of their values."""
    producer.begin_transaction()
    size_bytes = 0
    for number in range(first, first + count):
        order = {
            "id": number,
            "customer": f"customer-{number % 1000}",
            "product": f"SKU-{number * 7919 % 10_000:04}",
            "units": number % 10 + 1,
            "price": number * 31 % 50_000 / 100 + 0.001,
        }
        value = json.dumps(order)
        size_bytes += len(value)
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0, f"{topic} could not be filled"
    return size_bytes


def _wait_for(name: str, rows_of: Callable[[], int], count: int, began_s: float) -> float:
    """Return the seconds until the table has all rows, and no other."""
    while True:
        rows, seconds = rows_of(), time.monotonic() - began_s
        assert rows <= count, f"{name} has {rows - count} rows too many"
        if rows == count:
            return seconds
        assert seconds < WAIT_S, f"{name} had {rows} of {count} rows after {WAIT_S:.0f} s"
        time.sleep(0.05)


def _place(kind: str, home: Path) -> Mapping[str, str]:
    if kind == "delta":
        return {"table.url": home.as_uri()}
    return {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{home}/catalog.db",
        "catalog.warehouse": (home / "tables").as_uri(),
    }


def _counter(kind: str, home: Path, topic: str) -> Callable[[], int]:
    """Return what counts the rows of the table, by what its commits say."""

    def of_delta() -> int:
        try:
            return int(DeltaTable((home / topic).as_uri()).count())
        except TableNotFoundError:
            return 0

    def of_iceberg() -> int:
        catalog = load_catalog(
            "default", **{key.removeprefix("catalog."): value for key, value in _place(kind, home).items()}
        )
        try:
            return int(catalog.load_table(f"default.{topic}").scan().count())
        except NoSuchTableError:
            return 0

    return of_delta if kind == "delta" else of_iceberg
