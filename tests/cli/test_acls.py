"""`strandline acl` against a node with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.broker import shared_broker
from tests.scenarios.authorized_node import authorized_node


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    with authorized_node(tmp_path, super_users="User:root;User:CN=a,O=b;User:ANONYMOUS") as bootstrap:
        yield CommandLine(bootstrap)


def test_a_right_is_granted_listed_explained_and_revoked(cli: CommandLine) -> None:
    given = ("--user", "billing", "--read", "orders", "--group", "billing")
    planned = cli.ok("acl", "grant", *given, "--dry-run")
    assert planned.lines == [
        "would be created: allow User:billing READ on topic 'orders'",
        "would be created: allow User:billing READ on group 'billing'",
    ]
    assert "no ACLs yet" in cli.ok("acl", "list").stderr
    assert cli.ok("acl", "grant", *given).lines[0] == "created: allow User:billing READ on topic 'orders'"
    assert cli.ok("acl", "grant", *given).lines[1] == "exists: allow User:billing READ on group 'billing'"
    assert cli.ok("acl", "list", "--user", "billing").lines == [
        "PRINCIPAL     MAY  OPERATION  ON     NAME     FROM",
        "User:billing  yes  READ       topic  orders   anywhere",
        "User:billing  yes  READ       group  billing  anywhere",
    ]
    asked = ("acl", "explain", "--user", "billing", "--topic", "orders")
    assert cli.ok(*asked, "--operation", "describe").lines == [
        "allowed: an ACL allows User:billing READ on topic 'orders', which implies DESCRIBE"
    ]
    denied = cli.run(*asked, "--operation", "write")
    assert denied.status == 5
    assert denied.lines == ["denied: topic 'orders' has ACLs, but none that allows User:billing WRITE"]
    refused = cli.run("acl", "revoke", *given)
    assert refused.status == 2
    assert "delete: allow User:billing READ on topic 'orders'" in refused.stderr
    assert len(cli.ok("acl", "revoke", *given, "--dry-run").lines) == 2
    assert cli.ok("acl", "revoke", "--user", "billing", "--yes").lines[0].startswith("deleted: allow User:billing")
    gone = cli.run("acl", "revoke", "--user", "billing", "--yes")
    assert (gone.status, gone.lines) == (3, [])
    assert "User:billing has no ACL" in gone.stderr


def test_prefixes_denials_and_hosts(cli: CommandLine) -> None:
    cli.ok("acl", "grant", "--user", "app", "--write", "app.*", "--transactional-id", "app", "--prefix")
    cli.ok("acl", "grant", "--user", "*", "--topic", "app.secret", "-o", "all", "--deny", "--host", "10.0.0.9")
    listed = cli.ok("acl", "list", "--topic", "app.secret", "--json").objects
    assert [(each["principal"], each["permission"], each["pattern_type"], each["host"]) for each in listed] == [
        ("User:*", "DENY", "LITERAL", "10.0.0.9"),
        ("User:app", "ALLOW", "PREFIXED", "*"),
    ]
    asked = ("acl", "explain", "--user", "app", "--operation", "write", "--topic", "app.secret")
    assert cli.ok(*asked).lines == ["allowed: an ACL allows User:app WRITE on every topic that begins with 'app.'"]
    denied = cli.run(*asked, "--host", "10.0.0.9", "--json")
    assert denied.status == 5
    (decision,) = denied.objects
    assert decision["allowed"] is False
    assert decision["acl"]["permission"] == "DENY"
    cli.ok("acl", "grant", "--user", "eve", "--topic", "*", "--operation", "all", "--deny")
    noted = cli.ok("acl", "grant", "--user", "eve", "--read", "orders")
    assert "note: a denial wins over it: deny User:eve ALL on every topic" in noted.stderr
    kept = cli.ok("acl", "revoke", "--user", "app", "--write", "app.*", "--yes")
    assert kept.lines == ["deleted: allow User:app WRITE on every topic that begins with 'app.'"]
    assert len(cli.ok("acl", "revoke", "--user", "eve", "--deny", "--yes").lines) == 1
    assert cli.ok("acl", "list", "--user", "eve", "--json").objects[0]["permission"] == "ALLOW"


def test_what_still_allows_is_named(cli: CommandLine) -> None:
    cli.ok("acl", "grant", "--user", "*", "--read", "*")
    cli.ok("acl", "grant", "--user", "billing", "--read", "orders")
    revoked = cli.ok("acl", "revoke", "--user", "billing", "--read", "orders", "--yes")
    assert "note: another ACL still allows it: allow every client READ on every topic" in revoked.stderr


def test_super_users_are_known(cli: CommandLine) -> None:
    asked = ("acl", "explain", "--operation", "alter", "--cluster")
    assert cli.ok(*asked, "--user", "CN=a,O=b").lines == ["allowed: User:CN=a,O=b is a super user (super.users)"]
    denied = cli.run(*asked, "--user", "root", "--user", "other")
    assert denied.status == 5
    assert denied.lines == [
        "allowed: User:root is a super user (super.users)",
        "denied: no ACL covers the cluster",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("grant", "--read", "orders"), "which user?"),
        (("grant", "--user", "a"), "grant what?"),
        (("explain", "--user", "a", "--operation", "read"), "with what?"),
        (("explain", "--user", "a", "--topic", "t"), "which operation?"),
        (("explain", "--user", "a", "--topic", "t", "--operation", "all"), "one operation at a time"),
        (("list", "--topic", "t", "--group", "g"), "choose one of"),
    ],
)
def test_words_that_say_too_little(arguments: tuple[str, ...], words: str) -> None:
    ended = CommandLine().run("acl", *arguments)
    assert ended.status == 2
    assert words in ended.stderr


def test_a_cluster_without_an_authorizer_says_so() -> None:
    with shared_broker() as bootstrap:
        ended = CommandLine(bootstrap).run("acl", "list")
        assert ended.status == 1
        assert "the cluster has no authorizer, so every client may do everything" in ended.stderr
        assert "authorizer.class.name" in ended.stderr
