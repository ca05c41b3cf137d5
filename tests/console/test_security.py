"""What strangers may not do with a console: without a login, with forged requests, with markup in names."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.secured_node import SecuredNode, secured_node

from strandline.cli.common.client import Cluster
from strandline.client.security import ClientSecurity
from strandline.console.pages.index import page_modules
from strandline.errors import InvalidConfig
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.services.console.console_settings import ConsoleServiceSettings

pytest.importorskip("cryptography")

CREATE = {"topic": "stolen", "partitions": "1", "replicas": "1", "settings": ""}
ALICE = "alice's secret"


def paths() -> list[str]:
    """Return every route of every module, with a value for each parameter."""
    found = ["/c/dev/do/topic-create", "/api/v1/clusters/dev/do/topic-create"]
    for module in page_modules():
        for page in module.pages:
            path = "" if page.path == "/" else page.path
            found += [f"/c/dev{path}", f"/api/v1/clusters/dev{path}", f"/c/dev{path}?export=csv"]
        found += [f"/c/dev{stream.path}" for stream in module.streams]
        found += [f"/c/dev{download.path}" for download in module.downloads]
        found += [f"/c/dev/do/{action.name}?review=1" for action in module.actions]
    return [path.replace("{", "x").replace("}", "x") for path in found]


# Forged requests and markup, where there is no login


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example"])
async def test_another_host_is_refused(browser: AsgiBrowser, host: str) -> None:
    browser.host = host
    for path in ("/", "/c/dev", "/api/v1/clusters/dev", "/static/x/console.css"):
        assert (await browser.get(path)).status == 421


async def test_a_form_without_the_token_of_its_session_changes_nothing(
    browser: AsgiBrowser, broker: EmbeddedBroker, make_console: MakeConsole
) -> None:
    page = await browser.get("/c/dev/topics")
    token = page.value("csrf")
    other = AsgiBrowser(browser.app)
    others = (await other.get("/c/dev/topics")).value("csrf")
    assert token != others
    for forged in ("", "x", others, token[:-1], token + "0"):
        answer = await browser.post("/c/dev/do/topic-create", {**CREATE, "csrf": forged})
        assert answer.status == 403, forged
    # A token without the cookie that it belongs to is none.
    assert (await AsgiBrowser(browser.app).post("/c/dev/do/topic-create", {**CREATE, "csrf": token})).status == 403
    assert (await browser.post_json("/api/v1/clusters/dev/do/topic-create", CREATE)).status == 403
    assert "stolen" not in AdminClient(broker.client_config).list_topics(timeout=60).topics


async def test_a_page_of_another_site_changes_nothing_even_with_a_token(browser: AsgiBrowser) -> None:
    token = (await browser.get("/c/dev/topics")).value("csrf")
    for origin in ("http://evil.example", "null", "https://127.0.0.1:9"):
        answer = await browser.post("/c/dev/do/topic-create", {**CREATE, "csrf": token}, origin=origin)
        assert answer.status == 403
    assert (await browser.ask("GET", "/c/dev/do/topic-create?" + "review=1&topic=x")).status == 200
    assert (await browser.ask("PUT", "/c/dev/do/topic-create")).status == 405


async def test_every_answer_binds_the_browser(browser: AsgiBrowser) -> None:
    for path in ("/", "/c/dev", "/c/dev/topics", "/nothing", "/api/v1/clusters/dev", "/c/dev/topics?export=csv"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


async def test_the_cookie_is_bound_to_the_site(browser: AsgiBrowser) -> None:
    (cookie,) = (await browser.get("/c/dev")).cookies
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert (await browser.get("/c/dev")).cookies == []


async def test_markup_in_names_and_urls_is_text(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    evil = "<script>alert(1)</script>"
    make_topic(broker.client_config, "marked", strandline_owner=f'"><img src=x onerror=alert(1)>{evil}')
    quoted = "%3Cscript%3Ealert(1)%3C/script%3E%22%20onfocus=alert(1)%20x=%22"
    pages = [
        await browser.get("/c/dev/topics?q=marked"),
        await browser.get("/c/dev/topics?q=marked&internal=true"),
        await browser.get(f"/c/dev/topics?q={quoted}"),
        await browser.get(f"/c/dev/topics?sort={quoted}&x={quoted}"),
        await browser.get(f"/c/dev/topics?q=/{quoted}(/"),
        await browser.get(f"/c/dev/topics?export={quoted}"),
        await browser.get(f"/c/dev/do/topic-create?review=1&topic={quoted}&settings={quoted}"),
        await browser.get(f"/c/dev/do/{quoted}"),
        await browser.get(f"/c/{quoted}"),
        await browser.get(f"/{quoted}"),
    ]
    for page in pages:
        assert page.headers["content-type"].startswith("text/html")
        assert page.html.suspects == []
        assert "img" not in page.html.elements
        assert all(each.get("src", "").startswith("/static/") for each in page.html.scripts)
        assert evil not in page.text


async def test_a_formula_in_a_name_is_text_for_a_spreadsheet(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "calculated", strandline_owner="=HYPERLINK(1)")
    path = "/c/dev/topics?export=csv&q=calculated"
    found = await browser.until(path, lambda answer: "HYPERLINK" in answer.text)
    assert ",'=HYPERLINK(1)" in found.text


async def test_the_way_back_leads_to_no_other_site(browser: AsgiBrowser) -> None:
    token = (await browser.get("/c/dev")).value("csrf")
    for target in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
    ):
        answer = await browser.post("/preferences", {"csrf": token, "theme": "dark", "next": target})
        assert answer.headers["location"] == "/"


async def test_a_console_that_only_reads_changes_nothing(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap}, {"console.read.only": "true"})
    browser = AsgiBrowser(service.app)
    page = await browser.get("/c/dev/topics")
    assert "Create topic" not in page.words
    answer = await browser.post("/c/dev/do/topic-create", {**CREATE, "csrf": page.value("csrf")})
    assert answer.status == 403
    assert "read-only" in answer.words
    assert "stolen" not in AdminClient(broker.client_config).list_topics(timeout=60).topics


def test_what_is_open_to_others_is_read_only_or_has_tls() -> None:
    given = {"listeners": "http://0.0.0.0:0", "clusters": "dev", "cluster.dev.bootstrap.servers": "127.0.0.1:9092"}
    settings = ConsoleServiceSettings.of(given).console
    assert "open to other machines" in (settings.why_read_only(settings.clusters[0]) or "")
    with pytest.raises(InvalidConfig, match="without TLS"):
        ConsoleServiceSettings.of(given | {"cluster.dev.security.protocol": "SASL_SSL"})
    with pytest.raises(InvalidConfig, match="is unknown"):
        ConsoleServiceSettings.of(given | {"cluster.dev.bootstrap.server": "x"})


# Logins


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as made:
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient(Cluster(made.bootstrap, dict(made.admin)).settings())
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        (future,) = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", secret, ALICE.encode())]
        ).values()
        future.result()
        for each in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("salaries", 1, 1)]).values():
            each.result()
        acl = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for done in admin.create_acls([acl]).values():
            done.result()
        yield made


@pytest.fixture
def secured(node: SecuredNode, make_console: MakeConsole) -> AsgiBrowser:
    given = {f"cluster.dev.{name}": text for name, text in node.admin.items()}
    return AsgiBrowser(make_console({"dev": node.bootstrap}, given).app)


async def log_in(browser: AsgiBrowser, name: str, secret: str, kind: str = "password") -> int:
    token = (await browser.get("/login/dev")).value("csrf")
    answer = await browser.post("/login/dev", {"csrf": token, "kind": kind, "name": name, "secret": secret})
    return answer.status


async def test_nothing_is_shown_without_a_login(secured: AsgiBrowser) -> None:
    for path in paths():
        answer = await secured.get(path)
        if path.startswith("/api/"):
            # A route that only takes a POST says so.
            assert answer.status in (401, 405), path
        else:
            assert answer.status == 303, path
            assert answer.headers["location"].startswith("/login/dev?next=%2Fc%2Fdev"), path
        assert b"orders" not in answer.body
    token = (await secured.get("/login/dev")).value("csrf")
    answer = await secured.post("/c/dev/do/topic-create", {**CREATE, "csrf": token})
    assert answer.status == 303
    assert answer.headers["location"].startswith("/login/dev")


async def test_a_user_sees_and_changes_what_its_acls_allow(secured: AsgiBrowser, node: SecuredNode) -> None:
    assert await log_in(secured, "alice", ALICE) == 303
    found = (await secured.get("/api/v1/clusters/dev/topics")).json
    assert [each["topic"] for each in found["table"]["rows"]] == ["orders"]
    page = await secured.get("/c/dev/topics")
    assert "salaries" not in page.text
    assert "alice" in page.words
    answer = await secured.post("/c/dev/do/topic-create", {**CREATE, "csrf": page.value("csrf")})
    assert answer.status == 403
    assert "ACLs do not allow it" in answer.words
    root = AsgiBrowser(secured.app)
    assert await log_in(root, "admin", "root's secret") == 303
    found = (await root.get("/api/v1/clusters/dev/topics")).json
    assert [each["topic"] for each in found["table"]["rows"]] == ["orders", "salaries"]
    # What one user has read is not shown to another.
    again = (await secured.get("/api/v1/clusters/dev/topics")).json
    assert [each["topic"] for each in again["table"]["rows"]] == ["orders"]


async def test_a_topic_is_read_and_changed_by_the_acls_of_the_visitor(secured: AsgiBrowser, node: SecuredNode) -> None:
    root = AsgiBrowser(secured.app)
    assert await log_in(root, "admin", "root's secret") == 303
    written = {"csrf": (await root.get("/c/dev/topics")).value("csrf"), "kind": "text", "value": "x"}
    for topic in ("orders", "salaries"):
        assert (await root.post("/c/dev/do/topic-produce", {**written, "topic": topic})).status == 303
    assert await log_in(secured, "alice", ALICE) == 303
    assert (await secured.get("/c/dev/topics/orders")).status == 200
    assert (await secured.get("/c/dev/topics/orders/keys")).status == 200
    for tab in ("", "/partitions", "/consumers", "/settings", "/storage", "/keys", "/schema", "/contract", "/0/0"):
        answer = await secured.get(f"/c/dev/topics/salaries{tab}")
        assert answer.status == 404, tab
        assert "your ACLs do not let you see it" in answer.words
    for file in ("/export", "/0/0/download"):
        assert (await secured.get(f"/c/dev/topics/salaries{file}")).status == 404
    async with secured.events("/c/dev/live/topics/salaries") as events:
        failure = await anext(each async for each in events if each.get("event") == "failure")
    assert failure["data"]
    token = (await secured.get("/c/dev/topics")).value("csrf")
    fields = {"settings": "retention.ms=1", "partitions": "3", "before": "all", "kind": "text", "value": "x"}
    for action in ("topic-settings", "topic-partitions", "topic-trim", "topic-delete", "topic-produce"):
        for topic in ("orders", "salaries"):
            given = {**fields, "topic": topic, "typed": topic, "csrf": token}
            given |= {"partitions": "0"} if action == "topic-trim" else {}
            answer = await secured.post(f"/c/dev/do/{action}", given)
            # Of salaries she does not even learn that it is there.
            assert answer.status in ((403,) if topic == "orders" else (403, 404, 409)), (action, topic, answer.words)
    for topic in ("orders", "salaries"):
        found = (await root.get(f"/api/v1/clusters/dev/topics/{topic}/partitions")).json
        assert [(each["start"], each["end"]) for each in found["table"]["rows"]] == [(0, 1)]


async def test_a_topic_that_may_be_seen_and_not_read_says_so(secured: AsgiBrowser, node: SecuredNode) -> None:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    admin = AdminClient(Cluster(node.bootstrap, dict(node.admin)).settings())
    for made in admin.create_topics([NewTopic("memos", 1, 1)]).values():
        made.result()
    place = (ResourceType.TOPIC, "memos", ResourcePatternType.LITERAL, "User:alice", "*")
    for done in admin.create_acls([AclBinding(*place, AclOperation.DESCRIBE, AclPermissionType.ALLOW)]).values():
        done.result()
    root = AsgiBrowser(secured.app)
    assert await log_in(root, "admin", "root's secret") == 303
    token = (await root.get("/c/dev/topics")).value("csrf")
    secret = {"csrf": token, "topic": "memos", "value": "between us", "kind": "text"}
    assert (await root.post("/c/dev/do/topic-produce", secret)).status == 303
    assert await log_in(secured, "alice", ALICE) == 303
    assert (await secured.get("/c/dev/topics/memos/partitions")).status == 200
    for path in ("", "/0/0", "/export", "/0/0/download", "/keys"):
        answer = await secured.get(f"/c/dev/topics/memos{path}")
        assert answer.status == 403, path
        assert "between us" not in answer.text
        assert "ACLs do not allow it" in answer.words


async def test_a_topic_is_not_deleted_by_who_may_not_create_it_again(secured: AsgiBrowser, node: SecuredNode) -> None:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    admin = AdminClient(Cluster(node.bootstrap, dict(node.admin)).settings())
    for made in admin.create_topics([NewTopic("drafts", 1, 1)]).values():
        made.result()
    place = (ResourceType.TOPIC, "drafts", ResourcePatternType.LITERAL, "User:alice", "*")
    rights = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE, AclOperation.READ)
    for done in admin.create_acls([AclBinding(*place, each, AclPermissionType.ALLOW) for each in rights]).values():
        done.result()
    assert await log_in(secured, "alice", ALICE) == 303
    token = (await secured.get("/c/dev/topics")).value("csrf")
    asked = {"csrf": token, "topic": "drafts", "typed": "drafts"}
    assert (await secured.get("/c/dev/do/topic-recreate?topic=drafts")).status == 403
    assert (await secured.post("/c/dev/do/topic-recreate", asked)).status == 403
    assert "drafts" in admin.list_topics(timeout=10).topics


async def test_the_user_of_the_settings_is_no_visitor(secured: AsgiBrowser, node: SecuredNode) -> None:
    assert "sasl.jaas.config" in node.admin
    assert (await secured.get("/api/v1/clusters/dev/topics")).status == 401


@pytest.mark.parametrize(
    ("kind", "name", "secret"),
    [
        ("password", "alice", "wrong"),
        ("password", "nobody-here", "x"),
        ("password", "", ""),
        ("password", "a\0b", "x"),
        ("delegation", "no-token", "x"),
        ("bearer", "", "no token"),
        ("bearer", "", "a.b.c"),
        ("other", "alice", "wrong"),
    ],
)
async def test_a_wrong_login_is_refused_in_a_sentence(secured: AsgiBrowser, kind: str, name: str, secret: str) -> None:
    assert await log_in(secured, name, secret, kind) == 401
    assert (await secured.get("/c/dev/topics")).status == 303


async def test_a_login_gives_a_new_session_and_a_logout_ends_it(secured: AsgiBrowser) -> None:
    await secured.get("/login/dev")
    planted = dict(secured.cookies)
    assert await log_in(secured, "alice", ALICE) == 303
    victim = AsgiBrowser(secured.app)
    victim.cookies = planted
    assert (await victim.get("/c/dev/topics")).status == 303
    stolen = dict(secured.cookies)
    async with secured.events("/c/dev/live/overview") as events:
        await anext(events)
        token = (await secured.get("/c/dev/topics")).value("csrf")
        assert (await secured.post("/logout/dev", {"csrf": token})).status == 303
    thief = AsgiBrowser(secured.app)
    thief.cookies = stolen
    assert (await thief.get("/c/dev/topics")).status == 303
    assert (await secured.get("/c/dev/topics")).status == 303


async def test_a_live_stream_ends_with_the_logout(secured: AsgiBrowser, node: SecuredNode) -> None:
    admin = AdminClient(Cluster(node.bootstrap, dict(node.admin)).settings())
    for made in admin.create_topics([NewTopic("watched", 1, 1)]).values():
        made.result()
    other = AsgiBrowser(secured.app)
    for browser in (secured, other):
        assert await log_in(browser, "admin", "root's secret") == 303
    token = (await other.get("/c/dev/topics")).value("csrf")

    async def write(value: str) -> None:
        written = {"csrf": token, "topic": "watched", "value": value, "kind": "text"}
        assert (await other.post("/c/dev/do/topic-produce", written)).status == 303

    await write("before the logout")
    async with secured.events("/c/dev/live/topics/watched?after=0:0") as events:
        first = await anext(each async for each in events if "data" in each)
        assert "before the logout" in first["data"]
        page = await secured.get("/c/dev/topics")
        assert (await secured.post("/logout/dev", {"csrf": page.value("csrf")})).status == 303
        await write("after the logout")
        # It is the only cluster of this session, so that nothing is left of it.
        async for each in events:
            assert "data" not in each, "the stream goes on after the logout"


async def test_a_stream_of_a_header_needs_no_session(secured: AsgiBrowser) -> None:
    header = "Basic " + base64.b64encode(b"admin:root's secret").decode()
    async with secured.events("/c/dev/live/overview", authorization=header) as events:
        assert (await anext(each async for each in events if "data" in each))["data"]


async def test_a_program_logs_in_by_a_header(secured: AsgiBrowser) -> None:
    def basic(name: str, password: str) -> str:
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()

    found = await secured.get("/api/v1/clusters/dev/topics", authorization=basic("alice", ALICE))
    seen = {each["topic"] for each in found.json["table"]["rows"]}
    # Another test may have given her a topic of its own; she has no right to any other.
    assert "orders" in seen <= {"drafts", "memos", "orders"}
    wrong = await secured.get("/api/v1/clusters/dev/topics", authorization=basic("alice", "x"))
    assert wrong.status == 401
    assert (await secured.get("/api/v1/clusters/dev/topics", authorization="Negotiate x")).status == 401
    made = await secured.post_json(
        "/api/v1/clusters/dev/do/topic-create",
        {"topic": "made-by-program"},
        authorization=basic("admin", "root's secret"),
    )
    assert made.json["done"] == "Topic made-by-program was created."


def test_secrets_are_not_shown(node: SecuredNode, tmp_path: Path) -> None:
    from strandline.console.reading.user_cluster import ClusterUser, cluster_of

    user = ClusterUser("admin", ClientSecurity.of(dict(node.admin)))
    shown = repr((user, cluster_of(node.bootstrap, user)))
    assert "root's secret" not in shown
