"""The description of the API says what the API does: every path in it is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.clients.positions import commit
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.registry.running_registry import running_registry

from strandline.console.app import create_app
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule
from strandline.console.openapi import path_of
from strandline.console.pages.index import page_modules
from strandline.console.routing import API
from strandline.console.tables import TableView
from strandline.local.embedded_broker import EmbeddedBroker

VALUES = {"cluster": "dev", "topic": "orders", "partition": "0", "offset": "3", "group": "billing", "node": "{node}"}
QUERIES = {"subject": "name=orders-value", "connector": "name=x", "pipeline": "name=x"}
ABSENT = {"connector": 501, "connector_create": 501, "pipeline": 404, "queue": 404}
"""Pages of things that this cluster does not have, with the status of that."""
NOT_FOR_ONE = {"record": {"where", "grep"}}
"""Conditions of a list, which the page of one record does not use."""
OF_TABLES = ("q", "sort", "page", "size")
_JSON = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "boolean": bool,
    "null": type(None),
}


class _Recorded(dict[str, str]):
    """The query of a URL, which remembers what it was asked for."""

    def __init__(self, given: Mapping[str, str], names: set[str]) -> None:
        super().__init__(given)
        self.names = names

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.fixture(scope="module")
def filled(broker: EmbeddedBroker) -> Iterator[dict[str, str]]:
    """Properties of a console whose cluster has a topic, a group and a schema."""
    make_topic(broker.client_config, "orders", 2)
    producer = Producer(broker.client_config)
    for number in range(20):
        producer.produce("orders", json.dumps({"n": number}), f"k{number % 3}", partition=0)
    producer.flush(30)
    commit(broker.bootstrap, "billing", "orders", 5)
    with running_registry(broker.bootstrap) as registry:
        assert registry.register("orders-value", {"type": "record", "name": "Order", "fields": []})[0] == 200
        yield {"cluster.dev.registry": registry.url}


@pytest.fixture
async def described(broker: EmbeddedBroker, filled: dict[str, str], make_console: MakeConsole) -> AsgiBrowser:
    return AsgiBrowser(make_console({"dev": broker.bootstrap}, filled).app)


async def document(browser: AsgiBrowser) -> Any:
    return (await browser.get("/api/openapi.json")).json


async def filled_in(browser: AsgiBrowser, path: str) -> str:
    node = (await browser.get("/api/v1/clusters/dev/cluster")).json["brokers"][0]
    return path.format_map({**VALUES, "node": node})


def wrong(value: Any, schema: Mapping[str, Any], place: str) -> list[str]:
    """Return where a value is not as its schema says."""
    kinds = schema.get("type", list(_JSON))
    allowed = [_JSON[each] for each in ([kinds] if isinstance(kinds, str) else kinds)]
    if not any(isinstance(value, each) for each in allowed):
        return [f"{place} is {value!r}, not {kinds}"]
    found = []
    if isinstance(value, dict):
        found += [f"{place} lacks {name}" for name in schema.get("required", ()) if name not in value]
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                found += wrong(value[name], inner, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for each in value:
            found += wrong(each, schema["items"], f"{place}[]")
    return found


async def test_every_path_of_the_description_answers_as_it_says(described: AsgiBrowser) -> None:
    told = await document(described)
    assert told["openapi"].startswith("3.1")
    seen = 0
    for path, methods in told["paths"].items():
        if "get" not in methods:
            continue
        name = methods["get"]["operationId"]
        query = f"?{QUERIES[name]}" if name in QUERIES else ""
        answer = await described.get(await filled_in(described, path) + query)
        status = ABSENT.get(name, 200)
        assert answer.status == status, (path, answer.text)
        kind = "200" if status == 200 else "default"
        schema = methods["get"]["responses"][kind]["content"]["application/json"]["schema"]
        schema = told["components"]["schemas"]["failure"] if "$ref" in schema else schema
        assert wrong(answer.json, schema, name) == []
        seen += status == 200
    assert seen > 20


async def test_every_action_takes_what_the_description_says(described: AsgiBrowser) -> None:
    told = await document(described)
    actions = {action.name: action for module in page_modules() for action in module.actions}
    posts = {path.rpartition("/")[2]: methods["post"] for path, methods in told["paths"].items() if "post" in methods}
    assert posts.keys() == actions.keys()
    for name, post in posts.items():
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        extra = {"typed"} if actions[name].is_dangerous else set()
        assert schema["properties"].keys() == {each.name for each in actions[name].fields} | extra
        # Without a token it is refused; that the route is there is all that may be tried.
        refused = await described.post_json(f"/api/v1/clusters/dev/do/{name}", {})
        assert refused.status == 403
        assert wrong(refused.json, told["components"]["schemas"]["failure"], name) == []


async def test_every_route_is_described() -> None:
    from strandline.console.settings import ConsoleCluster, ConsoleSettings

    app = create_app(ConsoleSettings((ConsoleCluster("dev", "127.0.0.1:1"),)))
    try:
        routes = {getattr(each, "path", "") for each in app._app.router.routes}  # type: ignore[attr-defined]
        told = app._description["paths"]
        twins = {path_of("", each) for each in routes if each.startswith("/api/") and each != "/api/openapi.json"}
        assert twins - {f"{API}/do/{{action}}"} == {each for each in told if "/do/" not in each}
    finally:
        app.close()


async def test_columns_and_queries_are_those_of_the_pages(
    broker: EmbeddedBroker, filled: dict[str, str], make_console: MakeConsole
) -> None:
    asked: dict[str, set[str]] = {}
    shown: dict[str, Mapping[str, Any]] = {}

    def watched(page: ConsolePage) -> ConsolePage:
        async def model(context: PageContext) -> Mapping[str, Any]:
            context.query = _Recorded(context.query, asked.setdefault(page.name, set()))
            shown[page.name] = await page.model(context)
            return shown[page.name]

        return dataclasses.replace(page, model=model)

    modules = [
        PageModule(tuple(watched(page) for page in each.pages), each.actions, each.streams, each.downloads)
        for each in page_modules()
    ]
    service = make_console({"dev": broker.bootstrap}, filled)
    app = create_app(service.console._settings, modules)
    browser = AsgiBrowser(app)
    try:
        pages = {page.name: page for module in modules for page in module.pages}
        for name, page in pages.items():
            query = f"?{QUERIES[name]}" if name in QUERIES else ""
            await browser.get(await filled_in(browser, path_of(API, page.path)) + query)
        for name, page in pages.items():
            tables = {key: each for key, each in shown.get(name, {}).items() if isinstance(each, TableView)}
            declared = {each.key: each for each in page.tables}
            if name in shown:
                assert tables.keys() <= declared.keys(), name
            for key, table in tables.items():
                columns = {each.key for each in declared[key].heads}
                assert {each.key for each in table.heads} <= columns, (name, key)
                assert declared[key].prefix == (f"{table.name}." if table.name else ""), (name, key)
            known = {each.name for each in page.queries} | {
                f"{each.prefix}{end}" for each in page.tables for end in OF_TABLES
            }
            assert asked.get(name, set()) - known - NOT_FOR_ONE.get(name, set()) == set(), name
    finally:
        app.close()
