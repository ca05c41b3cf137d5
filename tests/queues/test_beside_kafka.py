"""Our share consumer and the commands for queues are clients and nothing more: they work with Apache Kafka, too."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from bench.brokers import Broker
from tests.cli.conftest import CommandLine
from tests.clients.kafka_server import kafka
from tests.queues.conftest import EARLIEST, eventually, write

from strandline import queue

__all__ = ["kafka"]

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


def test_a_worker_at_apache_kafka(kafka: Broker) -> None:
    kafka.create_topic("tasks", 2)
    names = [b"task %d" % number for number in range(100)]
    write(kafka.bootstrap, "tasks", names)
    seen: list[tuple[Any, int]] = []
    lock = threading.Lock()

    def handle(task: queue.QueueTask) -> None:
        with lock:
            seen.append((task.value, task.attempt))
        if task.value == b"task 7" and task.attempt == 1:
            raise queue.Retry("again")
        if task.value == b"task 8":
            raise queue.Reject("never")

    cli = CommandLine(kafka.bootstrap)
    with queue.worker(kafka.bootstrap, "workers", "tasks", handle, group_settings=EARLIEST) as worker:
        eventually(lambda: worker.counts.accepted == 99, "all but one are done")
        (listed,) = cli.ok("queue", "list", "--json").objects
        assert (listed["group"], listed["state"], listed["members"]) == ("workers", "Stable", 1)
        rows = cli.ok("queue", "lag", "workers", "--json").objects
        assert {row["acquired"] for row in rows} == {None}, "Kafka does not tell what members hold"
        assert cli.run("queue", "why", "workers", "tasks-0@0").status == 1
    assert worker.counts.lost == 0
    assert sorted(value for value, _ in seen) == sorted([*names, b"task 7"])
    assert (b"task 7", 2) in seen
