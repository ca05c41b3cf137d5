"""A topic that is a list, in one process: its writer fences, and its reader is late by chance."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Sequence
from typing import ClassVar

import pytest

from strandline.schemas import registry as registry_module
from strandline.schemas.records import SchemaRecord
from strandline.schemas.topic import OnRecords, OnTopicId, PreparedTopic, SchemaTopicFailed

LATE_S_MAX = 0.01


class ListTopic:
    def __init__(self, seed: int) -> None:
        self.log: list[SchemaRecord] = []
        self.topic_id = uuid.uuid4()
        self.epoch = 0
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.turns: list[int] = []
        """How many records each transaction had."""
        self.may_write = threading.Event()
        """Writers wait for it."""
        self.may_write.set()
        self.begun = 0
        """Transactions that were begun."""
        self.failures = 0
        """Transactions that fail from now on."""

    def make_again(self) -> None:
        with self.lock:
            self.log = []
            self.topic_id = uuid.uuid4()

    def use(self, monkeypatch: pytest.MonkeyPatch) -> ListTopic:
        """Have registries that are made from now on use this topic."""
        monkeypatch.setattr(ListWriter, "topic", self, raising=False)
        monkeypatch.setattr(LateReader, "topic", self, raising=False)
        monkeypatch.setattr(ListWatch, "made", [])
        monkeypatch.setattr(registry_module, "TopicWriter", ListWriter)
        monkeypatch.setattr(registry_module, "TopicReader", LateReader)
        monkeypatch.setattr(registry_module, "TopicWatch", ListWatch)
        monkeypatch.setattr(registry_module, "prepare_topic", lambda *given: PreparedTopic(self.topic_id, 0))
        return self


class ListWriter:
    topic: ListTopic

    def __init__(self, bootstrap: str, topic: str, topic_id: uuid.UUID, group: str, timeout_s: float) -> None:
        with self.topic.lock:
            self.topic.epoch += 1
            self._epoch = self.topic.epoch

    def write(self, records: Sequence[SchemaRecord]) -> int:
        self.topic.begun += 1
        assert self.topic.may_write.wait(60)
        with self.topic.lock:
            if self._epoch != self.topic.epoch:
                raise SchemaTopicFailed("fenced")
            if self.topic.failures:
                self.topic.failures -= 1
                raise SchemaTopicFailed("failed, as the test wants it")
            self.topic.log += records
            self.topic.turns.append(len(records))
            return len(self.topic.log) - 1


class LateReader:
    topic: ListTopic

    def __init__(self, bootstrap: str, topic: str, on_records: OnRecords) -> None:
        self._on_records = on_records
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        position = 0
        self._on_records([], 0, True)
        while not self._is_stopping.wait(self.topic.random.uniform(0, LATE_S_MAX)):
            with self.topic.lock:
                batch = self.topic.log[position : position + 3]
            if batch:
                position += len(batch)
                self._on_records(batch, position, False)


class ListWatch:
    """A watch that looks when the test wants it."""

    made: ClassVar[list[ListWatch]] = []

    def __init__(self, bootstrap: str, topic: str, on_id: OnTopicId) -> None:
        self.on_id = on_id
        self.made.append(self)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
