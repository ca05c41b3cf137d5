"""Files, feeds and readers for tests that run pipelines."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.loading import load
from strandline.pipelines.run.running import Outcome, Runner, RunOptions
from strandline.pipelines.versions.version_store import Registry

PATIENCE_S = 240.0
"""Spark's first query on a busy machine takes a minute."""


@dataclass
class Ground:
    """One pipeline of one test; its name and its topics begin with the test's own word."""

    spark: SparkSession
    broker: EmbeddedBroker
    home: Path
    word: str
    said: list[str] = field(default_factory=list)

    def write(self, text: str) -> str:
        """The pipeline's file, with the test's word for `@`."""
        file = self.home / "shop.py"
        file.write_text(text.replace("@@", self.word))
        return str(file)

    def topic(self, name: str) -> str:
        return f"{self.word}.{name}"

    def feed(self, name: str, values: Iterable[Mapping[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for value in values:
            producer.produce(self.topic(name), value=json.dumps(value))
        assert producer.flush(30) == 0

    def registry(self) -> Registry:
        return Registry(self.broker.bootstrap).refresh()

    def runner(self, file: str, **options: Any) -> Runner:
        wanted = RunOptions(str(self.home / "checkpoints"), **options)
        return Runner(load(file), Registry(self.broker.bootstrap), wanted, tell=self.said.append)

    def once(self, file: str, **options: Any) -> Runner:
        runner = self.runner(file, once=True, **options)
        try:
            runner.claim()
            runner.plan(self.spark)
        except BaseException as error:
            runner.give_up(str(error))
            raise
        assert runner.run(threading.Event()) is Outcome.DONE
        return runner

    def records(self, name: str) -> list[tuple[str | None, Any]]:
        """Key and value of what a reader of committed records sees, partition by partition."""
        return read_all(self.broker.bootstrap, self.topic(name))


def read_all(bootstrap: str, topic: str) -> list[tuple[str | None, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found, open_ones = [], set(partitions)
        while open_ones:
            message = consumer.poll(30)
            assert message is not None, f"{topic} does not end"
            if message.error() is not None:
                open_ones.discard(message.partition())
                continue
            key, value = message.key(), message.value()
            found.append((None if key is None else key.decode(), None if value is None else json.loads(value)))
        return found
    finally:
        consumer.close()


class InThread:
    """A run that goes on beside the test."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.stop = threading.Event()
        self.ended: list[Outcome | BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended.append(self.runner.run(self.stop))
        except BaseException as error:
            self.ended.append(error)

    def join(self) -> Outcome | BaseException:
        self._thread.join(PATIENCE_S)
        assert self.ended, "the run did not end"
        return self.ended[0]


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.1)
