"""A topic into objects of an S3 server and back into a topic, while the server and the worker are killed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.connect.running import PLUGINS, wait_until
from tests.connect.s3_server import BUILDS_WITHIN_S, S3Server, needs_s3
from tests.connect.sink_records import batch, opened, record
from tests.connect.worker_processes import WorkerProcess

import strandline
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sinks.lake.objects import ObjectSink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILDS_WITHIN_S + 900)]
COUNT = 3000
FLUSH = 100
WAIT_S = 200.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    needs_s3()
    made = S3Server(tmp_path / "s3")
    try:
        yield made.start()
    finally:
        made.kill()


class Returned:
    """Numbers of the topic `back`, in the order of their offsets."""

    def __init__(self, bootstrap: str) -> None:
        self.numbers: list[int] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        )
        self._consumer.assign([TopicPartition("back", 0, OFFSET_BEGINNING)])

    def read(self) -> int:
        for each in self._consumer.consume(1000, 0.2):
            if each.error() is None and (value := each.value()) is not None:
                self.numbers.append(json.loads(value)["n"])
        return len(self.numbers)

    def close(self) -> None:
        self._consumer.close()


def test_each_record_goes_out_and_comes_back_once(server: S3Server, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}))
        for topic in ("numbers", "back"):
            log.create_topic(topic, 1)
        returned = Returned(log.bootstrap)
        stack.callback(returned.close)

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(log.bootstrap, tmp_path / "worker.log", session_timeout_ms="6000"))

        worker = start()
        create(worker, "count", f"{PLUGINS}:Parts", topic="numbers", count=str(COUNT), pause="0.05")
        stored = {**server.properties, "format": "json", "errors.retry.delay.max.ms": "500"}
        create(worker, "out", "ObjectSink", topics="numbers", **{"flush.size": str(FLUSH)}, **stored)
        create(worker, "back", "ObjectSource", topic="back", **{"poll.interval.ms": "200"}, **stored)
        for part, victims in enumerate((["server"], ["worker"], ["server", "worker"]), 1):
            wait_until(lambda: returned.read() >= part * COUNT // 5, f"part {part} comes back", WAIT_S)  # noqa: B023
            if "server" in victims:
                server.kill()
            if "worker" in victims:
                worker.kill()
                worker = start()
            if "server" in victims:
                server.start()
        wait_until(lambda: returned.read() >= COUNT, "everything comes back", WAIT_S)
        assert returned.numbers == list(range(COUNT))


def create(worker: WorkerProcess, name: str, class_name: str, **config: Any) -> None:
    worker.create(name, **{"connector.class": class_name, **config})


def store_two(sink: Any) -> None:
    """Write as many records as an object has."""
    sink.write(batch(record(0, {"n": 0}), record(1, {"n": 1})))
    sink.flush()


def test_a_server_that_is_away_is_waited_for_and_a_wrong_key_is_not(server: S3Server) -> None:
    settings = {**server.properties, "name": "out", "format": "json", "flush.size": "2"}
    sink = opened(ObjectSink, settings)
    server.kill()
    with pytest.raises(RetriableFailure):
        store_two(sink)
    server.start()
    store_two(sink)
    wrong = opened(ObjectSink, settings | {"store.secret.access.key": "wrong"})
    with pytest.raises(ConnectFailed) as failure:
        store_two(wrong)
    assert not isinstance(failure.value, RetriableFailure)
