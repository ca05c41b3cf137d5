"""The REST API of a registry in a process, over a real broker: what clients of Confluent's registry send and expect."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.registry.running_registry import RunningRegistry

A = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
A_B = {"type": "record", "name": "R", "fields": [*A["fields"], {"name": "b", "type": "string", "default": ""}]}  # type: ignore[misc]
A_C = {"type": "record", "name": "R", "fields": [*A["fields"], {"name": "c", "type": "string"}]}  # type: ignore[misc]


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:12]}-value"


def code(answer: tuple[int, Any]) -> tuple[int, int]:
    """Return the status and the error code of an answer."""
    assert answer[1]["message"], answer
    return answer[0], answer[1]["error_code"]


def test_a_schema_is_registered_read_looked_up_and_deleted(registry: RunningRegistry, subject: str) -> None:
    ask = registry.ask
    status, made = registry.register(subject, A)
    assert (status, made["version"]) == (200, 1)
    assert registry.register(subject, json.dumps(A, indent=4)) == (200, made)
    assert ask("GET", f"/subjects/{subject}/versions") == (200, [1])
    read = ask("GET", f"/subjects/{subject}/versions/latest")[1]
    assert read == ask("GET", f"/subjects/{subject}/versions/1")[1] == ask("GET", f"/subjects/{subject}/versions/-1")[1]
    assert (read["subject"], read["version"], read["id"]) == (subject, 1, made["id"])
    assert json.loads(read["schema"]) == A
    assert ask("GET", f"/schemas/ids/{made['id']}")[1]["schema"] == read["schema"]
    assert ask("GET", f"/schemas/ids/{made['id']}/schema") == (200, A)
    assert ask("GET", f"/schemas/guids/{made['guid']}")[1]["schema"] == read["schema"]
    assert {"context": ".", "id": made["id"]} in ask("GET", f"/schemas/guids/{made['guid']}/ids")[1]
    assert subject in ask("GET", f"/schemas/ids/{made['id']}/subjects")[1]
    assert {"subject": subject, "version": 1} in ask("GET", f"/schemas/ids/{made['id']}/versions")[1]
    assert ask("POST", f"/subjects/{subject}", {"schema": json.dumps(A)})[1]["version"] == 1
    assert code(ask("POST", f"/subjects/{subject}", {"schema": json.dumps(A_B)})) == (404, 40403)
    assert registry.register(subject, A_B)[1]["version"] == 2
    assert ask("DELETE", f"/subjects/{subject}/versions/2") == (200, 2)
    assert ask("DELETE", f"/subjects/{subject}") == (200, [1])
    assert code(ask("GET", f"/subjects/{subject}/versions")) == (404, 40401)
    assert ask("GET", f"/subjects/{subject}/versions?deleted=true") == (200, [1, 2])
    assert ask("GET", f"/schemas/ids/{made['id']}")[0] == 200
    assert subject not in ask("GET", "/subjects")[1]
    assert subject in ask("GET", "/subjects?deleted=true")[1]
    assert ask("DELETE", f"/subjects/{subject}?permanent=true") == (200, [1, 2])
    assert subject not in ask("GET", "/subjects?deleted=true")[1]


ERRORS: list[tuple[str, str, Any, int, int]] = [
    ("GET", "/subjects/none/versions", None, 404, 40401),
    ("GET", "/subjects/none/versions/1", None, 404, 40401),
    ("GET", "/subjects/S/versions/9", None, 404, 40402),
    ("GET", "/subjects/S/versions/0", None, 422, 42202),
    ("GET", "/subjects/S/versions/first", None, 422, 42202),
    ("GET", "/subjects/S/versions/2147483648", None, 422, 42202),
    ("DELETE", "/subjects/none", None, 404, 40401),
    ("DELETE", "/subjects/S?permanent=true", None, 404, 40405),
    ("DELETE", "/subjects/S/versions/1?permanent=true", None, 404, 40407),
    ("POST", "/subjects/none", {"schema": '"int"'}, 404, 40401),
    ("POST", "/subjects/S", {"schema": '"int"'}, 404, 40403),
    ("GET", "/schemas/ids/99999999", None, 404, 40403),
    ("GET", "/schemas/ids/99999999/versions", None, 404, 40403),
    ("GET", "/schemas/ids/99999999/subjects", None, 404, 40403),
    ("GET", "/schemas/ids/one", None, 404, 404),
    ("GET", "/schemas/guids/none", None, 404, 40403),
    ("GET", "/config/S", None, 404, 40408),
    ("DELETE", "/config/S", None, 404, 40401),
    ("PUT", "/config/S", {"compatibility": "SIDEWAYS"}, 422, 42203),
    ("PUT", "/config", {"compatibility": 5}, 422, 42203),
    ("GET", "/mode/S", None, 404, 40409),
    ("PUT", "/mode/S", {"mode": "SLEEPING"}, 422, 42204),
    ("PUT", "/mode/S", {"mode": "IMPORT"}, 422, 42205),
    ("POST", "/subjects/S/versions", {"schema": "{"}, 422, 42201),
    ("POST", "/subjects/new/versions", {"schema": ""}, 422, 42201),
    ("POST", "/subjects/new/versions", {}, 422, 42201),
    ("POST", "/subjects/S/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
    ("POST", "/subjects/S/versions", {"schema": '"int"', "id": 7}, 422, 42205),
    ("POST", "/subjects/S/versions", {"schema": json.dumps(A_C)}, 409, 409),
    ("POST", "/subjects/%0a/versions", {"schema": '"int"'}, 422, 42208),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 422, 42208),
    ("POST", "/subjects/S/versions", {"schema": '"int"', "ruleSet": {"domainRules": [{}]}}, 422, 42210),
    ("POST", "/subjects/S/versions", b'{"schema":"' + b"x" * 10_000_000 + b'"}', 422, 42209),
    ("POST", "/subjects/S/versions", b"{", 400, 400),
    ("POST", "/subjects/S/versions", b"[" * 100_000, 400, 400),
    ("POST", "/compatibility/subjects/S/versions/9", {"schema": '"int"'}, 404, 40402),
    ("POST", "/compatibility/subjects/S/versions/latest", {"schema": "{"}, 422, 42201),
    ("GET", "/nothing", None, 404, 404),
    ("PUT", "/subjects", {}, 405, 405),
    ("DELETE", "/contexts/.", None, 422, 42211),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "error_code"), ERRORS)
def test_errors_have_confluents_codes(
    registry: RunningRegistry, subject: str, method: str, path: str, body: Any, status: int, error_code: int
) -> None:
    assert registry.register(subject, A)[0] == 200
    assert code(registry.ask(method, path.replace("/S", f"/{subject}"), body)) == (status, error_code)
    assert registry.ask("GET", f"/subjects/{subject}/versions") == (200, [1])


def test_compatibility_is_explained(registry: RunningRegistry, subject: str) -> None:
    registry.register(subject, A)
    path = f"/compatibility/subjects/{subject}/versions"
    assert registry.ask("POST", f"{path}/latest", {"schema": json.dumps(A_B)}) == (200, {"is_compatible": True})
    assert registry.ask("POST", f"{path}/latest", {"schema": json.dumps(A_C)}) == (200, {"is_compatible": False})
    verbose = registry.ask("POST", f"{path}/1?verbose=true", {"schema": json.dumps(A_C)})[1]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verbose["messages"][0]
    assert "'c'" in verbose["messages"][0]
    assert registry.ask("POST", path, {"schema": json.dumps(A_C)}) == (200, {"is_compatible": False})
    broken = registry.ask("POST", f"{path}?verbose=true", {"schema": "{"})[1]
    assert broken["is_compatible"] is False
    other = "/compatibility/subjects/none/versions"
    assert registry.ask("POST", other, {"schema": json.dumps(A)}) == (200, {"is_compatible": True})


def test_config_has_two_names_for_one_thing(registry: RunningRegistry, subject: str) -> None:
    ask = registry.ask
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("PUT", f"/config/{subject}", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert ask("GET", f"/config/{subject}") == (200, {"compatibilityLevel": "FULL"})
    assert ask("DELETE", f"/config/{subject}") == (200, {"compatibilityLevel": "FULL"})
    assert ask("GET", f"/config/{subject}?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("PUT", f"/mode/{subject}", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert code(registry.register(subject, A)) == (422, 42205)
    assert ask("DELETE", f"/mode/{subject}") == (200, {"mode": "READONLY"})
    assert ask("GET", f"/mode/{subject}?defaultToGlobal=true") == (200, {"mode": "READWRITE"})


@pytest.mark.parametrize("name", ["with/slash", "with space", "ümlaut", "per%cent", "a:b", "?x", "#x"])
def test_subjects_may_have_any_characters(registry: RunningRegistry, subject: str, name: str) -> None:
    from urllib.parse import quote

    whole = f"{name}-{subject}"
    assert registry.register(whole, A)[0] == 200
    assert registry.ask("GET", f"/subjects/{quote(whole, safe='')}/versions/1")[1]["subject"] == whole
    assert whole in registry.ask("GET", "/subjects")[1]


def test_contexts_have_the_same_api_inside(registry: RunningRegistry, subject: str) -> None:
    ask = registry.ask
    context = f".c{uuid.uuid4().hex[:8]}"
    status, made = ask("POST", f"/contexts/{context}/subjects/{subject}/versions", {"schema": json.dumps(A_B)})
    assert (status, made["id"]) == (200, 1), "ids of a context begin at 1"
    whole = f":{context}:{subject}"
    stored = ask("GET", f"/subjects/{whole}/versions/1")[1]
    assert stored["subject"] == whole
    assert ask("GET", f"/contexts/{context}/subjects") == (200, [whole])
    assert ask("GET", f"/contexts/{context}/schemas/ids/1")[1]["schema"] == stored["schema"]
    assert ask("GET", f"/schemas/ids/1?subject={whole}")[1]["schema"] == stored["schema"]
    assert context in ask("GET", "/contexts")[1]
    assert ask("PUT", f"/contexts/{context}/config", {"compatibility": "NONE"})[0] == 200
    assert ask("GET", f"/config/:{context}:")[1] == {"compatibilityLevel": "NONE"}
    assert registry.register(whole, '"string"')[1]["version"] == 2
    assert code(ask("DELETE", f"/contexts/{context}")) == (422, 42211)


def test_references_are_resolved_and_protected(registry: RunningRegistry, subject: str) -> None:
    base, user = f"base-{subject}", f"user-{subject}"
    registry.register(base, {"type": "record", "name": "n.Base", "fields": []})
    using = {"type": "record", "name": "n.User", "fields": [{"name": "base", "type": "Base"}]}
    reference = {"name": "n.Base", "subject": base, "version": 1}
    status, made = registry.register(user, using, references=[reference])
    assert status == 200
    assert registry.ask("GET", f"/subjects/{user}/versions/1")[1]["references"] == [reference]
    assert registry.ask("GET", f"/subjects/{base}/versions/1/referencedby") == (200, [made["id"]])
    assert code(registry.ask("DELETE", f"/subjects/{base}")) == (422, 42206)


def test_lists_come_in_pages(registry: RunningRegistry, subject: str) -> None:
    names = [f"{subject}-{number}" for number in range(5)]
    for name in names:
        registry.register(name, A)
    path = f"/subjects?subjectPrefix={subject}"
    assert registry.ask("GET", path) == (200, names)
    assert registry.ask("GET", f"{path}&offset=1&limit=2") == (200, names[1:3])
    schemas = registry.ask("GET", f"/schemas?subjectPrefix={subject}&latestOnly=true&limit=3")[1]
    assert [each["subject"] for each in schemas] == names[:3]


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", "application/vnd.schemaregistry.v1+json"),
        ("application/vnd.schemaregistry.v1+json, application/json", "application/vnd.schemaregistry.v1+json"),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
    ],
)
def test_content_types_are_negotiated(registry: RunningRegistry, accept: str, answered: str) -> None:
    with urlopen(Request(f"{registry.url}/schemas/types", headers={"Accept": accept})) as answer:
        assert answer.headers["Content-Type"] == answered
        assert "AVRO" in json.loads(answer.read())


@pytest.mark.parametrize(
    ("headers", "status"), [({"Accept": "text/html"}, 406), ({"Content-Type": "application/xml"}, 415)]
)
def test_other_content_types_are_refused(
    registry: RunningRegistry, subject: str, headers: dict[str, str], status: int
) -> None:
    body = {"schema": '"int"'}
    assert registry.ask("POST", f"/subjects/{subject}/versions", body, headers=headers)[0] == status


def test_the_process_says_how_it_is(registry: RunningRegistry) -> None:
    for path in ("/livez", "/readyz"):
        with urlopen(registry.url + path) as answer:
            assert answer.status == 200
    assert registry.ask("GET", "/") == (200, {})
    assert "version" in registry.ask("GET", "/v1/metadata/version")[1]
