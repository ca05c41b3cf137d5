"""The weaker way: tasks that commit for themselves, for a broker that cannot decide a whole batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka as kafka
from tests.spark.sink_ground import counts, fresh_sink, options_for, rows, until

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.sink import driver
from strandline.spark.sink.commit_message import TaskWritten
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task


class Worker:
    """One that believes its broker has no request for a whole batch."""

    def __init__(self, options: SinkOptions, sink_id: str) -> None:
        self.options = options
        self.sink_id = sink_id
        self.pool = Pool()

    def task(self, batch: int, part: int, values: list[str]) -> TaskWritten:
        cluster = self.pool.cluster(self.options)
        cluster.commits_batches = False
        return write_task(self.pool, self.options, Task(self.sink_id, batch, part), [rows(values)])


@pytest.fixture
def workers(broker: EmbeddedBroker, topic: str) -> Iterator[tuple[Worker, Worker]]:
    broker.create_topic(topic, partitions=2)
    sink_id = fresh_sink()
    two = Worker(options_for(broker.bootstrap, topic), sink_id), Worker(options_for(broker.bootstrap, topic), sink_id)
    yield two
    for worker in two:
        worker.pool.close()


def test_a_task_that_is_run_again_writes_once(
    workers: tuple[Worker, Worker], broker: EmbeddedBroker, topic: str
) -> None:
    first, second = workers
    assert first.task(0, 0, ["a", "b"]).rows == 2
    assert second.task(0, 1, ["c"]).rows == 1
    # All of the batch again, in other workers: nothing is written.
    assert second.task(0, 0, ["a", "b"]).rows == 0
    assert first.task(0, 1, ["c"]).rows == 0
    assert first.task(1, 0, ["d"]).rows == 1
    assert counts(broker.bootstrap, topic) == dict.fromkeys("abcd", 1)


def test_what_an_attempt_left_open_is_ended_by_the_next(
    workers: tuple[Worker, Worker], broker: EmbeddedBroker, topic: str
) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield rows(["x" * 600_000])
        yield rows(["y" * 600_000])
        raise OSError("the rows end here")

    first, second = workers
    cluster = first.pool.cluster(first.options)
    cluster.commits_batches = False
    with pytest.raises(OSError, match="the rows end here"):
        write_task(first.pool, first.options, Task(first.sink_id, 0, 0), breaking())
    assert second.task(0, 0, ["a"]).rows == 1
    assert counts(broker.bootstrap, topic) == {"a": 1}


def test_the_driver_has_nothing_to_decide_and_says_so_once(
    workers: tuple[Worker, Worker], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _ = workers
    message = TaskWritten(first.sink_id, 1, None, is_decided=True, is_first=True)
    later = first.task(0, 0, ["a"])
    assert later.is_decided
    driver.commit(first.pool.cluster(first.options), [message, later], 0)
    driver.commit(first.pool.cluster(first.options), [first.task(1, 0, ["b"])], 1)
    assert capfd.readouterr().err.count(driver.WEAKER) == 1
    # A batch without any rows has nobody who decided.
    driver.commit(first.pool.cluster(first.options), [TaskWritten(first.sink_id, 0, None)], 2)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("raises_epochs", [True, False], ids=["v2", "v1"])
def test_apache_kafka_is_written_to_in_the_weaker_way(kafka: Broker, topic: str, raises_epochs: bool) -> None:
    options = options_for(kafka.bootstrap, topic)
    pools = Pool(), Pool()
    sink_id = fresh_sink()
    values = [f"{number}" for number in range(5000)]
    try:
        for pool, written in zip(pools, (5000, 0), strict=True):
            pool.cluster(options).raises_epochs &= raises_epochs
            message = write_task(pool, options, Task(sink_id, 0, 0), [rows(values[:3000]), rows(values[3000:])])
            assert (message.is_decided, message.rows) == (True, written)
        write_task(pools[1], options, Task(sink_id, 1, 0), [rows(["last"])])
        until("the markers", lambda: counts(kafka.bootstrap, topic) == dict.fromkeys([*values, "last"], 1))
    finally:
        for pool in pools:
            pool.close()
