"""Every route of the console against strangers: made of the route table, so that a new route cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.clients.positions import commit
from tests.console.asgi_browser import Answer, AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.console.test_security import log_in
from tests.secured_node import SecuredNode, secured_node

from strandline.cli.common.client import Cluster
from strandline.cli.user.credentials import write_credential
from strandline.console.pages.index import page_modules
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.services.console.console_service import ConsoleService

pytest.importorskip("cryptography")

SECRET = "between-admins-only"
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
OPEN = {"/", "/livez", "/readyz", "/static/{version}/{path:path}", "/api/v1", "/api/openapi.json"}
"""Routes that tell nothing of a cluster, and need no login."""
WITHOUT_SESSION = {"/login/{cluster}", "/logout/{cluster}", "/preferences"}
UNSEEN_KINDS = ("application/json", "text/plain", "text/css")
PASSWORDS = {"alice": "alice's secret", "bob": "bob's secret"}


@dataclass(frozen=True)
class OneRoute:
    """A method at a path, whose parameters have values."""

    method: str
    template: str
    path: str

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    @property
    def is_stream(self) -> bool:
        return "/live/" in self.template


def every_route(service: ConsoleService, **values: str) -> list[OneRoute]:
    """Return each method of each route; `values` are those of parameters, and a path has each action."""
    given = {"cluster": "dev", "version": "x", "path": "console.css", "partition": "0", "offset": "0", "node": "1"}
    given |= values
    actions = [action.name for module in page_modules() for action in module.actions]
    found = []
    for route in service.console._app.router.routes:  # type: ignore[attr-defined]
        for method in sorted(route.methods - {"HEAD"}):
            for action in actions if "{action}" in route.path else [""]:
                filled = {name: quote(text, safe="") for name, text in {**given, "action": action}.items()}
                path = re.sub(r"{(\w+)(?::path)?}", lambda name, filled=filled: filled.get(name[1], "x"), route.path)
                found.append(OneRoute(method, route.path, path))
    return found


async def asked(browser: AsgiBrowser, route: OneRoute, **form: str) -> Answer:
    if route.method == "GET":
        return await browser.get(route.path)
    if route.is_api:
        return await browser.post_json(route.path, form)
    return await browser.post(route.path, form)


def test_the_table_has_every_declared_route(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap})
    known = {route.template for route in every_route(service)}
    for module in page_modules():
        for page in module.pages:
            path = "" if page.path == "/" else page.path
            assert {f"/c/{{cluster}}{path}", f"/api/v1/clusters/{{cluster}}{path}"} <= known
        for each in (*module.streams, *module.downloads):
            assert f"/c/{{cluster}}{each.path}" in known
    assert {
        route.template for route in every_route(service) if not route.template.startswith(("/c/", "/api/v1/c"))
    } == (OPEN | WITHOUT_SESSION), "a new route must say whether it is open"


async def test_no_route_answers_another_host(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap})
    browser = AsgiBrowser(service.app, host="evil.example")
    for route in every_route(service):
        answer = await asked(browser, route)
        assert answer.status == 421, route
        assert answer.cookies == [], route


async def test_no_route_changes_anything_by_a_forged_form(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap})
    browser, other = AsgiBrowser(service.app), AsgiBrowser(service.app)
    await browser.get("/c/dev/topics")
    stolen = (await other.get("/c/dev/topics")).value("csrf")
    posts = [route for route in every_route(service, topic="orders") if route.method == "POST"]
    assert len(posts) > 40
    audited = len(service.console.visits.audit.entries)
    for route in posts:
        if route.template == "/login/{cluster}":
            # This cluster has no login: the form leads to the pages.
            continue
        for token in ("", stolen):
            if route.is_api:
                answer = await browser.post_json(route.path, {"topic": "x"}, x_csrf_token=token)
            else:
                answer = await browser.post(route.path, {"csrf": token, "topic": "x"})
            assert answer.status == 403, (route, token)
        answer = await browser.post(route.path, {"csrf": stolen}, origin="http://evil.example")
        assert answer.status in (403, 415), route
    entries = list(service.console.visits.audit.entries)[audited:]
    assert {each.outcome for each in entries} == {"refused"}


# A cluster with logins


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    """A node with two users: alice reads `hers`, bob reads `his`, and both topics hold secrets."""
    with secured_node(tmp_path_factory.mktemp("routes")) as made:
        cluster = Cluster(made.bootstrap, dict(made.admin))
        for name, password in PASSWORDS.items():
            write_credential(cluster, name, "SCRAM-SHA-512", 4096, password)
        admin = AdminClient(cluster.settings())
        for each in admin.create_topics([NewTopic("hers", 1, 1), NewTopic("his", 1, 1)]).values():
            each.result()
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", right, AclPermissionType.ALLOW)
            for user, topic in (("alice", "hers"), ("bob", "his"))
            for kind, name, right in (
                (ResourceType.TOPIC, topic, AclOperation.READ),
                (ResourceType.GROUP, f"group-of-{topic}", AclOperation.READ),
            )
        ]
        for done in admin.create_acls(rules).values():
            done.result()
        producer = Producer(cluster.settings())
        for topic in ("hers", "his"):
            producer.produce(topic, f"{SECRET} {topic}", f"{SECRET} {topic}")
        assert producer.flush(30) == 0
        yield made


@pytest.fixture
def secured(node: SecuredNode, make_console: MakeConsole) -> ConsoleService:
    given = {f"cluster.dev.{name}": text for name, text in node.admin.items()}
    return make_console({"dev": node.bootstrap}, given)


@pytest.mark.slow
async def test_no_route_tells_anything_without_a_login(secured: ConsoleService) -> None:
    browser = AsgiBrowser(secured.app)
    token = (await browser.get("/login/dev")).value("csrf")
    for route in every_route(secured, topic="hers", group="group-of-hers"):
        if route.template in OPEN | WITHOUT_SESSION:
            continue
        answer = await asked(browser, route, csrf=token, topic="hers")
        if route.is_api:
            # Without a header that logs in, a change needs the token of a page as well.
            assert answer.status in ((401,) if route.method == "GET" else (403,)), route
        else:
            assert answer.status == 303, route
            assert answer.headers["location"].startswith("/login/dev"), route
        assert b"hers" not in answer.body.replace(b"next=", b""), route
        assert SECRET not in answer.text


@pytest.mark.slow
async def test_no_route_shows_one_user_what_another_may_read(secured: ConsoleService) -> None:
    alice, bob = AsgiBrowser(secured.app), AsgiBrowser(secured.app)
    assert await log_in(alice, "alice", PASSWORDS["alice"]) == 303
    assert await log_in(bob, "bob", PASSWORDS["bob"]) == 303
    # What alice has read is kept; bob must not get it.
    assert f"{SECRET} hers" in (await alice.get("/c/dev/topics/hers")).text
    for route in every_route(secured, topic="hers", group="group-of-hers"):
        if route.method == "POST" or route.template in OPEN:
            continue
        if route.is_stream:
            async with bob.events(route.path) as events:
                first = await anext(each async for each in events if "data" in each)
            text = first["data"]
        else:
            answer = await bob.get(f"{route.path}?topic=hers&topics=hers&group=group-of-hers&review=1")
            assert answer.status != 500, route
            text = answer.text if "octet" not in answer.headers.get("content-type", "") else str(answer.body)
        assert f"{SECRET} hers" not in text, route


@pytest.mark.slow
async def test_a_token_of_one_user_is_none_of_another(secured: ConsoleService) -> None:
    alice, bob = AsgiBrowser(secured.app), AsgiBrowser(secured.app)
    assert await log_in(alice, "alice", PASSWORDS["alice"]) == 303
    assert await log_in(bob, "bob", PASSWORDS["bob"]) == 303
    stolen = (await alice.get("/c/dev/topics")).value("csrf")
    for route in every_route(secured, topic="his"):
        if route.method == "POST":
            form = {"csrf": stolen, "topic": "his", "typed": "his", "name": "bob", "secret": PASSWORDS["bob"]}
            if route.is_api:
                answer = await bob.post_json(route.path, form, x_csrf_token=stolen)
            else:
                answer = await bob.post(route.path, form)
            assert answer.status == 403, route


@pytest.mark.slow
async def test_no_route_goes_on_after_the_logout(secured: ConsoleService) -> None:
    browser = AsgiBrowser(secured.app)
    assert await log_in(browser, "alice", PASSWORDS["alice"]) == 303
    page = await browser.get("/c/dev/topics/hers")
    await browser.post("/logout/dev", {"csrf": page.value("csrf")})
    for route in every_route(secured, topic="hers"):
        if route.method == "GET" and route.template not in OPEN | WITHOUT_SESSION:
            assert (await browser.get(route.path)).status in (303, 401), route


# Markup wherever strangers may write it


@pytest.fixture(scope="module")
def marked(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """A node with markup in keys, values, headers, groups, clients, transactions, owners and dead letters."""
    make_topic(broker.client_config, "marked", strandline_owner=EVIL)
    make_topic(broker.client_config, "dlq.marked")
    names = {"client.id": EVIL, "transactional.id": EVIL}
    writer = Producer({**broker.client_config, **names})
    writer.init_transactions(30)
    writer.begin_transaction()
    letter = {"topic": EVIL, "partition": "0", "offset": "0", "group": EVIL, "message": EVIL}
    headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in letter.items()]
    writer.produce("marked", EVIL, EVIL, headers=[(EVIL, EVIL.encode())])
    writer.produce("dlq.marked", EVIL, EVIL, headers=headers)
    writer.commit_transaction(30)
    writer.begin_transaction()
    writer.produce("marked", EVIL, EVIL)
    writer.flush(30)
    commit(broker.bootstrap, EVIL, "marked", 0)
    yield broker
    writer.abort_transaction(30)


def is_harmless(answer: Answer, place: Any) -> None:
    kind = answer.headers.get("content-type", "")
    if "attachment" in answer.headers.get("content-disposition", "") or kind.startswith(UNSEEN_KINDS):
        assert answer.headers["x-content-type-options"] == "nosniff", place
        return
    if answer.status == 303:
        assert answer.headers["location"].startswith("/"), place
        return
    assert kind.startswith("text/html"), place
    assert answer.html.suspects == [], place
    assert "img" not in answer.html.elements, place
    assert all(each.get("src", "").startswith("/static/") for each in answer.html.scripts), place
    assert "<script>alert" not in answer.text, place


@pytest.mark.slow
async def test_markup_in_what_a_cluster_holds_is_text_on_every_route(
    marked: EmbeddedBroker, make_console: MakeConsole
) -> None:
    service = make_console({"dev": marked.bootstrap})
    browser = AsgiBrowser(service.app)
    query = urlencode({"topic": "marked", "topics": "marked", "group": EVIL, "review": "1", "in": "dlq.marked"})
    for route in every_route(service, topic="marked", group=EVIL):
        if route.method == "POST":
            continue
        if route.is_stream:
            async with browser.events(f"{route.path}?after=0:0") as events:
                data = (await anext(each async for each in events if "data" in each))["data"]
            assert "<script>" not in data, route
            assert "<img" not in data, route
            continue
        answer = await browser.get(route.path + ("&" if "?" in route.path else "?") + query)
        assert answer.status != 500, route
        is_harmless(answer, route)
    shown = await browser.get("/c/dev/topics/marked")
    assert "alert(1)" in shown.words, "the markup is there, as text"


async def test_markup_in_addresses_is_text_on_every_route(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap})
    browser = AsgiBrowser(service.app)
    queries = {page.path: page for module in page_modules() for page in module.pages}
    fields = {each.name for module in page_modules() for action in module.actions for each in action.fields}
    of_actions = urlencode({**dict.fromkeys(sorted(fields), EVIL), "review": "1"})
    for values in ({}, {"cluster": EVIL}, dict.fromkeys(("topic", "group", "partition", "offset", "node"), EVIL)):
        for route in every_route(service, **values):
            page = queries.get(route.template.removeprefix("/c/{cluster}") or "/")
            names = [] if page is None else [each.name for each in page.queries]
            names += [] if page is None else [f"{each.prefix}{end}" for each in page.tables for end in ("q", "sort")]
            query = of_actions if "/do/" in route.path else urlencode(dict.fromkeys([*names, "x"], EVIL))
            if route.method == "GET" and not (route.is_stream and "cluster" not in values):
                answer = await browser.get(f"{route.path}?{query}")
                assert answer.status != 500, route
                is_harmless(answer, route)
