"""`strandline user`: users that really can log in, or no longer can, and passwords that do not show."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.cli.conftest import CommandLine

import strandline

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="root";'
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.jaas.config": JAAS,
}
LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=admin", "sasl.password=root")


class Administrator:
    def __init__(self, bootstrap: str) -> None:
        self.cli = CommandLine(bootstrap)
        self.bootstrap = bootstrap
        self.login = [word for each in LOGIN for word in ("-X", each)]

    def ok(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        return self.cli.ok("user", *arguments, *self.login, stdin=stdin).lines

    def can_log_in(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "log_level": "0"}
        login = {"sasl.username": name, "sasl.password": password}

        admin = AdminClient({"bootstrap.servers": self.bootstrap} | given | login)
        try:
            admin.list_topics(timeout=5)
        except KafkaException:
            return False
        return True


@pytest.fixture(scope="module")
def admin() -> Iterator[Administrator]:
    with strandline.embedded(properties=PROPERTIES) as broker:
        yield Administrator(broker.bootstrap)


@pytest.fixture
def name() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def test_a_user_from_its_beginning_to_its_end(admin: Administrator, name: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    assert admin.ok("create", name, "--password-file", str(file)) == [f"created {name}: SCRAM-SHA-512"]
    assert admin.can_log_in(name, "from a file")
    assert not admin.can_log_in(name, "wrong")
    assert admin.ok("rotate", name, "--password-file", "-", stdin=b"from a pipe\n") == [
        f"rotated {name}: SCRAM-SHA-512"
    ]
    assert admin.can_log_in(name, "from a pipe")
    assert not admin.can_log_in(name, "from a file")
    assert [line.split() for line in admin.ok("list") if name in line] == [[name, "SCRAM-SHA-512", "8192"]]
    assert admin.ok("delete", name, "--yes") == [f"deleted {name}: SCRAM-SHA-512"]
    assert not admin.can_log_in(name, "from a pipe")


def test_a_password_is_made_and_told_once(admin: Administrator, name: str) -> None:
    (made,) = admin.cli.ok(
        "user", "create", name, "--generate", "--json", "--mechanism", "scram-sha-256", *admin.login
    ).objects
    password = made.pop("password")
    assert made == {"user": name, "mechanisms": {"SCRAM-SHA-256": 8192}, "created": True}
    assert len(password) >= 32
    assert admin.can_log_in(name, password, "SCRAM-SHA-256")
    assert password not in " ".join(admin.ok("list"))


def test_both_mechanisms_and_one_of_them_deleted(admin: Administrator, name: str) -> None:
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096")
    admin.ok("create", name, *both, "--password-file", "-", stdin=b"p")
    admin.ok("delete", name, "--mechanism", "SCRAM-SHA-256", "--yes")
    users = {each["user"]: each["mechanisms"] for each in admin.cli.ok("user", "list", "--json", *admin.login).objects}
    assert users[name] == {"SCRAM-SHA-512": 4096}
    ended = admin.cli.run("user", "delete", name, "--mechanism", "SCRAM-SHA-256", "--yes", *admin.login)
    assert ended.status == 1
    assert "has none of SCRAM-SHA-256" in ended.stderr


def test_a_dry_run_changes_nothing(admin: Administrator, name: str) -> None:
    assert admin.ok("create", name, "--dry-run") == [f"{name} would be created: SCRAM-SHA-512"]
    assert not any(name in line for line in admin.ok("list"))
    admin.ok("create", name, "--generate")
    admin.ok("delete", name, "--dry-run")
    assert admin.ok("rotate", name, "--dry-run") == [f"{name} would be rotated: SCRAM-SHA-512"]
    assert any(name in line for line in admin.ok("list"))


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "says"),
    [
        (("create", "{name}"), b"secret", 2, "no terminal"),
        (("create", "{name}", "--generate", "--password-file", "-"), b"secret", 2, "exclude each other"),
        (("create", "{name}", "--password-file", "-"), b"\n", 2, "empty"),
        (("create", "{name}", "--password-file", "-"), b"secret\ntwice\n", 2, "more than one line"),
        (("create", "{name}", "--password-file", "-"), b"\xff", 1, "no UTF-8"),
        (("create", "{name}", "--password-file", "/no/such"), b"", 1, "cannot read"),
        (("create", "{name}", "--mechanism", "PLAIN"), b"", 2, "no mechanism"),
        (("create", "{name}", "--iterations", "100"), b"", 2, "iterations"),
        (("create", ""), b"", 2, "empty"),
        (("rotate", "{name}"), b"", 3, "there is no user"),
        (("delete", "{name}", "--yes"), b"", 3, "there is no user"),
    ],
)
def test_refused(
    admin: Administrator, name: str, arguments: tuple[str, ...], stdin: bytes, status: int, says: str
) -> None:
    words = [each.format(name=name) for each in arguments]
    ended = admin.cli.run("user", *words, *admin.login, stdin=stdin)
    assert (ended.status, says in ended.stderr) == (status, True), ended.stderr
    assert "secret" not in ended.stderr


def test_a_user_is_created_once(admin: Administrator, name: str) -> None:
    admin.ok("create", name, "--generate")
    ended = admin.cli.run("user", "create", name, "--generate", *admin.login)
    assert ended.status == 1
    assert f"user rotate {name}" in ended.stderr


def test_deleting_asks_first(admin: Administrator, name: str) -> None:
    admin.ok("create", name, "--generate")
    ended = admin.cli.run("user", "delete", name, *admin.login)
    assert ended.status == 2
    assert "nothing was deleted" in ended.stderr
