"""What tests of the sink stand on: rows, what a reader sees, and what the coordinator knows. No Spark."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import confluent_kafka
import pyarrow as pa

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.list_sinks_response import ListSinksResponse
from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.spark.sink import driver
from strandline.spark.sink.commit_message import TaskWritten
from strandline.spark.sink.options import SinkOptions, parse_options
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task

WAIT_S = 60.0


def options_for(bootstrap: str, topic: str | None = None, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, **more}
    return parse_options(given | ({} if topic is None else {"topic": topic}))


def rows(values: Iterable[str], **columns: Any) -> pa.RecordBatch:
    encoded = pa.array([value.encode() for value in values], pa.binary())
    return pa.record_batch({"value": encoded} | columns)


def fresh_sink() -> str:
    return str(uuid.uuid4())


def consume(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[confluent_kafka.Message]:
    """All records of a topic from its beginning to its end, as a stock consumer sees them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        told = consumer.list_topics(topic, timeout=WAIT_S).topics[topic]
        partitions = told.partitions
        assert partitions, f"{topic}: {told.error}"
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
        messages: list[confluent_kafka.Message] = []
        ended: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} has no end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise confluent_kafka.KafkaException(message.error())
        return messages
    finally:
        consumer.close()


def counts(bootstrap: str, topic: str) -> Counter[str]:
    """How often each value is there for a reader of committed records."""
    return Counter(message.value().decode() for message in consume(bootstrap, topic))


def transactions(bootstrap: str, sink_id: str = "") -> dict[str, str]:
    """The state of each transactional id that begins with that of the sink."""
    client = ClusterClient(ClientSettings(bootstrap))
    try:
        answer = client.ask_any(ListTransactionsRequest(), ListTransactionsResponse)
        return {
            each.transactional_id: each.transaction_state
            for each in answer.transaction_states
            if each.transactional_id.startswith(f"__strandline.sink.{sink_id}")
        }
    finally:
        client.close()


def sinks(bootstrap: str) -> dict[str, int]:
    """The last batch of each sink that the broker remembers."""
    client = ClusterClient(ClientSettings(bootstrap))
    try:
        answer = client.ask_any(ListSinksRequest(), ListSinksResponse)
        return {each.sink_id: each.last_batch_id for each in answer.sinks}
    finally:
        client.close()


def note(bootstrap: str, sink_id: str) -> bytes:
    """What is kept with the last batch of a sink, on a cluster of one node."""
    client = ClusterClient(ClientSettings(bootstrap))
    try:
        request = ListSinksRequest(sink_ids=[sink_id], include_notes=True)
        (sink,) = client.ask_any(request, ListSinksResponse).sinks
        return bytes(sink.note)
    finally:
        client.close()


def until(what: str, check: Callable[[], bool]) -> None:
    """Wait for something that happens by itself."""
    deadline = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(0.05)


def once(*values: str) -> Counter[str]:
    return Counter(dict.fromkeys(values, 1))


class Query:
    """A sink, the options of its query and one worker."""

    _pools: ClassVar[list[Pool]] = []

    def __init__(self, options: SinkOptions, *, raises_epochs: bool = True) -> None:
        self.options = options
        self.sink_id = fresh_sink()
        self.pool = Pool()
        self._pools.append(self.pool)
        self.pool.cluster(options).raises_epochs &= raises_epochs

    def task(self, batch: int, part: int, values: list[str]) -> TaskWritten:
        return write_task(self.pool, self.options, Task(self.sink_id, batch, part), [rows(values)] if values else [])

    def commit(self, batch: int, *messages: TaskWritten) -> None:
        driver.commit(self.pool.cluster(self.options), messages, batch)

    @classmethod
    def close_all(cls) -> None:
        """The workers of all queries, behind a test."""
        while cls._pools:
            cls._pools.pop().close()
