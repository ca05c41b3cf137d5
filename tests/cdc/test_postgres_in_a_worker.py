"""The source in a worker with a registry: schemas that break a contract, rows that are bad, and rows that are large."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs lack some
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from psycopg.conninfo import conninfo_to_dict
from tests.cdc.postgres_capture import postgres, properties_of, run_sql
from tests.connect.running import RunningWorker, wait_until
from tests.registry.running_registry import RunningRegistry, running_registry

import strandline
from strandline.connect.convert.avro_converter import AvroConverter
from strandline.local.embedded_broker import EmbeddedBroker

__all__ = ["postgres"]
CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
BROKER = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}
ROW_BYTES = 100_000_000
LIMIT = str(2 * ROW_BYTES)


class Desk:
    """A broker, a registry and a worker."""

    def __init__(self, log: EmbeddedBroker, registry: RunningRegistry, worker: RunningWorker) -> None:
        self.log, self.registry, self.worker = log, registry, worker
        self.made: list[str] = []

    def capture(self, dsn: str, name: str = "", **settings: str) -> str:
        """Make a connector whose topics begin with its name, and return the name."""
        name = name or str(conninfo_to_dict(dsn)["dbname"])
        given = properties_of(dsn, **{"errors_retry_delay_max_ms": "200", **settings})
        self.worker.create(name, CONNECTOR, given | {"topic.prefix": name})
        self.made.append(name)
        return name

    def drop(self) -> None:
        """Delete the connectors of a test; the slots of its database are dropped afterwards."""
        for name in self.made:
            self.worker.ask(self.worker.herder.delete(name))
        self.made.clear()

    def avro(self) -> dict[str, str]:
        return {
            f"{side}.converter{rest}": value
            for side in ("key", "value")
            for rest, value in (
                ("", "io.confluent.connect.avro.AvroConverter"),
                (".schema.registry.url", self.registry.url),
            )
        }

    def trace(self, name: str) -> str:
        status = self.worker.status(name)
        return "" if status is None or 0 not in status.tasks else status.tasks[0].trace or ""

    def values(self, topic: str) -> list[bytes]:
        """Return the committed values of a topic, without tombstones."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.log.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": LIMIT,
                "receive.message.max.bytes": str(3 * ROW_BYTES),
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        try:
            while (each := consumer.poll(10)) is not None and each.error() is None:
                found.append(each.value())
        finally:
            consumer.close()
        return [each for each in found if each is not None]


@pytest.fixture
def desk(shared: Desk, postgres: str) -> Iterator[Desk]:
    yield shared
    shared.drop()


@pytest.fixture(scope="module")
def shared() -> Iterator[Desk]:
    with (
        strandline.embedded(properties=BROKER | {"socket.request.max.bytes": LIMIT}) as log,
        running_registry(log.bootstrap) as registry,
        RunningWorker(log.bootstrap) as worker,
    ):
        yield Desk(log, registry, worker.lead())


def rows(desk: Desk, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in desk.values(topic)]


def test_a_schema_that_breaks_its_contract_is_waited_for(desk: Desk, postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, v text not null)", "insert into t values (1, 'one')")
    name = desk.capture(postgres, **{key.replace(".", "_"): value for key, value in desk.avro().items()})
    topic = f"{name}.public.t"
    subject = f"{topic}-value"
    wait_until(lambda: len(desk.values(topic)) == 1, f"the snapshot: {desk.trace(name)}")
    assert desk.registry.ask("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})[0] == 200
    run_sql(postgres, "insert into t values (2, 'two')")
    wait_until(lambda: len(desk.values(topic)) == 2, f"the stream: {desk.trace(name)}")
    run_sql(
        postgres,
        "begin; alter table t add n int; update t set n = 0; alter table t alter n set not null; commit",
        "insert into t values (3, 'three', 3)",
    )
    wait_until(lambda: "would break its contract" in desk.trace(name), f"the registry refuses: {desk.trace(name)}")
    told = desk.trace(name)
    assert subject in told
    # Where the two schemas differ, and the one that readers have.
    assert "description:" in told
    assert "oldSchemaVersion: 1" in told
    assert "holds its place" in told
    assert len(desk.registry.ask("GET", f"/subjects/{subject}/versions")[1]) == 1
    assert len(desk.values(topic)) == 2
    assert desk.registry.ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})[0] == 200
    wait_until(lambda: len(desk.values(topic)) == 5, f"it goes on by itself: {desk.trace(name)}")
    converter = AvroConverter(AvroConverter.Config({"schema.registry.url": desk.registry.url}), is_key=False)
    found = [converter.to_connect(topic, each)[1] for each in desk.values(topic)]
    converter.close()
    assert [(each["op"], each["after"]["id"], each["after"].get("n")) for each in found] == [
        ("r", 1, None),
        ("c", 2, None),
        ("u", 1, 0),
        ("u", 2, 0),
        ("c", 3, 3),
    ]


@pytest.mark.slow
def test_rows_that_cannot_be_converted_stop_the_task_or_are_dead_letters(desk: Desk, postgres: str) -> None:
    run_sql(
        postgres,
        "create table t (id int primary key, n numeric(5,2) not null)",
        "insert into t values (1, 1), (2, 'NaN'), (3, 3)",
    )
    name = desk.capture(postgres)
    assert "Column n holds NaN" in desk.worker.wait_for(name, "FAILED")
    dead = f"{name}.dead"
    changes = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    desk.worker.ask(desk.worker.herder.patch_config(name, changes))
    topic = f"{name}.public.t"
    wait_until(lambda: len(desk.values(topic)) == 2, f"the snapshot: {desk.trace(name)}")
    run_sql(postgres, "insert into t values (4, 'NaN'), (5, 5)")
    wait_until(lambda: len(rows(desk, topic)) == 3, f"the stream: {desk.trace(name)}")
    assert [each["after"]["id"] for each in rows(desk, topic)] == [1, 3, 5]
    letters = rows(desk, dead)
    assert [(each["op"], json.loads(each["after"])) for each in letters] == [
        ("r", {"id": "2", "n": "NaN"}),
        ("c", {"id": "4", "n": "NaN"}),
    ]
    assert all("holds NaN" in each["error"] and each["table"] == "public.t" for each in letters)


@pytest.mark.slow
def test_a_row_that_is_too_large_holds_the_place_until_it_may_pass(desk: Desk, postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)", "insert into t values (1, 'one')")
    name = desk.capture(postgres)
    topic = f"{name}.public.t"
    wait_until(lambda: len(desk.values(topic)) == 1, f"the snapshot: {desk.trace(name)}")
    run_sql(postgres, f"insert into t values (2, repeat('x', {ROW_BYTES}))", "insert into t values (3, 'three')")
    told = desk.worker.wait_for(name, "FAILED")
    assert topic in told
    assert "producer.override.message.max.bytes" in told
    assert len(desk.values(topic)) == 1
    admin = AdminClient({"bootstrap.servers": desk.log.bootstrap})
    entry = ConfigEntry("max.message.bytes", LIMIT, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for each in admin.incremental_alter_configs([resource]).values():
        each.result(30)
    changes = {"producer.override.message.max.bytes": LIMIT}
    desk.worker.ask(desk.worker.herder.patch_config(name, changes))
    wait_until(lambda: len(desk.values(topic)) == 3, f"all rows come: {desk.trace(name)}", 200)
    assert [len(each["after"]["v"]) for each in rows(desk, topic)] == [3, ROW_BYTES, 5]
