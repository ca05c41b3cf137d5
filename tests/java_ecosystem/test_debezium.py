"""Debezium inside of Kafka Connect, exactly once, while its worker and brokers are killed and a writer never stops."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.connect.postgres_server import PostgresOnTcp
from tests.connect.running import wait_until
from tests.java_ecosystem.committed import CommittedRecords
from tests.java_ecosystem.java_process import WAIT_S, KafkaConnect, debezium_plugins

import strandline

TOPIC = "db.public.t"
BROKERS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}
ROWS = 3
"""Rows of a transaction."""


@contextlib.contextmanager
def writing(dsn: str) -> Iterator[list[int]]:
    """Write transactions without a long pause; yield the numbers of those that are committed."""
    stop = threading.Event()
    numbers: list[int] = []

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stop.wait(0.02):
                number = len(numbers)
                connection.execute("insert into t select %s, part from generate_series(1, %s) part", (number, ROWS))
                numbers.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield numbers
    finally:
        stop.set()
        writer.join()


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_each_row_comes_once_and_in_order_though_worker_and_brokers_are_killed(tmp_path: Path) -> None:
    try:
        plugins = debezium_plugins()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with contextlib.ExitStack() as stack:
        server = PostgresOnTcp()
        stack.callback(server.remove)
        dsn = server.start().fresh_database()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table t (id int, part int, primary key (id, part))")
        cluster = stack.enter_context(strandline.embedded(nodes=3, properties=BROKERS))
        cluster.create_topic(TOPIC, 1, min_insync_replicas=2)
        found = CommittedRecords(cluster.bootstrap, TOPIC, 1)
        stack.callback(found.close)
        worker = KafkaConnect(cluster.bootstrap, tmp_path / "connect", plugins, replicas=3)
        stack.enter_context(worker)
        with writing(dsn) as numbers:

            def goes_on(after: str) -> None:
                """Wait for rows that were written from now on."""
                due = (len(numbers) + 20) * ROWS
                wait_until(lambda: found.read() >= due, f"rows come {after}; {worker.states('capture')}", WAIT_S)

            worker.create("capture", capture(server, dsn))
            goes_on("at the start")
            worker.kill()
            worker.start()
            goes_on("after the worker was killed")
            killed = cluster.leader_of(TOPIC)
            cluster.kill(killed)
            goes_on("after the topic's leader was killed")
            worker.kill()
            cluster.start(killed)
            worker.start()
            goes_on("after the worker was killed again")
            killed = cluster.leader_of("connect-offset")
            cluster.kill(killed)
            worker.kill()
            worker.start()
            goes_on("after a broker and the worker were killed together")
        wait_until(lambda: found.read() >= len(numbers) * ROWS, "all rows come", WAIT_S)
        events = [json.loads(each) for each in found.values[0]]
        assert [(each["after"]["id"], each["after"]["part"]) for each in events] == [
            (number, part) for number in numbers for part in range(1, ROWS + 1)
        ]
        assert {each["op"] for each in events[-len(events) // 2 :]} == {"c"}
        assert worker.states("capture") == ["RUNNING", "RUNNING"]


def capture(server: PostgresOnTcp, dsn: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "exactly.once.support": "required",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]),
        "topic.prefix": "db",
        "table.include.list": "public.t",
        "plugin.name": "pgoutput",
        "slot.drop.on.stop": "false",
        "poll.interval.ms": "50",
    }
