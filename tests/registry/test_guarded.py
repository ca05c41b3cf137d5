"""A registry behind the guard, off loopback: TLS, the users of the cluster, and their rights on each subject."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.registry.running_registry import TIMEOUT_S, RunningRegistry, User, serve_command, start, stopped
from tests.registry.test_rest import A_B, A_C, A, code
from tests.secured_node import PASSWORD, SecuredNode, secured_node

from strandline.client.security import ClientSecurity
from strandline.config.properties import format_properties

ADMIN: User = ("admin", PASSWORD)
WRITER: User = ("writer", "writer's secret")
READER: User = ("reader", "reader's secret")
KEEPER: User = ("keeper", "keeper's secret")
STRANGER: User = ("stranger", "stranger's secret")
SERVICE: User = ("registry", "registry's secret")

ALLOWED: list[tuple[User, AclOperation, ResourceType, str]] = [
    (WRITER, AclOperation.WRITE, ResourceType.TOPIC, "orders"),
    (READER, AclOperation.READ, ResourceType.TOPIC, "orders"),
    (READER, AclOperation.READ, ResourceType.TOPIC, "alias"),
    (KEEPER, AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "orders"),
    (KEEPER, AclOperation.DELETE, ResourceType.TOPIC, "orders"),
    # What docs/registry.md says that the user of the service needs.
    (SERVICE, AclOperation.DESCRIBE, ResourceType.BROKER, "kafka-cluster"),
    (SERVICE, AclOperation.DESCRIBE_CONFIGS, ResourceType.BROKER, "kafka-cluster"),
    (SERVICE, AclOperation.CREATE, ResourceType.TOPIC, "_schemas"),
    (SERVICE, AclOperation.READ, ResourceType.TOPIC, "_schemas"),
    (SERVICE, AclOperation.WRITE, ResourceType.TOPIC, "_schemas"),
    (SERVICE, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "_schemas"),
    (SERVICE, AclOperation.READ, ResourceType.GROUP, "schema-registry"),
    (SERVICE, AclOperation.READ, ResourceType.GROUP, "strandline-registry-reader"),
    (SERVICE, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "schema-registry-primary"),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        given = ClientSecurity.of(node.admin).librdkafka()
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0, **given})
        for user in (WRITER, READER, KEEPER, STRANGER, SERVICE):
            credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            upsertion = UserScramCredentialUpsertion(user[0], credential, user[1].encode())
            admin.alter_user_scram_credentials([upsertion])[user[0]].result()
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rules = [
            AclBinding(kind, name, literal, f"User:{user[0]}", "*", each, allow) for user, each, kind, name in ALLOWED
        ]
        for made in admin.create_acls(rules).values():
            made.result()
        yield node


def service_file(node: SecuredNode, user: User, name: str) -> Path:
    """Return a file with the settings of a registry that other machines reach."""
    jaas = (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user[0]}" password="{user[1]}";'
    )
    certificate = node.authority.issue(name, names=("DNS:localhost", "IP:127.0.0.1"))
    settings = {
        **node.admin,
        "sasl.jaas.config": jaas,
        "bootstrap.servers": node.bootstrap,
        "listeners": "https://0.0.0.0:0",
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(certificate),
        "host.name": "localhost",
        "http.authentication": "basic",
    }
    path = node.root / f"{name}.properties"
    path.write_text(format_properties(settings))
    return path


def start_guarded(node: SecuredNode, user: User, name: str) -> RunningRegistry:
    config = service_file(node, user, name)
    context = ssl.create_default_context(cafile=str(node.authority.trusted))
    registry = start([sys.executable, "-m", "strandline", "registry", "serve", "--config", str(config)], context)
    # Its certificate is not one of 0.0.0.0.
    registry.url = registry.url.replace("0.0.0.0", "localhost")
    assert registry.url.startswith("https://localhost:")
    return registry


@pytest.fixture(scope="module")
def pair(node: SecuredNode) -> Iterator[list[RunningRegistry]]:
    """Two registries of one group: one of them sends writes on to the other."""
    with ExitStack() as stack:
        yield [stack.enter_context(stopped(start_guarded(node, SERVICE, f"registry-{each}"))) for each in range(2)]


@pytest.fixture(scope="module")
def guarded(pair: list[RunningRegistry]) -> RunningRegistry:
    """A registry with a schema that two subjects share, and one that only an administrator sees."""
    registry = pair[0]
    for subject, schema in (("orders-value", A), ("salaries-value", A), ("salaries-value", A_B)):
        assert registry.register(subject, schema, user=ADMIN)[0] == 200
    return registry


def id_of(registry: RunningRegistry, subject: str, version: int) -> int:
    found: int = registry.ask("GET", f"/subjects/{subject}/versions/{version}", user=ADMIN)[1]["id"]
    return found


def test_only_users_of_the_cluster_are_served(guarded: RunningRegistry) -> None:
    for user in (None, ("writer", "wrong"), ("nobody", "x")):
        status, answer = guarded.ask("GET", "/subjects", user=user)
        assert (status, answer["error_code"]) == (401, 401)
    for path in ("/livez", "/readyz"):
        assert text_at(guarded, path) == "ok\n"


def text_at(registry: RunningRegistry, path: str) -> str:
    with urlopen(registry.url + path, timeout=TIMEOUT_S, context=registry._context) as answer:
        text: str = answer.read().decode()
        return text


def test_lists_show_what_the_caller_may_see(guarded: RunningRegistry) -> None:
    for user, seen in ((ADMIN, {"orders-value", "salaries-value"}), (READER, {"orders-value"}), (STRANGER, set())):
        assert set(guarded.ask("GET", "/subjects", user=user)[1]) == seen
        assert {each["subject"] for each in guarded.ask("GET", "/schemas", user=user)[1]} == seen


def test_a_schema_is_seen_with_one_of_its_subjects(guarded: RunningRegistry) -> None:
    shared, hidden = id_of(guarded, "orders-value", 1), id_of(guarded, "salaries-value", 2)
    assert shared == id_of(guarded, "salaries-value", 1)
    ask = guarded.ask
    guid = ask("GET", f"/schemas/ids/{hidden}", user=ADMIN)[1]["guid"]
    for user in (READER, WRITER):
        assert ask("GET", f"/schemas/ids/{shared}", user=user)[0] == 200
        assert ask("GET", f"/schemas/ids/{shared}/subjects", user=user) == (200, ["orders-value"])
        assert ask("GET", f"/schemas/ids/{shared}/versions", user=user)[1] == [
            {"subject": "orders-value", "version": 1}
        ]
    never = ask("GET", "/schemas/ids/99999", user=READER)
    for user, schema_id in ((READER, hidden), (STRANGER, shared), (STRANGER, hidden)):
        for path in (f"/schemas/ids/{schema_id}", f"/schemas/ids/{schema_id}/schema"):
            status, answer = ask("GET", path, user=user)
            # Word for word what an id has that was never given out.
            assert (status, str(answer).replace(str(schema_id), "99999")) == (404, str(never[1]))
        assert code(ask("GET", f"/schemas/ids/{schema_id}/subjects", user=user)) == (404, 40403)
    assert code(ask("GET", f"/schemas/guids/{guid}", user=READER)) == (404, 40403)
    assert ask("GET", f"/schemas/guids/{guid}/ids", user=READER) == (200, [])
    assert ask("GET", f"/schemas/guids/{guid}", user=ADMIN)[0] == 200


DENIED: list[tuple[User, str, str, Any]] = [
    (READER, "POST", "/subjects/orders-value/versions", {"schema": json.dumps(A_B)}),
    (READER, "GET", "/subjects/salaries-value/versions", None),
    (READER, "GET", "/subjects/salaries-value/versions/1/schema", None),
    (READER, "POST", "/subjects/salaries-value", {"schema": json.dumps(A)}),
    (READER, "POST", "/compatibility/subjects/salaries-value/versions/latest?verbose=true", {"schema": json.dumps(A)}),
    (READER, "GET", "/config/salaries-value", None),
    (READER, "GET", "/mode/salaries-value?defaultToGlobal=true", None),
    # What there is not is answered alike.
    (READER, "GET", "/subjects/nothing-value/versions", None),
    (STRANGER, "GET", "/subjects/orders-value/versions", None),
    (WRITER, "PUT", "/config/orders-value", {"compatibility": "NONE"}),
    (WRITER, "PUT", "/mode/orders-value", {"mode": "READONLY"}),
    (WRITER, "DELETE", "/config/orders-value", None),
    (WRITER, "DELETE", "/subjects/orders-value", None),
    (WRITER, "DELETE", "/subjects/orders-value/versions/1?permanent=true", None),
    # It would go around the compatibility that others set.
    (WRITER, "POST", "/subjects/orders-value/versions?force=true", {"schema": json.dumps(A_C)}),
    # A context is another place.
    (WRITER, "POST", "/subjects/:.sales:orders-value/versions", {"schema": json.dumps(A)}),
    (WRITER, "POST", "/contexts/.sales/subjects/orders-value/versions", {"schema": json.dumps(A)}),
    # References show what they lead to, in reasons and in errors.
    (
        WRITER,
        "POST",
        "/subjects/orders-value/versions",
        {"schema": '"R"', "references": [{"name": "R", "subject": "salaries-value", "version": 1}]},
    ),
    (KEEPER, "PUT", "/config", {"compatibility": "NONE"}),
    (KEEPER, "PUT", "/contexts/.sales/mode", {"mode": "READONLY"}),
    (KEEPER, "DELETE", "/contexts/.sales", None),
    (KEEPER, "POST", "/subjects/orders-value/versions", {"schema": json.dumps(A_B)}),
    # The rights are those of the subject that an alias stands for.
    (READER, "GET", "/subjects/alias-value/versions", None),
]


@pytest.mark.parametrize(("user", "method", "path", "body"), DENIED)
def test_what_the_caller_may_not_do_is_denied_by_either_registry(
    pair: list[RunningRegistry], guarded: RunningRegistry, user: User, method: str, path: str, body: Any
) -> None:
    if "alias" in path:
        assert guarded.ask("PUT", "/config/alias-value", {"alias": "salaries-value"}, user=ADMIN)[0] == 200
    for registry in pair:
        status, answer = registry.ask(method, path, body, user=user)
        assert status == 403, answer
        assert answer["error_code"] == 40301
        assert answer["message"].startswith(f"User:{user[0]} may not ")


def test_each_right_is_enough_for_its_requests(pair: list[RunningRegistry], guarded: RunningRegistry) -> None:
    subject = "/subjects/orders-value"
    # Through either of them, so that one write is sent on with the credentials of its caller.
    for registry, schema in zip(pair, (A, A_B), strict=True):
        assert registry.register("orders-value", schema, user=WRITER)[0] == 200
    for user in (READER, WRITER, KEEPER):
        assert guarded.ask("GET", f"{subject}/versions", user=user) == (200, [1, 2])
        assert guarded.ask("GET", "/config", user=user)[0] == 200
        assert guarded.ask("GET", "/schemas/types", user=user)[0] == 200
    assert guarded.ask("POST", subject, {"schema": json.dumps(A)}, user=READER)[1]["version"] == 1
    for registry in pair:
        assert registry.ask("PUT", "/config/orders-value", {"compatibility": "FULL"}, user=KEEPER)[0] == 200
        assert registry.ask("PUT", "/config", {"compatibility": "BACKWARD"}, user=ADMIN)[0] == 200
    assert guarded.ask("DELETE", f"{subject}/versions/2", user=KEEPER) == (200, 2)


def test_names_that_point_here_and_pages_of_other_sites_are_refused(guarded: RunningRegistry) -> None:
    assert guarded.ask("GET", "/subjects", user=ADMIN, headers={"Host": "evil.example.com"})[0] == 421
    page = {"Origin": "https://evil.example.com"}
    assert guarded.ask("PUT", "/config", {"compatibility": "NONE"}, user=ADMIN, headers=page)[0] == 403


@pytest.mark.slow
def test_off_loopback_it_starts_only_with_tls_and_users(node: SecuredNode) -> None:
    config = service_file(node, SERVICE, "bare").read_text()
    (node.root / "bare.properties").write_text(config.replace("http.authentication=basic", ""))
    command = [sys.executable, "-m", "strandline", "registry", "serve", "--config", str(node.root / "bare.properties")]
    for arguments, why in (
        ([], "without authentication"),
        (["-X", "http.authentication=basic", "--listen", "http://0.0.0.0:0"], "without TLS"),
        (["-X", "http.authentication=basic", "-X", "host.name="], "host.name"),
        (["-X", "http.authentification=basic"], "http.authentification is unknown"),
    ):
        ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
        assert ended.returncode == 2, ended.stderr
        assert why in " ".join(ended.stderr.split())


def test_on_loopback_a_caller_without_a_name_has_the_rights_of_anonymous(node: SecuredNode) -> None:
    command = [*serve_command(node.bootstrap), "--command-config", node.file(node.admin), "--topic", "_other"]
    with stopped(start(command)) as registry:
        assert registry.ask("GET", "/subjects") == (200, [])
        assert code(registry.register("orders-value", A)) == (403, 40301)
