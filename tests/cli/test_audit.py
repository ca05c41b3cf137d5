"""`strandline security audit`, on a node with logins and an authorizer, and the words of single lines."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine
from tests.hostile.process import until
from tests.secured_node import SecuredNode, secured_node

from strandline.cli.common.output import Output
from strandline.cli.records.record import ReadRecord
from strandline.cli.security.audit import AuditPrinter
from strandline.cli.security.audit_words import in_words


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("audited")) as node:
        yield node


def test_what_an_administrator_sees(node: SecuredNode) -> None:
    cli = CommandLine(node.bootstrap)
    cli.environ["STRANDLINE_COMMAND_CONFIG"] = node.file(node.admin, "admin.properties")
    cli.ok("topic", "create", "orders", "--partitions", "2")
    wrong = node.file(
        node.admin | {"sasl.jaas.config": node.admin["sasl.jaas.config"].replace("root", "no")}, "wrong.properties"
    )
    assert cli.run("topic", "list", "--command-config", wrong, "--timeout", "5").status != 0
    until(lambda: len(cli.run("security", "audit", "--denied").lines) >= 1, "the failed login is told")
    lines = cli.ok("security", "audit").lines
    assert any("User:admin at 127.0.0.1: CreateTopics topic orders (partitions=2" in line for line in lines), lines
    assert any("User:admin at 127.0.0.1 logged in with SCRAM-SHA-512 at OUTSIDE" in line for line in lines)
    [failed, *_] = cli.ok("security", "audit", "--denied", "--json").objects
    assert (failed["type"], failed["outcome"], failed["principal"]) == ("login", "failure", "User:admin")
    assert cli.ok("security", "audit", "--user", "mallory").lines == []
    assert cli.run("security", "audit", "--since", "whenever").status == 2


def test_a_cluster_without_an_audit(cli: CommandLine) -> None:
    ended = cli.run("security", "audit")
    assert ended.status == 3
    assert "has no topic __strandline_audit" in ended.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"type": "audit", "outcome": "lost", "node": 2, "count": 7}, "node 2 could not keep 7 lines"),
        (
            {"type": "denial", "outcome": "reported", "operation": "READ", "resource_type": "GROUP", "resource": "g"},
            "an unknown client would be denied READ on group g",
        ),
        (
            {
                "type": "change",
                "outcome": "failure",
                "api": "DeleteTopics",
                "error": "NOT",
                "principal": "User:\x1b[2J",
            },
            r"User:\x1b[2J: DeleteTopics : NOT",
        ),
        ({"type": "login", "outcome": "success", "listener": "L", "count": 3, "first_ms": 0}, "(3 times since"),
    ],
)
def test_words_of_a_line(line: dict[str, object], words: str) -> None:
    said = in_words(line)
    assert words in said
    assert said.isprintable()


def test_a_line_that_stands_twice_is_shown_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def record(line_id: str) -> ReadRecord:
        value = json.dumps({"id": line_id, "type": "change", "outcome": "success"}).encode()
        return ReadRecord("t", 0, 0, 0, None, value, [])

    printer = AuditPrinter(Output(as_json=True), user=None, denied=False, as_json=True)
    ids = ["1-5-0", "1-5-1", "2-7-0", "1-5-0", "1-5-1", "1-5-2", "1-9-0"]
    printer.take([record(each) for each in ids])
    shown = [json.loads(line)["id"] for line in capfdbinary.readouterr().out.splitlines()]
    assert shown == ["1-5-0", "1-5-1", "2-7-0", "1-5-2", "1-9-0"]
