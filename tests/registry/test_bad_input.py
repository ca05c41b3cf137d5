"""Input that is made to hurt, over HTTP and in the topic: each has Confluent's code and a sentence, and others go on.

The engines have their own tests of what they bound. Here the whole way is tested.
"""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.registry.running_registry import TIMEOUT_S, RunningRegistry, running_registry, wait_for
from tests.registry.test_rest import A, code
from tests.unit.schemas.avro.test_parsing import laughs, nested


@pytest.fixture
def subject() -> str:
    return f"bad-{uuid.uuid4().hex[:12]}"


def named(name: str) -> dict[str, Any]:
    return {"schema": json.dumps({"type": "record", "name": name, "fields": []})}


PATTERN = "^(a+)+(b|bb|[ab]*)*$"
EXPLODING = {"type": "object", "patternProperties": {PATTERN: {"type": "string"}}, "additionalProperties": False}
HOLDING = {"type": "object", "properties": {"a" * 60 + "!": {"type": "string"}}, "additionalProperties": False}

REJECTED: list[tuple[str, Any, int, int]] = [
    ("a name that Avro does not allow", named("1x"), 422, 42201),
    ("a name with a blank", named("a b"), 422, 42201),
    ("a name of another alphabet", named("ä"), 422, 42201),
    ("the name of a primitive", named("int"), 422, 42201),
    ("levels without end", {"schema": nested(30_000)}, 422, 42201),
    ("a schema above the limit", {"schema": json.dumps({**A, "doc": "x" * 1_000_001})}, 422, 42209),
    ("a schema of 10 MB", {"schema": json.dumps({**A, "doc": "x" * 10_000_000})}, 422, 42209),
    ("a Protobuf file of braces", {"schemaType": "PROTOBUF", "schema": "message A {" * 50_000}, 422, 42201),
    ("a JSON schema of brackets", {"schemaType": "JSON", "schema": "[" * 300_000}, 422, 42201),
    ("a number of a million digits", {"schemaType": "JSON", "schema": '{"minimum":' + "9" * 900_000 + "}"}, 422, 42201),
    (
        "a reference to nothing",
        {**named("R"), "references": [{"name": "n", "subject": "none", "version": 1}]},
        422,
        42201,
    ),
    ("references that are none", {**named("R"), "references": {"name": "n"}}, 422, 42201),
    ("a schema that is a number", {"schema": 7}, 422, 42201),
    ("a lone surrogate", b'{"schema":"\\ud800"}', 422, 42201),
    ("a body that is a list", [], 422, 42201),
    ("a body that is no text", b"\xff\xfe\x00", 400, 400),
]


@pytest.mark.parametrize(
    ("body", "status", "error_code"), [each[1:] for each in REJECTED], ids=[e[0] for e in REJECTED]
)
def test_a_bad_schema_has_a_code_and_a_sentence(
    registry: RunningRegistry, subject: str, body: Any, status: int, error_code: int
) -> None:
    answer = registry.ask("POST", f"/subjects/{subject}/versions", body)
    assert code(answer) == (status, error_code)
    assert len(answer[1]["message"]) < 20_000
    assert code(registry.ask("GET", f"/subjects/{subject}/versions")) == (404, 40401)


@pytest.mark.parametrize(
    "name", ["%00", "a%0Ab", "%7F", "__GLOBAL", "__EMPTY", "%C2%85", "x" * 1001, ":.c:", ":.__GLOBAL:s"]
)
def test_a_bad_subject_is_rejected(registry: RunningRegistry, name: str) -> None:
    assert code(registry.ask("POST", f"/subjects/{name}/versions", {"schema": '"int"'})) == (422, 42208)


def test_a_billion_laughs_hold_up_no_reader(registry: RunningRegistry, subject: str) -> None:
    """Each record has the one before it thirty times; written out it would be larger than all disks."""
    old, new = (json.loads(laughs(60, 30, leaf)) for leaf in ("int", "string"))
    assert registry.register(subject, old)[0] == 200
    answers: list[tuple[int, Any]] = []
    comparing = threading.Thread(target=lambda: answers.append(registry.register(subject, new)))
    comparing.start()
    while comparing.is_alive():
        assert registry.ask("GET", "/schemas/types")[0] == 200
    comparing.join(TIMEOUT_S)
    assert code(answers[0]) == (409, 409)


def test_a_pattern_that_explodes_is_compared_in_its_time(registry: RunningRegistry, subject: str) -> None:
    assert registry.register(subject, HOLDING, schemaType="JSON")[0] == 200
    path = f"/compatibility/subjects/{subject}/versions/latest?verbose=true"
    status, answer = registry.ask("POST", path, {"schema": json.dumps(EXPLODING), "schemaType": "JSON"})
    assert (status, answer["is_compatible"]) == (200, False)


