"""`strandline topic compact`: what the cleaner does and when, and to have it done now."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.broker import existing_bootstrap

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="only our brokers clean when told to")


@pytest.fixture
def table(cli: CommandLine) -> str:
    """A compacted topic with two partitions."""
    name = f"table-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-p", "2", "-c", "cleanup.policy=compact")
    return name


def put(cli: CommandLine, topic: str, *rows: str, partition: int = 0) -> None:
    cli.ok("produce", topic, "-p", str(partition), "-K", "=", stdin="".join(f"{row}\n" for row in rows).encode())


def read(cli: CommandLine, topic: str) -> list[tuple[int, str, str | None]]:
    found = cli.ok("consume", topic, "-p", "0", "--from", "earliest", "--json").objects
    return [(record["offset"], record["key"], record["value"]) for record in found]


def stored(cli: CommandLine, topic: str) -> dict[str, Any]:
    (described,) = cli.ok("topic", "describe", topic, "--storage", "-p", "0", "--json").objects
    (found,) = described["storage"]
    log: dict[str, Any] = found
    return log


def test_a_record_without_a_key_is_refused_and_the_way_out_told(cli: CommandLine, table: str) -> None:
    ended = cli.run("produce", table, stdin=b"no key\n")
    assert ended.status == 1
    assert "a compacted topic takes no record without a key" in ended.stderr


def test_a_topic_that_is_not_compacted(cli: CommandLine, topic: str) -> None:
    for arguments in ([], ["--now"]):
        ended = cli.run("topic", "compact", topic, *arguments)
        assert ended.status == 1
        assert f"'{topic}' is not compacted: its cleanup.policy is delete" in ended.stderr
        assert f"strandline config set --topic {topic} cleanup.policy=compact" in ended.stderr


def test_what_is_named_must_exist(cli: CommandLine, table: str) -> None:
    assert cli.run("topic", "compact", f"{table}-typo").status == 3
    missing = cli.run("topic", "compact", table, "-p", "2", "--now")
    assert (missing.status, "has no partition 2" in missing.stderr) == (3, True)
