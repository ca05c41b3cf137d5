"""The part of Apicurio's API that its serdes ask for. `test_other_clients` has the serdes themselves."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from tests.registry.running_registry import RunningRegistry
from tests.registry.test_rest import A_B, A_C, A, code

V3 = "/apis/registry/v3"


@pytest.fixture
def artifact() -> str:
    return f"a-{uuid.uuid4().hex[:12]}-value"


def created(artifact: str, schema: Any, *, kind: str = "AVRO", references: Any = None) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    content = {"content": text, "contentType": "application/json", "references": references}
    return {"artifactId": artifact, "artifactType": kind, "firstVersion": {"version": None, "content": content}}


def test_an_artifact_is_a_subject_and_its_content_id_the_id(registry: RunningRegistry, artifact: str) -> None:
    ask = registry.ask
    path = f"{V3}/groups/default/artifacts?ifExists=FIND_OR_CREATE_VERSION&canonical=false"
    status, made = ask("POST", path, created(artifact, A))
    assert status == 200
    schema_id = made["version"]["contentId"]
    assert made["version"] == made["version"] | {
        "groupId": "default",
        "artifactId": artifact,
        "version": "1",
        "globalId": schema_id,
    }
    assert ask("POST", path, created(artifact, A)) == (200, made)
    assert ask("GET", f"/subjects/{artifact}/versions/1")[1]["id"] == schema_id
    for kind in ("contentIds", "globalIds"):
        assert ask("GET", f"{V3}/ids/{kind}/{schema_id}/") == (200, A)
        assert ask("GET", f"{V3}/ids/{kind}/{schema_id}/references") == (200, [])
    assert ask("POST", path, created(artifact, A_B))[1]["version"]["version"] == "2"
    latest = f"{V3}/groups/default/artifacts/{artifact}/versions/branch%3Dlatest"
    assert ask("GET", latest)[1]["version"] == "2"
    assert ask("GET", f"{latest}/content") == (200, A_B)
    assert code(ask("POST", path, created(artifact, A_C))) == (409, 409)


def test_a_version_is_found_by_its_content(registry: RunningRegistry, artifact: str) -> None:
    registry.register(artifact, A)
    path = f"{V3}/search/versions?groupId=default&artifactId={artifact}&artifactType=AVRO"
    found = registry.ask("POST", path, json.dumps(A).encode())[1]
    assert (found["count"], found["versions"][0]["version"]) == (1, "1")
    for wanted in (path, path.replace(artifact, "nothing")):
        assert registry.ask("POST", wanted, json.dumps(A_B).encode()) == (200, {"count": 0, "versions": []})


def test_references_lead_to_artifacts_of_other_groups(registry: RunningRegistry, artifact: str) -> None:
    base = {"type": "record", "name": "Base", "namespace": "sea", "fields": []}
    group = f"g-{uuid.uuid4().hex[:8]}"
    registry.ask("POST", f"{V3}/groups/{group}/artifacts", created("Base", base))
    assert registry.ask("GET", f"/subjects/{group}%2FBase/versions") == (200, [1])
    using = {"type": "record", "name": "User", "namespace": "sea", "fields": [{"name": "base", "type": "sea.Base"}]}
    reference = {"name": "sea.Base", "groupId": group, "artifactId": "Base", "version": "1"}
    body = created(artifact, using, references=[reference])
    status, made = registry.ask("POST", f"{V3}/groups/default/artifacts", body)
    assert status == 200
    by_id = f"{V3}/ids/contentIds/{made['version']['contentId']}/references"
    by_version = f"{V3}/groups/default/artifacts/{artifact}/versions/1/references"
    assert registry.ask("GET", by_id)[1] == registry.ask("GET", by_version)[1] == [reference]
    assert registry.ask("GET", f"{V3}/groups/{group}/artifacts/Base/versions/1/content") == (200, base)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/ids/contentIds/99999999", None, 404),
        ("GET", "/ids/contentIds/x", None, 404),
        ("GET", "/groups/default/artifacts/none/versions/1", None, 404),
        ("GET", "/groups/default/artifacts/none/versions/1/nothing", None, 404),
        ("GET", "/groups", None, 404),
        ("DELETE", "/groups/default/artifacts", None, 404),
        ("POST", "/groups/default/artifacts", {}, 422),
        ("POST", "/groups/default/artifacts", [], 422),
        ("POST", "/groups/default/artifacts", created("", A), 422),
        ("POST", "/groups/default/artifacts", created("a", A, references=7), 422),
        ("POST", "/groups/default/artifacts", created("a", A, references=[{"artifactId": "b", "version": "x"}]), 422),
        ("POST", "/groups/default/artifacts", created("a", A, kind="XML"), 422),
    ],
)
def test_what_is_wrong_is_rejected(registry: RunningRegistry, method: str, path: str, body: Any, status: int) -> None:
    assert registry.ask(method, V3 + path, body)[0] == status
