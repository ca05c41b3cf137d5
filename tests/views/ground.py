"""What tests of views stand on: a feed with all that a log has, and the state that a stock consumer folds it to."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.spark.source_ground import WAIT_S, client_of, end_of, wait_until_decided

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.views import View, define
from strandline.views import open as open_view

SCHEMA = "customer STRING, total DOUBLE, visits BIGINT"
COLUMNS = ("customer", "total", "visits")
PARTITIONS = 3

Row = tuple[str, float | None, int | None]
State = dict[tuple[int, str], tuple[float | None, int | None]]


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class Feed:
    """A compacted topic of totals by customer, and who writes it."""

    def __init__(
        self, broker: EmbeddedBroker, topic: str, *, partitions: int = PARTITIONS, **settings: str | int
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.partitions = partitions
        broker.create_topic(topic, partitions, **({"cleanup_policy": "compact"} | settings))
        self._plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        self._transactional: list[Producer] = []

    def put(self, customer: str, total: float | None, *, partition: int = -1, time_ms: int = 0) -> None:
        """None takes the customer away."""
        value = None if total is None else json.dumps({"total": total, "visits": int(total)})
        self._plain.produce(self.topic, key=customer, value=value, partition=partition, timestamp=time_ms)

    def flush(self) -> None:
        assert self._plain.flush(WAIT_S) == 0

    def random(self, rng: random.Random, *, transactions: int, keys: int = 40) -> None:
        """Transactions that overlap, some of them aborted, plain records and tombstones between them."""
        while len(self._transactional) < 2:
            name = f"{self.topic}-{len(self._transactional)}"
            producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": name, "log_level": 0})
            producer.init_transactions(WAIT_S)
            self._transactional.append(producer)
        is_open = [False, False]
        while transactions > 0 or any(is_open):
            which = rng.randrange(3)
            if which == 2:
                self._some(self._plain, rng, keys)
                self.flush()
                continue
            producer = self._transactional[which]
            if not is_open[which] and transactions > 0:
                transactions -= 1
                producer.begin_transaction()
                is_open[which] = True
            if is_open[which]:
                self._some(producer, rng, keys)
                assert producer.flush(WAIT_S) == 0
                if rng.random() < 0.6:
                    (producer.abort_transaction if rng.random() < 0.4 else producer.commit_transaction)(WAIT_S)
                    is_open[which] = False
        self.settle()

    def _some(self, producer: Producer, rng: random.Random, keys: int) -> None:
        for _ in range(rng.choice((1, 3, 20))):
            key = rng.randrange(keys)
            visits = rng.randrange(1000)
            value = None if rng.random() < 0.2 else json.dumps({"total": visits / 4, "visits": visits})
            producer.produce(self.topic, key=f"c{key}", value=value, partition=key % self.partitions)

    def settle(self) -> None:
        """Until every transaction is decided in every partition."""
        wait_until_decided(self.broker.bootstrap, self.topic)
        deadline = time.monotonic() + WAIT_S
        while self.ends(committed=True) != self.ends(committed=False):
            assert time.monotonic() < deadline, "a transaction stays open"

    def ends(self, *, committed: bool = True) -> dict[int, int]:
        with client_of(self.broker.bootstrap) as client:
            return {
                each: end_of(client, self.topic, partition=each, committed=committed) for each in range(self.partitions)
            }

    def view(self, directory: Path, **more: Any) -> View:
        definition = define("totals", self.topic, schema=SCHEMA, key=("customer",))
        return open_view(definition, bootstrap=self.broker.bootstrap, directory=directory, **more)

    # What a stock consumer makes of it

    def records(self) -> dict[int, list[Record]]:
        """What is committed, in each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": f"{self.topic}-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        found: dict[int, list[Record]] = {each: [] for each in range(self.partitions)}
        at_end: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        try:
            consumer.assign([TopicPartition(self.topic, each, 0) for each in found])
            while len(at_end) < self.partitions:
                assert time.monotonic() < deadline, f"{self.topic} has no end"
                for message in consumer.consume(500, 0.05):
                    if message.error() is not None:
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        at_end.add(message.partition())
                    else:
                        record = Record(message.offset(), message.key(), message.value())
                        found[message.partition()].append(record)
        finally:
            consumer.close()
        return found

    def rows(self, *, below: Mapping[int, int] | None = None) -> list[Row]:
        return folded(self.records(), below=below)

    # Topics

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        admin.delete_topics([self.topic])[self.topic].result()


def folded(records: Mapping[int, list[Record]], *, below: Mapping[int, int] | None = None) -> list[Row]:
    """The newest state of every key, in plain Python; `below` leaves out what came later."""
    state: State = {}
    for partition, seen in records.items():
        for record in seen:
            if below is not None and record.offset >= below[partition]:
                break
            key = (partition, (record.key or b"").decode())
            state.pop(key, None)
            if record.value is not None:
                told = json.loads(record.value)
                state[key] = (told["total"], told["visits"])
    return sorted((customer, *row) for (_, customer), row in state.items())


def rows_of(view: View, **more: Any) -> list[Row]:
    return sorted(view.query(f"select {', '.join(COLUMNS)} from totals", **more).rows)


def plain(name: str) -> str:
    """A name for SQL."""
    return re.sub(r"\W", "_", name)
