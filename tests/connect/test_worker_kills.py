"""Three workers, of which one after the other is killed: no record is lost, and none is doubled."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.connect.running import PLUGINS, wait_until
from tests.connect.worker_processes import WorkerProcess

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

TASKS = 6
WORKER = {
    "session_timeout_ms": "3000",
    "heartbeat_interval_ms": "300",
    "task_shutdown_graceful_timeout_ms": "500",
}
"""Short times, because the tests wait for sessions to end, for rebalances and for a task that hangs."""
BROKER = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


def everything_in(log: EmbeddedBroker, topic: str) -> Counter[tuple[bytes, int]]:
    """Count each record of a topic, by key and value."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": "everything",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Counter[tuple[bytes, int]] = Counter()
    consumer.subscribe([topic])
    ended: set[int] = set()

    def is_read() -> bool:
        for each in consumer.consume(1000, 0.2):
            if each.error() is None:
                found[each.key(), json.loads(each.value())["n"]] += 1
            else:
                ended.add(each.partition())
        return len(ended) == 3

    wait_until(is_read, "the topic is read to its end")
    consumer.close()
    return found


def rows_of(database: Path) -> Counter[tuple[str, int]]:
    if not database.exists():
        return Counter()
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
        try:
            return Counter(connection.execute("select part, n from numbers").fetchall())
        except sqlite3.OperationalError:
            return Counter()


def workers_of(asked: WorkerProcess) -> list[str]:
    """Return the worker of each task that runs."""
    return [*asked.running_on("count").values(), *asked.running_on("rows").values()]


def run_with_kills(tmp_path: Path, count: int, kills: int) -> None:
    database = tmp_path / "target.sqlite"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(strandline.embedded(properties=BROKER | {"num.partitions": "3"}))

        def start(*numbers: int) -> list[WorkerProcess]:
            started = [WorkerProcess(log.bootstrap, tmp_path / f"worker-{each}.log", **WORKER) for each in numbers]
            return [stack.enter_context(each) for each in started]

        log.create_topic("numbers", 3)
        workers = start(0, 1, 2)
        workers[0].create(
            "count",
            connector_class=f"{PLUGINS}:Parts",
            topic="numbers",
            count=str(count),
            step="5",
            pause="0.05",
            tasks_max=str(TASKS),
        )
        workers[0].create(
            "rows",
            connector_class="SqliteSink",
            topics="numbers",
            connection_url=str(database),
            insert_mode="insert",
            pk_mode="none",
            delete_enabled="false",
            tasks_max="3",
        )
        for number in range(kills):
            victim = workers[number % 3]
            survivor = workers[(number + 1) % 3]
            wait_until(lambda: len(set(workers_of(survivor))) == 3, f"tasks run on all workers before kill {number}")  # noqa: B023
            victim.kill()
            gone = victim.worker_id
            wait_until(
                lambda: len(on := workers_of(survivor)) == TASKS + 3 and gone not in on,  # noqa: B023
                f"tasks of the dead worker run elsewhere after kill {number}",
            )
            workers.remove(victim)
            if number + 1 < kills:
                workers[number % 3 : number % 3] = start(3 + number)
        expected = Counter({(str(part), each): 1 for part in range(TASKS) for each in range(count)})
        wait_until(lambda: rows_of(database).total() >= expected.total(), "all rows are there", 120)
        assert rows_of(database) == expected, "rows in the target: lost or doubled"
        in_topic = {
            (key.strip(b'"').decode(), number): times for (key, number), times in everything_in(log, "numbers").items()
        }
        assert in_topic == dict(expected), "records in the topic: lost or doubled"
        survivor.create("hangs", connector_class=f"{PLUGINS}:Hanging", topic="hangs")
        wait_until(lambda: len(survivor.running_on("hangs")) == 1, "a connector that hangs runs")
        assert [each.stop() for each in workers] == [0, 0], "workers end though a connector hangs"


def test_a_leader_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run_with_kills(tmp_path, count=150, kills=1)


@pytest.mark.slow
def test_a_worker_whose_only_broker_is_gone_still_ends(tmp_path: Path) -> None:
    with (
        strandline.embedded(properties=BROKER) as log,
        WorkerProcess(log.bootstrap, tmp_path / "worker.log", **WORKER) as worker,
    ):
        worker.create("count", connector_class=f"{PLUGINS}:Parts", topic="numbers", count="100000", pause="0.05")
        rows = {"connector_class": "SqliteSink", "connection_url": str(tmp_path / "rows"), "pk_mode": "none"}
        worker.create("rows", topics="numbers", delete_enabled="false", insert_mode="insert", **rows)
        wait_until(lambda: rows_of(tmp_path / "rows").total() > 0, "rows are copied")
        log.kill()
        # Supervisors of processes wait for 30 seconds before they kill.
        assert worker.stop(within_s=25) == 0


@pytest.mark.slow
def test_every_worker_is_killed_several_times(tmp_path: Path) -> None:
    run_with_kills(tmp_path, count=3000, kills=6)
