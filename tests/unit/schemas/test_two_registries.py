"""Registries that share a topic, in one process: the topic is a list, and its readers are late by chance.

Whatever order the writes, the fences and the late reads take: no id and no version is given to two schemas.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence

import pytest
from tests.unit.schemas.desk import folded
from tests.unit.schemas.fields_type import FieldsType

from strandline.schemas import registry as registry_module
from strandline.schemas.records import SchemaRecord
from strandline.schemas.registering import Registration, register
from strandline.schemas.registry import RegistrySettings, SchemaRegistry
from strandline.schemas.topic import OnRecords, SchemaTopicFailed

LATE_S_MAX = 0.01


class ListTopic:
    def __init__(self, seed: int) -> None:
        self.log: list[SchemaRecord] = []
        self.epoch = 0
        self.lock = threading.Lock()
        self.random = random.Random(seed)


class ListWriter:
    topic: ListTopic

    def __init__(self, bootstrap: str, topic: str, group: str, timeout_s: float) -> None:
        with self.topic.lock:
            self.topic.epoch += 1
            self._epoch = self.topic.epoch

    def write(self, records: Sequence[SchemaRecord]) -> int:
        with self.topic.lock:
            if self._epoch != self.topic.epoch:
                raise SchemaTopicFailed("fenced")
            self.topic.log += records
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


async def write_all(registry: SchemaRegistry, names: Sequence[str]) -> list[tuple[str, int, int]]:
    answers = []
    for name in names:
        request = Registration("shared", name)
        made = await registry.write(lambda state, request=request: registry.run(register(state, request)))  # type: ignore[misc]
        answers.append((name, made.id, made.version))
    return answers


@pytest.mark.parametrize("seed", range(4))
async def test_no_id_and_no_version_is_given_to_two_schemas(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ListTopic(seed)
    monkeypatch.setattr(ListWriter, "topic", topic, raising=False)
    monkeypatch.setattr(LateReader, "topic", topic, raising=False)
    monkeypatch.setattr(registry_module, "TopicWriter", ListWriter)
    monkeypatch.setattr(registry_module, "TopicReader", LateReader)
    monkeypatch.setattr(registry_module, "prepare_topic", lambda *arguments: 0)
    registries = [SchemaRegistry(RegistrySettings("none:1"), [FieldsType()]) for _ in range(3)]
    for registry in registries:
        await registry.start()
    try:
        names = [f"f{number}?" for number in range(12)]
        chosen = [topic.random.sample(names, 8) for _ in registries]
        answers = await asyncio.gather(*(write_all(*each) for each in zip(registries, chosen, strict=True)))
    finally:
        for registry in registries:
            await registry.stop()
    by_name = {(name, schema_id, version) for answer in answers for name, schema_id, version in answer}
    assert len({name for name, _, _ in by_name}) == len(by_name), "a schema was answered with two ids or versions"
    assert len({schema_id for _, schema_id, _ in by_name}) == len(by_name), "an id was given out twice"
    state = folded(topic.log)
    written = {(each.content.text, each.id, each.version) for each in state.versions("shared")}
    assert written == by_name
