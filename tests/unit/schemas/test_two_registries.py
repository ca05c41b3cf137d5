"""Registries that share a topic, in one process: the topic is a list, and its readers are late by chance.

Whatever order the writes, the fences and the late reads take: no id and no version is given to two schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.schemas.desk import folded
from tests.unit.schemas.fields_type import FieldsType
from tests.unit.schemas.list_topic import ListTopic

from strandline.schemas.records import SchemaVersion
from strandline.schemas.registering import Registration, register
from strandline.schemas.registry import RegistrySettings, SchemaRegistry

AT_ONCE = 4


async def write(registry: SchemaRegistry, subject: str, text: str) -> SchemaVersion:
    return await registry.write(lambda state: registry.run(register(state, Registration(subject, text))))


async def write_all(registry: SchemaRegistry, names: Sequence[str]) -> list[tuple[str, int, int]]:
    answers = []
    for at in range(0, len(names), AT_ONCE):
        chosen = names[at : at + AT_ONCE]
        made = await asyncio.gather(*(write(registry, "shared", name) for name in chosen))
        answers += [(name, each.id, each.version) for name, each in zip(chosen, made, strict=True)]
    return answers


@pytest.mark.parametrize("seed", range(4))
async def test_no_id_and_no_version_is_given_to_two_schemas(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ListTopic(seed).use(monkeypatch)
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
