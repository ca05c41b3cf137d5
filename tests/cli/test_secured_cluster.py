"""The command line on a cluster with TLS, logins and an authorizer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.test_completion import completed
from tests.connect.running import wait_until
from tests.secured_node import JAAS, PASSWORD, SecuredNode, secured_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.fixture
def cli(node: SecuredNode) -> CommandLine:
    """A command line whose environment names the cluster and the file of its administrator."""
    cli = CommandLine(node.bootstrap)
    more = {"client.id": "admin-tools", "default.api.timeout.ms": "60000", "retries": "5"}
    cli.environ["STRANDLINE_COMMAND_CONFIG"] = node.file(node.admin | more, "admin.properties")
    return cli


def file_of(node: SecuredNode, name: str, password: str) -> str:
    jaas = JAAS.replace("admin", name).replace(PASSWORD, password)
    return node.file(node.admin | {"sasl.jaas.config": jaas}, f"{name}.properties")


def test_every_kind_of_command(cli: CommandLine) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", topic, "--partitions", "2")
    cli.ok("produce", topic, stdin=b"one\ntwo\n")
    assert sorted(cli.ok("consume", topic, "--from", "earliest", "--format", "%s\n").lines) == ["one", "two"]
    assert topic in "\n".join(cli.ok("topic", "list").lines)
    assert cli.ok("topic", "describe", topic, "--storage", "--json").objects[0]["storage"]
    cli.ok("group", "reset", "readers", "--topic", topic, "--to-earliest", "--yes")
    lag = cli.ok("group", "lag", "readers", "--window", "0", "--json").objects
    assert sum(each["lag"] for each in lag) == 2
    assert any("readers" in line for line in cli.ok("group", "list").lines)
    cli.ok("group", "delete", "readers", "--topic", topic, "--yes")
    cli.ok("config", "set", "--topic", topic, "retention.ms=100000", "--yes")
    cli.ok("config", "get", "--all-brokers")
    cli.ok("txn", "list")
    cli.ok("cluster", "status")
    cli.ok("cluster", "quorum")
    assert cli.run("cluster", "health").status in (0, 5)
    doctor = cli.run("doctor", "--json")
    assert {"protocol", "advertised", "partitions"} <= {each["check"] for each in doctor.objects}, doctor.stderr
    assert not [each for each in doctor.objects if each["check"] == "cluster"]
    cli.ok("topic", "delete", topic, "--yes")


def test_users_and_what_they_may_do(cli: CommandLine, node: SecuredNode) -> None:
    cli.ok("topic", "create", "salaries")
    cli.ok("user", "create", "bob", "--password-file", "-", stdin=b"bob's secret\n")
    bob = file_of(node, "bob", "bob's secret")
    assert cli.ok("topic", "list", "--command-config", bob).lines == []
    cli.ok("acl", "grant", "--user", "bob", "--read", "salaries")
    assert any("bob" in line for line in cli.ok("acl", "list").lines)
    assert any("salaries" in line for line in cli.ok("topic", "list", "--command-config", bob).lines)
    refused = cli.run("acl", "list", "--command-config", bob)
    assert refused.status == 1
    cli.ok("topic", "delete", "salaries", "--yes")


def test_a_client_certificate(cli: CommandLine, node: SecuredNode) -> None:
    store = str(node.authority.issue("operator"))
    file = node.file({**node.admin, "security.protocol": "SSL", "ssl.keystore.location": store}, "operator.properties")
    bootstrap = ("--bootstrap-server", f"127.0.0.1:{node.mutual_port}", "--command-config", file)
    cli.ok("topic", "create", "mutual", *bootstrap)
    cli.ok("produce", "mutual", *bootstrap, stdin=b"one\n")
    assert cli.ok("consume", "mutual", "--from", "earliest", "--format", "%s\n", *bootstrap).lines == ["one"]
    cli.ok("topic", "delete", "mutual", "--yes", *bootstrap)


def test_failures_are_told_at_once_and_without_secrets(cli: CommandLine, node: SecuredNode) -> None:
    wrong = cli.run("topic", "list", "--command-config", file_of(node, "admin", "wrong secret"))
    assert wrong.status == 1
    assert "refused the login of 'admin'" in wrong.stderr
    assert "wrong secret" not in wrong.stderr
    missing = cli.run("topic", "list", "--command-config", "/missing.properties")
    assert (missing.status, "/missing.properties cannot be read" in missing.stderr) == (2, True)
    half = cli.run("topic", "list", "--command-config", node.file({"security.protocol": "SASL_SSL"}), "-X", "a=b")
    assert half.status != 0
    plain = cli.run("topic", "list", "-X", "security.protocol=PLAINTEXT", "--timeout", "2")
    assert (plain.status, "--command-config" in plain.stderr) == (4, True)


def test_the_status_of_security(cli: CommandLine, node: SecuredNode) -> None:
    cli.ok("user", "create", "idle", "--generate")
    cli.ok("acl", "grant", "--user", "nobody", "--read", "orders")
    *listeners, access = cli.ok("security", "status", "--json").objects
    found = {each["listener"]: (each["protocol"], each["certificate"]) for each in listeners}
    assert found == {
        "OUTSIDE": ("SASL_SSL", "CN=node"),
        "MUTUAL": ("SSL", "CN=mutual"),
        "OPEN": ("PLAINTEXT", None),
    }
    days = {round((each["certificate_ends_ms"] / 1000 - time.time()) / 86_400) for each in listeners[:2]}
    assert days == {20}
    assert access["authorizer"]
    assert "idle" in access["users_without_acls"]
    assert "admin" not in access["users_without_acls"]
    assert "User:nobody" in access["acls_without_user"]
    assert "User:bob" not in access["acls_without_user"]
    lines = cli.ok("security", "status").lines
    assert any("CN=node" in line and "days left" in line for line in lines)
    assert any(line.startswith("ACLs without user") and "User:nobody" in line for line in lines)


def test_the_status_of_a_cluster_that_is_open_to_all(bootstrap: str) -> None:
    lines = CommandLine(bootstrap).ok("security", "status").lines
    assert any("PLAINTEXT" in line for line in lines)
    assert any(line.startswith("no authorizer: every client may do everything") for line in lines)


def test_names_are_completed(cli: CommandLine) -> None:
    cli.ok("topic", "create", "completed")
    # A shell is not kept waiting: a machine that is too busy for a login in half a second offers nothing.
    wait_until(lambda: completed(cli, "topic", "describe", "comp") == ["completed"], "the name is offered")
