"""Schemas in the console: of a registry, and of the cluster's topic alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.registry.running_registry import RunningRegistry, running_registry

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import free_port

EVIL = '"><script>alert(1)</script>'
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "total", "type": "double", "default": 0, "doc": EVIL}]}
THIRD = {**FIRST, "fields": [{"name": "id", "type": "string"}]}
API = "/api/v1/clusters/dev/schemas"


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker) -> Iterator[RunningRegistry]:
    make_topic(broker.client_config, "orders")
    with running_registry(broker.bootstrap) as running:
        for schema in (FIRST, SECOND):
            assert running.register("orders-value", schema)[0] == 200
        assert running.register(f"a/b {EVIL}", FIRST)[0] == 200
        yield running


@pytest.fixture
def schemas(broker: EmbeddedBroker, registry: RunningRegistry, make_console: MakeConsole) -> AsgiBrowser:
    return AsgiBrowser(make_console({"dev": broker.bootstrap}, {"cluster.dev.registry": registry.url}).app)


@pytest.fixture(params=["registry", "topic"])
def either(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, registry: RunningRegistry, make_console: MakeConsole
) -> AsgiBrowser:
    """A console with the registry, and one that reads the topic of schemas."""
    given = {"cluster.dev.registry": registry.url} if request.param == "registry" else {}
    return AsgiBrowser(make_console({"dev": broker.bootstrap}, given).app)


async def test_subjects_have_their_topic_and_newest_version(either: AsgiBrowser) -> None:
    found = (await either.get(f"{API}?q=orders")).json
    (row,) = found["table"]["rows"]
    assert (row["subject"], row["topic"], row["part"], row["version"]) == ("orders-value", "orders", "value", 2)
    assert found["level"] == "BACKWARD"
    assert "a new version must be BACKWARD" in (await either.get("/c/dev/schemas")).words


async def test_two_versions_are_compared_in_the_url(either: AsgiBrowser) -> None:
    page = await either.get("/c/dev/schemas/subject?name=orders-value")
    assert "Version 2 is the newest, of 2 versions." in page.words
    assert "From version 1 to version 2" in page.words
    lines = (await either.get(f"{API}/subject?name=orders-value")).json["difference"]["lines"]
    assert any(each["kind"] == "added" and '"total"' in each["text"] for each in lines)
    back = (await either.get(f"{API}/subject?name=orders-value&version=1&against=2")).json
    assert any(each["kind"] == "removed" and '"total"' in each["text"] for each in back["difference"]["lines"])
    assert json.loads(back["schema"]) == FIRST
    first = (await either.get(f"{API}/subject?name=orders-value&version=1")).json
    assert first["difference"] is None


@pytest.mark.parametrize("query", ["", "?name=nothing", "?name=orders-value&version=9", "?name=orders-value&version=x"])
async def test_what_is_not_there_is_said_in_a_sentence(either: AsgiBrowser, query: str) -> None:
    page = await either.get(f"/c/dev/schemas/subject{query}")
    assert page.status in (400, 404)
    assert "failed" not in page.words


async def test_markup_in_subjects_and_schemas_is_text(either: AsgiBrowser) -> None:
    for path in ("/c/dev/schemas", "/c/dev/schemas/subject?name=orders-value"):
        page = await either.get(path)
        assert page.status == 200
        assert not page.html.suspects
        assert all("src" in each for each in page.html.scripts)
    link = next(each for each in (await either.get("/c/dev/schemas")).html.links if "a%2Fb" in each)
    assert EVIL in (await either.get(link)).words


async def test_no_page_shows_the_password_of_the_registry(
    broker: EmbeddedBroker, registry: RunningRegistry, make_console: MakeConsole
) -> None:
    url = registry.url.replace("://", "://shared:between-us@")
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"cluster.dev.registry": url}).app)
    for path in ("/topics/orders", "/topics/orders?live=1", "/topics/orders/schema"):
        for begin in ("/c/dev", "/api/v1/clusters/dev"):
            answer = await browser.get(begin + path)
            assert answer.status == 200, path
            assert registry.url in answer.text, path
            assert "between-us" not in answer.text, path


async def test_a_schema_is_checked_before_it_is_registered(schemas: AsgiBrowser, registry: RunningRegistry) -> None:
    given = {"subject": "orders-value", "type": "AVRO", "references": ""}
    path = "/c/dev/do/schema-register"

    async def asked(schema: str) -> tuple[int, str, str]:
        from urllib.parse import urlencode

        page = await schemas.get(f"{path}?{urlencode({'review': '1', **given, 'schema': schema})}")
        return page.status, page.words, page.value("csrf")

    status, words, _ = await asked(json.dumps(THIRD))
    assert status == 409
    assert "orders-value does not take this schema (BACKWARD)" in words
    status, words, _ = await asked("{")
    assert status in (400, 409)
    status, words, _ = await asked(json.dumps(FIRST))
    assert "it is version 1 of orders-value already" in words
    new = {**SECOND, "fields": [*SECOND["fields"], {"name": "note", "type": "string", "default": ""}]}
    status, words, token = await asked(json.dumps(new))
    assert status == 200
    assert "it is compatible (BACKWARD)" in words
    assert f"strandline schema register orders-value FILE --type AVRO --registry {registry.url}" in words
    assert registry.ask("GET", "/subjects/orders-value/versions")[1] == [1, 2]
    form = {**given, "schema": json.dumps(new), "csrf": token}
    page = await schemas.follow(await schemas.post(path, form))
    assert "orders-value version 3 has the id" in page.words
    assert registry.ask("GET", "/subjects/orders-value/versions")[1] == [1, 2, 3]
    # Others of this module count the versions.
    assert registry.ask("DELETE", "/subjects/orders-value/versions/3")[0] == 200


async def test_a_registry_that_is_gone_or_none_is_said_in_a_sentence(
    broker: EmbeddedBroker, make_console: MakeConsole
) -> None:
    gone = AsgiBrowser(
        make_console({"dev": broker.bootstrap}, {"cluster.dev.registry": f"http://127.0.0.1:{free_port()}"}).app
    )
    page = await gone.get("/c/dev/schemas")
    assert page.status == 503
    assert "annot reach the registry" in page.words
    other = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"console.read.only": "true"}).app)
    answer = await other.post_json("/api/v1/clusters/dev/do/schema-register", {"subject": "x"})
    assert answer.status == 403


async def test_a_cluster_without_schemas_says_what_to_do(make_console: MakeConsole) -> None:
    import strandline

    with strandline.embedded() as node:
        page = await AsgiBrowser(make_console({"dev": node.bootstrap}).app).get("/c/dev/schemas")
    assert page.status == 200
    assert "tart the console with --registry URL" in page.words
