"""The pages Security and Audit, on a node with an authorizer; and what visitors without rights see of every page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.test_security import log_in
from tests.secured_node import SecuredNode, secured_node

from strandline.cli.common.client import Cluster
from strandline.cli.user.credentials import write_credential
from strandline.console.pages.audit import _chains, verdict
from strandline.console.pages.index import page_modules
from strandline.local.embedded_broker import EmbeddedBroker

pytest.importorskip("cryptography")

API = "/api/v1/clusters/dev"
ALICE = "alice's secret"
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    """A node with a user that may read one topic, and another ACL whose names are markup."""
    with secured_node(tmp_path_factory.mktemp("access")) as made:
        cluster = Cluster(made.bootstrap, dict(made.admin))
        write_credential(cluster, "alice", "SCRAM-SHA-512", 4096, ALICE)
        admin = AdminClient(cluster.settings())
        acls = [
            AclBinding(
                ResourceType.TOPIC,
                name,
                ResourcePatternType.LITERAL,
                principal,
                "*",
                AclOperation.READ,
                AclPermissionType.ALLOW,
            )
            for name, principal in (("orders", "User:alice"), (EVIL, f"User:{EVIL}"))
        ]
        for future in admin.create_acls(acls).values():
            future.result()
        yield made


@pytest.fixture
def secured(node: SecuredNode, make_console: MakeConsole) -> AsgiBrowser:
    given = {f"cluster.dev.{name}": text for name, text in node.admin.items()}
    return AsgiBrowser(make_console({"dev": node.bootstrap}, given).app)


async def test_users_and_acls_are_shown_to_who_may_see_them(secured: AsgiBrowser) -> None:
    assert await log_in(secured, "admin", "root's secret") == 303
    found = (await secured.get(f"{API}/security")).json
    assert {each["user"]: each["acls"] for each in found["users"]["rows"]}["alice"] == 1
    assert {(each["principal"], each["name"]) for each in found["acls"]["rows"]} == {
        ("User:alice", "orders"),
        (f"User:{EVIL}", EVIL),
    }
    page = await secured.get("/c/dev/security")
    assert page.html.suspects == []
    assert "<script>alert" not in page.text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("user=alice&operation=read&kind=topic&name=orders", "alice may read topic orders: "),
        ("user=alice&operation=write&kind=topic&name=orders", "alice may not write topic orders: "),
        ("user=admin&operation=write&kind=topic&name=orders", "admin may write topic orders: "),
        ("user=User:alice&operation=alter&kind=cluster", "User:alice may not alter the cluster: "),
    ],
)
async def test_a_right_is_explained(secured: AsgiBrowser, query: str, words: str) -> None:
    await log_in(secured, "admin", "root's secret")
    page = await secured.get(f"/c/dev/security?{query}")
    assert words in page.words
    assert "strandline acl explain" in page.words


@pytest.mark.parametrize(
    "query",
    [
        "user=alice",
        "user=alice&kind=group&operation=write&name=x",
        "user=a:b:c%00&name=x",
        "kind=planet",
        "operation=x",
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(secured: AsgiBrowser, query: str) -> None:
    await log_in(secured, "admin", "root's secret")
    assert (await secured.get(f"/c/dev/security?{query}")).status in (200, 400)
    if query != "user=a:b:c%00&name=x":
        assert (await secured.get(f"/c/dev/security?{query}")).status == 400


async def test_the_audit_tells_who_was_denied(secured: AsgiBrowser, node: SecuredNode) -> None:
    await log_in(secured, "alice", ALICE)
    form = await secured.get("/c/dev/do/topic-create?review=1&topic=forbidden")
    assert form.status == 403
    boss = AsgiBrowser(secured.app)
    await log_in(boss, "admin", "root's secret")
    path = f"{API}/audit?show=denied&user=alice"
    found = await boss.until(path, lambda each: each.status == 200 and each.json["table"]["found"] > 0)
    rows = found.json["table"]["rows"]
    assert {each["principal"] for each in rows} == {"User:alice"}
    assert {each["outcome"] for each in rows} == {"denied"}
    page = await boss.get("/c/dev/audit?show=denied")
    assert page.status == 200
    assert "denied and" in page.words
    assert (await boss.get("/c/dev/audit?records=999999")).status == 400


async def test_pages_say_what_a_visitor_may_not_see(secured: AsgiBrowser) -> None:
    await log_in(secured, "alice", ALICE)
    for module in page_modules():
        for page in module.pages:
            if "{" not in page.path:
                found = await secured.get(f"/c/dev{'' if page.path == '/' else page.path}")
                # Some pages need a name in the query, or a service that this console does not know.
                assert found.status in (200, 400, 403, 404, 409, 501), (page.name, found.words)
                assert "The console failed" not in found.words, page.name
    found = await secured.get("/c/dev/security")
    assert "It is not known who may do what" in found.words
    for action in ("group-delete?group=x", "cluster-elect?review=1", "txn-abort?transactional_id=x"):
        refused = await secured.get(f"/c/dev/do/{action}")
        assert 400 <= refused.status < 500, action


async def test_a_cluster_without_an_audit_topic_says_so(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    page = await browser.get("/c/dev/audit")
    assert page.status == 200
    assert "This cluster has no topic __strandline_audit" in page.words
    security = await browser.get("/c/dev/security?user=alice&name=orders")
    assert security.status == 200
    assert "the cluster has no authorizer" in security.words


def test_lost_lines_are_the_answer_and_the_last_anchor_counts() -> None:
    lines = [
        {"type": "audit", "outcome": "lost", "count": 3},
        {"type": "anchor", "resource": "t", "time_ms": 1, "details": {"partition": 0, "offset": 5}},
        {"type": "anchor", "resource": "t", "time_ms": 2, "details": {"partition": 0, "offset": 9}},
        {"type": "anchor", "resource": "t", "details": "nonsense"},
    ]
    assert verdict([], lines, lines)["text"] == "The nodes could not keep 3 lines: the audit has gaps."
    assert _chains(lines) == [{"topic": "t", "partition": 0, "offset": 9, "time_ms": 2}]
