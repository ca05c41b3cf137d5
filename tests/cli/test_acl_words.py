"""Plain words to ACLs, and denials to suggestions, without a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine

from strandline.cli.acl.rules import AclOptions, command_of, parse_operation, principals_of, words_of
from strandline.cli.acl.suggestions import ACLS_PER_COMMAND, may_be_suggested, suggested
from strandline.cli.common.failures import UsageFailed
from strandline.security.acl.access_rule import Acl
from strandline.security.acl.denial_log import Denial, denial_line
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(kind: ResourceType, name: str, operation: Operation, *, pattern: PatternType = LITERAL, host: str = "*") -> Acl:
    return Acl(kind, pattern, name, "User:billing", host, operation, Permission.ALLOW)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclOptions(read=["orders"]), [(TOPIC, LITERAL, "orders", Operation.READ)]),
        (AclOptions(write=["orders.*"]), [(TOPIC, PREFIXED, "orders.", Operation.WRITE)]),
        (AclOptions(write=["orders."], is_prefix=True), [(TOPIC, PREFIXED, "orders.", Operation.WRITE)]),
        (AclOptions(write=["orders.*"], is_prefix=True), [(TOPIC, PREFIXED, "orders.", Operation.WRITE)]),
        (AclOptions(read=["*"], is_prefix=True), [(TOPIC, LITERAL, "*", Operation.READ)]),
        (AclOptions(read=["*"]), [(TOPIC, LITERAL, "*", Operation.READ)]),
        (AclOptions(groups=["billing"]), [(GROUP, LITERAL, "billing", Operation.READ)]),
        (AclOptions(groups=["b"], operations=["delete"]), [(GROUP, LITERAL, "b", Operation.DELETE)]),
        (
            AclOptions(transactional_ids=["app*"]),
            [(ResourceType.TRANSACTIONAL_ID, PREFIXED, "app", Operation.WRITE)],
        ),
        (
            AclOptions(cluster=True, operations=["create"], is_prefix=True),
            [(ResourceType.CLUSTER, LITERAL, "kafka-cluster", Operation.CREATE)],
        ),
        (
            AclOptions(topics=["a"], operations=["describe-configs", "ALL"]),
            [(TOPIC, LITERAL, "a", Operation.DESCRIBE_CONFIGS), (TOPIC, LITERAL, "a", Operation.ALL)],
        ),
        (AclOptions(read=["a", "a"]), [(TOPIC, LITERAL, "a", Operation.READ)]),
    ],
)
def test_words_become_rules(wanted: AclOptions, expected: list[object]) -> None:
    assert wanted.pairs() == expected


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (AclOptions(topics=["a"]), "--topic needs an operation"),
        (AclOptions(cluster=True), "--cluster needs an operation"),
        (AclOptions(operations=["read"]), "the operation of what"),
        (AclOptions(read=[""]), "a resource has a name"),
        (AclOptions(groups=["g"], operations=["write"]), "a group has no operation WRITE"),
        (AclOptions(topics=["t"], operations=["raed"]), "there is no operation 'raed'"),
        (AclOptions(topics=["t"], operations=["any"]), "there is no operation 'any'"),
    ],
)
def test_words_that_say_too_little_are_explained(wanted: AclOptions, words: str) -> None:
    with pytest.raises(UsageFailed, match=words) as failed:
        wanted.pairs()
    assert failed.value.hint


@pytest.mark.parametrize("text", ["describe_configs", "DescribeConfigs", "DESCRIBE-CONFIGS"])
def test_operations_have_kafkas_names(text: str) -> None:
    assert parse_operation(text) == Operation.DESCRIBE_CONFIGS


def test_principals() -> None:
    assert principals_of(["a", "a", "*"], ["Group:b"]) == ["User:a", "User:*", "Group:b"]
    for users, principals in ((None, ["alice"]), (None, ["User:"]), ([""], None)):
        with pytest.raises(UsageFailed):
            principals_of(users, principals)


def test_an_acl_in_words() -> None:
    denied = acl(TOPIC, "ord", Operation.ALL, pattern=PREFIXED, host="1.1.1.1")._replace(permission=Permission.DENY)
    assert words_of(denied) == "deny User:billing ALL on every topic that begins with 'ord' from 1.1.1.1"
    assert words_of(acl(TOPIC, "a", Operation.READ)) == "allow User:billing READ on topic 'a'"


@pytest.mark.parametrize(
    ("acls", "command"),
    [
        (
            [acl(TOPIC, "orders", Operation.READ), acl(GROUP, "billing", Operation.READ)],
            "--user billing --read orders --group billing",
        ),
        ([acl(TOPIC, "o.", Operation.WRITE, pattern=PREFIXED, host="::1")], "--user billing --write 'o.*' --host ::1"),
        ([acl(GROUP, "b 1", Operation.DELETE)], "--user billing --group 'b 1' --operation delete"),
        (
            [acl(ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE_CONFIGS)._replace(principal="Group:x")],
            "--principal Group:x --cluster --operation describe-configs",
        ),
    ],
)
def test_acls_become_commands_that_make_them_again(acls: list[Acl], command: str) -> None:
    assert command_of(acls) == f"strandline acl grant {command}"


def denial(
    name: str,
    operation: Operation = Operation.READ,
    kind: ResourceType = TOPIC,
    *,
    principal: str = "User:billing",
    host: str = "10.0.0.7",
) -> Denial:
    return Denial(principal, host, operation, kind, name)


def commands(*denials: Denial, by_prefix: bool = False, by_host: bool = False) -> list[str]:
    counted = dict.fromkeys(denials, 1)
    found = suggested(counted, by_prefix=by_prefix, by_host=by_host)
    return [command_of(list(acls)).removeprefix("strandline acl grant --user ") for acls in found]


def test_a_consumer_needs_its_topics_and_its_group() -> None:
    found = commands(
        denial("orders", Operation.DESCRIBE),
        denial("orders"),
        denial("orders", host="10.0.0.8"),
        denial("billing", Operation.READ, GROUP),
        denial("audit", Operation.DESCRIBE_CONFIGS),
        denial("events", Operation.WRITE, principal="User:app"),
    )
    assert found == [
        "app --write events",
        "billing --read orders --group billing",
        "billing --topic audit --operation describe-configs",
    ]


def test_hosts_may_be_kept() -> None:
    found = commands(denial("orders"), denial("orders", host="::1"), by_host=True)
    assert found == ["billing --read orders --host 10.0.0.7", "billing --read orders --host ::1"]


def test_names_that_begin_alike_become_a_prefix() -> None:
    names = (
        denial("orders.eu"),
        denial("orders.us"),
        denial("orders.us", Operation.DESCRIBE),
        denial("orders.admin", Operation.DELETE),
        denial("customers"),
        denial("__internal"),
    )
    assert commands(*names, by_prefix=True) == [
        "billing --read __internal --read customers --read 'orders.*'",
        "billing --topic orders.admin --operation delete",
    ]
    counted = suggested(dict.fromkeys(names, 3), by_prefix=True, by_host=False)
    assert {found.name: times for acls in counted for found, times in acls.items()}["orders."] == 9


def test_long_commands_are_divided() -> None:
    found = commands(*(denial(f"t{number}") for number in range(ACLS_PER_COMMAND + 5)))
    assert [line.count("--read") for line in found] == [ACLS_PER_COMMAND, 5]


@pytest.mark.parametrize(
    "asked",
    [
        denial("*", Operation.READ, GROUP),
        denial("app*", Operation.READ, GROUP),
        denial("a\x1b[2J", Operation.READ, GROUP),
        denial("", Operation.READ, GROUP),
        denial("orders", principal="User:*"),
        denial("orders", principal="nobody"),
        denial("token", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
        denial("orders", Operation.ALL),
    ],
)
def test_a_client_cannot_ask_for_a_rule_that_allows_more(asked: Denial) -> None:
    assert not may_be_suggested(asked)
    assert may_be_suggested(denial("orders"))


def test_a_log_becomes_commands(tmp_path: Path) -> None:
    asked = [denial("orders"), denial("orders"), denial("billing", Operation.READ, GROUP), denial("*", kind=GROUP)]
    lines = [f"2026-11-17 INFO strandline.authorizer: {denial_line(each, is_enforced=False)}" for each in asked]
    content = "\n".join(["a line of another kind", *lines, ""])
    log = tmp_path / "node.log"
    log.write_text(content)
    ended = CommandLine().ok("acl", "suggest", str(log))
    assert ended.lines == ["strandline acl grant --user billing --read orders --group billing"]
    assert "not suggested: 'User:billing' READ on group '*'" in ended.stderr
    assert "4 denials of 1 principal" in ended.stderr
    piped = CommandLine().ok("acl", "suggest", "--json", stdin=content.encode())
    assert [(each["name"], each["operation"], each["denials"]) for each in piped.objects] == [
        ("orders", "READ", 2),
        ("billing", "READ", 1),
    ]
    missing = CommandLine().run("acl", "suggest", str(tmp_path / "nothing"))
    assert missing.status == 3
    assert "cannot read" in missing.stderr
    assert shlex.split(ended.lines[0])[:3] == ["strandline", "acl", "grant"]
