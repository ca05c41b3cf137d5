"""Connectors that leak: they are named, the worker starts again at its limits, and others lose and double nothing."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.cli.conftest import CommandLine
from tests.connect.plugins import Leaking
from tests.connect.running import RunningWorker, wait_until
from tests.connect.worker_processes import WorkerProcess

import strandline
from strandline.connect.http.metrics import metrics_text
from strandline.local.embedded_broker import EmbeddedBroker

QUICK = {"errors_retry_delay_max_ms": "100"}


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def values_of(log: EmbeddedBroker, topic: str) -> Counter[int]:
    """Count the committed values of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": "values",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: Counter[int] = Counter()
    try:
        while (each := consumer.poll(30)) is not None and each.error() is None:
            value = each.value()
            assert value is not None
            found[json.loads(value)] += 1
    finally:
        consumer.close()
    return found


def test_a_connector_that_leaves_threads_and_files_is_named(
    log: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        with RunningWorker(log.bootstrap, group_id="named") as worker:
            worker.lead().create("good", "Counter", topic="named-good", count="100000", pause="0.01")
            worker.wait_for("good", "RUNNING")
            worker.create("leaky", "Leaking", topic="named-leaky", **QUICK)
            wait_until(
                lambda: {("leaky", "threads"), ("leaky", "files")} <= set(worker.worker.leaks.left), "it is named"
            )
            assert {connector for connector, _ in worker.worker.leaks.left} == {"leaky"}
            assert 'strandline_connect_left_behind{connector="leaky",kind="threads"}' in metrics_text(worker.worker)
            assert any(
                re.search(r"connector leaky leaks: its last \d runs have left \d+ threads", each)
                for each in caplog.messages
            )
            worker.wait_for("good", "RUNNING")
            worker.ask(worker.herder.delete("leaky"))
            worker.create("tidy", "Leaking", topic="named-tidy", leaks="false", **QUICK)
            wait_until(lambda: Leaking.runs.get("named-tidy", 0) > 15, "it fails as often, and leaves nothing")
            assert {connector for connector, _ in worker.worker.leaks.left} == {"leaky"}
    finally:
        Leaking.ended.set()
        for _, file, _ in Leaking.left:
            os.close(file)
        Leaking.left.clear()


def resident(worker: WorkerProcess) -> int:
    with urllib.request.urlopen(f"{worker.url}/metrics", timeout=60) as answer:
        found = re.search(rb"^strandline_connect_worker_memory (\d+)", answer.read(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.slow
def test_a_worker_at_its_limit_starts_again_and_the_others_lose_and_double_nothing(
    log: EmbeddedBroker, tmp_path: Path
) -> None:
    count = 500
    with WorkerProcess(log.bootstrap, tmp_path / "first", group_id="limited") as first:
        limit = resident(first) + (150 << 20)
        assert first.stop() == 0
    settings = {"group_id": "limited", "worker_memory_bytes_max": str(limit)}
    with WorkerProcess(log.bootstrap, tmp_path / "log", **settings) as worker:
        plugin = "tests.connect.plugins"
        worker.create(
            "good", connector_class=f"{plugin}:Counter", topic="good", count=str(count), step="1", pause="0.02"
        )
        worker.create(
            "leaky", connector_class=f"{plugin}:Leaking", topic="leaky", megabytes="8", errors_retry_delay_max_ms="100"
        )
        pid = worker.pid
        for _ in range(2):
            # It starts again by itself, as the same process, and says where it is.
            worker.wait_ready()
        assert worker.pid == pid
        assert f"the worker is above worker.memory.bytes.max={limit}" in (tmp_path / "log").read_text()
        assert worker.ask("DELETE", "/connectors/leaky")[0] == 204
        wait_until(lambda: sum(values_of(log, "good").values()) >= count, "the other goes on to its end", 120)
    assert values_of(log, "good") == Counter(range(count))


@pytest.mark.slow
def test_a_worker_that_is_told_to_end_at_its_limit_does_not_start_again(log: EmbeddedBroker, tmp_path: Path) -> None:
    settings = {"group_id": "told", "worker_open_files_max": "300"}
    with WorkerProcess(log.bootstrap, tmp_path / "log", **settings) as worker:
        worker.create("bursting", connector_class="tests.connect.plugins:Bursting", topic="bursting", files="400")
        assert worker.wait_killed() == 0
    told = (tmp_path / "log").read_text()
    assert "the worker is above worker.open.files.max=300" in told
    assert told.count("the worker is above") == 1


def test_a_limit_below_what_a_worker_needs_is_refused(log: EmbeddedBroker) -> None:
    ended = CommandLine(log.bootstrap).run(
        "connect", "serve", "--listen", "127.0.0.1:0", "-X", "worker.memory.bytes.max=1"
    )
    assert ended.status == 1
    assert "though it runs nothing yet" in ended.stderr
