"""The topic behind a registry: another one takes it over, several write to it, and garbage in it does not matter."""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.registry.running_registry import RunningRegistry, running_registry, serve_command, wait_for

from strandline.schemas.records import SchemaRecord
from strandline.schemas.state import RegistryState

READY_S = 60


@pytest.fixture
def topic() -> str:
    return f"_schemas-{uuid.uuid4().hex[:12]}"


def committed(bootstrap: str, topic: str) -> Iterator[SchemaRecord]:
    """Yield all committed records of a topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(READY_S)
            assert message is not None, "the topic could not be read"
            if message.error() is not None:
                return
            yield SchemaRecord(message.key() or b"", message.value())
    finally:
        consumer.close()


def folded(bootstrap: str, topic: str) -> RegistryState:
    state = RegistryState()
    for record in committed(bootstrap, topic):
        state.apply(record)
    return state


def number(schema: int) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{schema}", "size": schema}


def test_the_topic_is_made_compacted_and_another_registry_opens_it(registry_bootstrap: str, topic: str) -> None:
    with running_registry(registry_bootstrap, "--topic", topic) as first:
        made = first.register("orders-value", number(1))[1]
        first.ask("PUT", "/config/orders-value", {"compatibility": "FULL"})
    keys = [record.key for record in committed(registry_bootstrap, topic)]
    assert b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}' in keys
    with running_registry(registry_bootstrap, "--topic", topic) as second:
        assert second.ask("GET", "/subjects/orders-value/versions/1")[1]["id"] == made["id"]
        assert second.ask("GET", "/config/orders-value")[1] == {"compatibilityLevel": "FULL"}
        assert second.register("other", number(2))[1]["id"] == made["id"] + 1


@pytest.mark.slow
def test_garbage_and_foreign_records_do_not_matter(registry_bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": registry_bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": registry_bootstrap})
    foreign = b'{"subject":"theirs","version":1,"magic":1,"keytype":"SCHEMA"}'
    for key, value in (
        (b"\xff\xfe", b"\x00"),
        (b"{}", None),
        (b'{"keytype":"UNHEARD_OF","magic":9}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"broken","version":1,"magic":1}', b"{"),
        (foreign, b'{"subject":"theirs","version":1,"id":12,"schema":"\\"int\\"","deleted":false,"x":1}'),
    ):
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(READY_S) == 0
    with running_registry(registry_bootstrap, "--topic", topic) as registry:
        assert registry.ask("GET", "/subjects") == (200, ["theirs"])
        assert registry.ask("GET", "/schemas/ids/12")[1]["schema"] == '"int"'
        assert registry.register("ours", number(1))[1]["id"] == 13


def test_a_topic_that_loses_schemas_is_refused(registry_bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": registry_bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "delete"})])[topic].result()
    command = [*serve_command(registry_bootstrap), "--topic", topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=READY_S)
    assert ended.returncode == 4
    assert "cleanup.policy=delete" in ended.stderr


@pytest.mark.slow
def test_two_writers_never_fork_a_subject(registry_bootstrap: str, topic: str) -> None:
    """Both decide themselves, as if neither knew a primary: each fences the other, reads on, and decides again."""
    alone = {"X-Forward": "false"}
    with (
        running_registry(registry_bootstrap, "--topic", topic) as one,
        running_registry(registry_bootstrap, "--topic", topic) as other,
    ):
        answers: list[tuple[int, tuple[int, Any]]] = []
        # Each has a writer before they meet.
        for registry in (one, other):
            assert registry.ask("PUT", "/config", {"compatibility": "NONE"}, headers=alone)[0] == 200
        meeting = threading.Barrier(2)

        def write(registry: RunningRegistry, schemas: list[int]) -> None:
            meeting.wait()
            for schema in schemas:
                body = {"schema": json.dumps(number(schema))}
                answers.append((schema, registry.ask("POST", "/subjects/shared/versions", body, headers=alone)))

        threads = [
            threading.Thread(target=write, args=(one, list(range(1, 9)))),
            threading.Thread(target=write, args=(other, list(range(5, 13)))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {status for _, (status, _) in answers} == {200}
    by_schema: dict[int, set[tuple[int, int]]] = {}
    for schema, (_, made) in answers:
        by_schema.setdefault(schema, set()).add((made["id"], made["version"]))
    assert all(len(each) == 1 for each in by_schema.values()), by_schema
    assert sorted(version for each in by_schema.values() for _, version in each) == list(range(1, 13))
    state = folded(registry_bootstrap, topic)
    for version in state.versions("shared"):
        size = json.loads(version.content.text)["size"]
        assert by_schema[size] == {(version.id, version.version)}


@pytest.mark.slow
def test_a_write_to_either_is_read_from_both(registry_bootstrap: str, topic: str) -> None:
    with (
        running_registry(registry_bootstrap, "--topic", topic) as one,
        running_registry(registry_bootstrap, "--topic", topic) as other,
    ):
        for size in range(1, 9):
            writer, reader = (one, other) if size % 2 else (other, one)
            status, made = writer.register(f"s{size}", number(size))
            assert status == 200
            assert writer.ask("GET", f"/subjects/s{size}/versions/1")[1]["id"] == made["id"] == size
            assert reader.register(f"s{size}", number(size)) == (200, made)


@pytest.mark.slow
def test_a_topic_that_is_made_again_is_read_again(registry_bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": registry_bootstrap})
    new_topic = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    with running_registry(registry_bootstrap, "--topic", topic) as registry:
        for size in (1, 2, 3):
            assert registry.register(f"before-{size}", number(size))[0] == 200
        admin.delete_topics([topic])[topic].result()
        wait_for(lambda: registry.register("meanwhile", number(9))[0] == 500)
        status, refused = registry.register("meanwhile", number(9))
        assert (status, refused["error_code"]) == (500, 50001)
        assert "is gone" in refused["message"]
        assert registry.ask("GET", "/subjects/before-1/versions") == (200, [1]), "what was read is served"
        admin.create_topics([new_topic])[topic].result()
        producer = Producer({"bootstrap.servers": registry_bootstrap})
        key = b'{"keytype":"SCHEMA","subject":"restored","version":1,"magic":1}'
        value = b'{"subject":"restored","version":1,"id":7,"schema":"\\"int\\"","deleted":false}'
        producer.produce(topic, key=key, value=value, partition=0)
        assert producer.flush(READY_S) == 0
        wait_for(lambda: registry.ask("GET", "/subjects") == (200, ["restored"]))
        assert registry.register("after", number(1))[1]["id"] == 8
        assert registry.ask("GET", "/subjects") == (200, ["after", "restored"])
    assert set(folded(registry_bootstrap, topic).subjects) == {"after", "restored"}


@pytest.mark.slow
def test_a_topic_that_is_made_again_and_would_lose_schemas_is_not_served(registry_bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": registry_bootstrap})
    with running_registry(registry_bootstrap, "--topic", topic) as registry:
        assert registry.register("before", number(1))[0] == 200
        admin.delete_topics([topic])[topic].result()
        admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "delete"})])[topic].result()
        wait_for(lambda: "cleanup.policy=delete" in str(registry.ask("GET", "/subjects")[1]))
        assert registry.register("after", number(1))[0] == 503
        compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[compact])
        admin.incremental_alter_configs([resource])[resource].result()
        wait_for(lambda: registry.ask("GET", "/subjects") == (200, []))
        assert registry.register("after", number(1))[1]["id"] == 1