def test_imports_that_go_too_deep_are_rejected(registry: RunningRegistry, subject: str) -> None:
    before: list[dict[str, Any]] = []
    for level in range(70):
        imported = f'import "l{level - 1}.proto";' if level else ""
        text = f'syntax = "proto3"; {imported} message M{level} {{ int32 a = 1; }}'
        answer = registry.register(f"{subject}-{level}", text, schemaType="PROTOBUF", references=before)
        if answer[0] != 200:
            break
        before = [{"name": f"l{level}.proto", "subject": f"{subject}-{level}", "version": 1}]
    assert code(answer) == (422, 42201)
    assert "deep" in answer[1]["message"]


def test_references_that_lead_back_are_rejected(registry_bootstrap: str) -> None:
    """No request can make them. A topic that was written by hand can have them."""
    topic = f"_schemas-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": registry_bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": registry_bootstrap})
    for number, (own, other) in enumerate((("a", "b"), ("b", "a"), ("self", "self")), 1):
        text = json.dumps({"type": "record", "name": own, "fields": [{"name": "f", "type": other}]})
        references = [{"name": other, "subject": other, "version": 1}]
        value = {"subject": own, "version": 1, "id": number, "references": references, "schema": text, "deleted": False}
        key = {"keytype": "SCHEMA", "subject": own, "version": 1, "magic": 1}
        producer.produce(topic, key=json.dumps(key), value=json.dumps(value), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    with running_registry(registry_bootstrap, "--topic", topic) as registry:
        assert registry.ask("GET", "/schemas/ids/1")[0] == 200
        for name in ("a", "self"):
            reference = [{"name": name, "subject": name, "version": 1}]
            answer = registry.register("new", {"type": "array", "items": name}, references=reference)
            assert code(answer) == (422, 42201)
            assert "leads back to itself" in answer[1]["message"]
            assert code(registry.register(name, {"type": "record", "name": name, "fields": []})) == (422, 42201)
        assert registry.register("sound", A)[0] == 200


GARBAGE: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"\xff\xfe\xfd", b"\x80"),
    (b"[" * 200_000, b"{" * 200_000),
    (b"null", b"null"),
    (b"7", b"7"),
    (b'{"keytype":"SCHEMA"}', b"{}"),
    (b'{"keytype":"SCHEMA","subject":"g","version":0,"magic":1}', b'{"id":1,"schema":"\\"int\\""}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":-3,"magic":1}', b'{"id":1,"schema":"\\"int\\""}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":-1,"schema":"\\"int\\""}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":1e999,"schema":"\\"int\\""}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":' + b"9" * 5000 + b',"schema":"x"}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":true,"schema":"\\"int\\""}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":1,"schema":["int"]}'),
    (b'{"keytype":"SCHEMA","subject":"g","version":1,"magic":1}', b'{"id":1,"schema":"x","references":[7]}'),
    (b'{"keytype":"SCHEMA","subject":["g"],"version":1,"magic":1}', b'{"id":1,"schema":"\\"int\\""}'),
    (b'{"keytype":"CONFIG","subject":"g","magic":0}', b'{"compatibilityLevel":["NONE"]}'),
    (b'{"keytype":"MODE","subject":"g","magic":0}', b'{"mode":{}}'),
    (b'{"keytype":"DELETE_SUBJECT","subject":"g","magic":0}', b'{"version":"x"}'),
    (b'{"keytype":"CONTEXT","context":".g"}', b'{"maxId":"many"}'),
    (b'{"keytype":"UNHEARD_OF","magic":9}', b"x" * 500_000),
]


@pytest.mark.slow
def test_garbage_that_comes_while_it_runs_hurts_nothing(registry_bootstrap: str) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:12]}"
    with running_registry(registry_bootstrap, "--topic", topic) as registry:
        made = registry.register("kept", A)[1]
        producer = Producer({"bootstrap.servers": registry_bootstrap})
        for key, value in GARBAGE:
            producer.produce(topic, key=key, value=value, partition=0)
        # Schemas that no engine can parse, and a subject that is not Unicode, are kept as they are.
        odd = b'{"keytype":"SCHEMA","subject":"odd\\ud800","version":1,"magic":1}'
        producer.produce(topic, key=odd, value=b'{"id":90,"schema":"not avro \\ud800","deleted":false}', partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        wait_for(lambda: registry.ask("GET", "/schemas/ids/90")[0] == 200)
        status, subjects = registry.ask("GET", "/subjects")
        assert (status, len(subjects), "kept" in subjects) == (200, 2, True)
        assert registry.ask("GET", "/schemas")[0] == 200
        assert registry.register("kept", A) == (200, made)
        assert registry.register("next", {**A, "name": "Next"})[1]["id"] == 91
