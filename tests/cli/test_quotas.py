"""`strandline quota ...` against a broker, and its words without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine

from strandline.cli.common.failures import UsageFailed
from strandline.cli.quota.words import entity_of, parse_quota, quota_words
from strandline.config.quota_keys import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)


@pytest.mark.parametrize(
    ("key", "text", "value", "words"),
    [
        (PRODUCER_BYTE_RATE, "10MB/s", 10_000_000, "10 MB/s"),
        (PRODUCER_BYTE_RATE, "1.5 mb", 1_500_000, "1.5 MB/s"),
        (PRODUCER_BYTE_RATE, "10MiB/s", 10 * 1024 * 1024, "10 MiB/s"),
        (CONSUMER_BYTE_RATE, "500kB", 500_000, "500 kB/s"),
        (CONSUMER_BYTE_RATE, "123", 123, "123 B/s"),
        (REQUEST_PERCENTAGE, "50%", 50, "50% of a broker's time"),
        (REQUEST_PERCENTAGE, "12.5", 12.5, "12.5% of a broker's time"),
        (CONTROLLER_MUTATION_RATE, "20/s", 20, "20 partitions/s"),
        (CONNECTION_CREATION_RATE, "10/s", 10, "10 connections/s"),
    ],
)
def test_quotas_are_said_in_plain_words(key: str, text: str, value: float, words: str) -> None:
    assert parse_quota(key, text) == value
    assert quota_words(key, value) == words


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PRODUCER_BYTE_RATE, "fast"),
        (PRODUCER_BYTE_RATE, "-1"),
        (PRODUCER_BYTE_RATE, "10%"),
        (PRODUCER_BYTE_RATE, "0.5"),
        (PRODUCER_BYTE_RATE, ""),
        (REQUEST_PERCENTAGE, "10MB/s"),
        (CONNECTION_CREATION_RATE, "1.5/s"),
    ],
)
def test_what_is_no_quota_is_refused(key: str, text: str) -> None:
    with pytest.raises(UsageFailed):
        parse_quota(key, text)


@pytest.mark.parametrize("text", ["0", "0MB/s", "0%", "0.0"])
def test_zero_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageFailed, match="zero") as failure:
        parse_quota(REQUEST_PERCENTAGE if "%" in text else PRODUCER_BYTE_RATE, text)
    assert "\n" not in failure.value.message


def test_entities_that_contradict_themselves_are_refused() -> None:
    for arguments in (
        ("alice", True, None, False, None, False),
        ("alice", False, None, False, "10.0.0.1", False),
        ("", False, None, False, None, False),
    ):
        with pytest.raises(UsageFailed):
            entity_of(*arguments)
    assert entity_of(None, False, None, False, None, False) is None


@pytest.fixture
def quotas(cli: CommandLine) -> Iterator[CommandLine]:
    delete_quotas(cli)
    yield cli
    delete_quotas(cli)


def delete_quotas(cli: CommandLine) -> None:
    """Delete all of them, because tests share the broker."""
    for each in cli.ok("quota", "list", "--json").objects:
        options = []
        for kind, name in each.items():
            if kind != "quotas":
                option = kind.replace("_", "-")
                options += [f"--default-{option}"] if name is None else [f"--{option}", str(name)]
        cli.ok("quota", "delete", *options, "--yes")


def test_quotas_are_set_listed_and_deleted(quotas: CommandLine) -> None:
    cli = quotas
    assert cli.ok("quota", "list").stderr.strip().endswith("there are no quotas")
    told = cli.ok("quota", "set", "--user", "billing", "--produce", "10MB/s", "--requests", "50%").lines
    assert told == [
        "user billing has produce: 10 MB/s (before: no limit)",
        "user billing has requests: 50% of a broker's time (before: no limit)",
    ]
    (changed,) = cli.ok("quota", "set", "--user", "billing", "--produce", "20MB/s", "--json").objects
    assert changed == {
        "user": "billing",
        "before": {"producer_byte_rate": 10_000_000, "request_percentage": 50},
        "after": {"producer_byte_rate": 20_000_000, "request_percentage": 50},
        "dry_run": False,
    }
    cli.ok("quota", "set", "--user", "billing", "--default-client-id", "--fetch", "5MB/s")
    cli.ok("quota", "set", "--default-ip", "--connections", "50/s")
    listed = cli.ok("quota", "list", "--json").objects
    assert {"user": "billing", "client_id": None, "quotas": {"consumer_byte_rate": 5_000_000}} in listed
    assert {"ip": None, "quotas": {"connection_creation_rate": 50}} in listed
    assert len(cli.ok("quota", "list", "--user", "billing", "--json").objects) == 2
    table = "\n".join(cli.ok("quota", "list").lines)
    assert "every client id without its own" in table
    assert "20 MB/s" in table
    refused = cli.run("quota", "delete", "--user", "billing", "--produce")
    assert refused.status == 2
    assert "--yes" in refused.stderr
    cli.ok("quota", "delete", "--user", "billing", "--produce", "--yes")
    assert {"user": "billing", "quotas": {"request_percentage": 50}} in cli.ok("quota", "list", "--json").objects


def test_dry_run_changes_nothing(quotas: CommandLine) -> None:
    said = quotas.ok("quota", "set", "--client-id", "app", "--fetch", "1MB/s", "--dry-run").lines
    assert said == ["client id app could have fetch: 1 MB/s (before: no limit)"]
    assert quotas.ok("quota", "list", "--json").objects == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("set", "--produce", "1MB/s"), 2, "--user NAME"),
        (("set", "--user", "a"), 2, "nothing to set"),
        (("set", "--user", "a", "--produce", "0"), 2, "above zero"),
        (("set", "--user", "a", "--connections", "5/s"), 1, "connection_creation_rate"),
        (("set", "--ip", "no.such.host", "--connections", "5/s"), 1, "not a valid IP"),
        (("delete", "--user", "stranger", "--yes"), 1, "has no quota"),
    ],
)
def test_refusals_say_what_to_do(cli: CommandLine, arguments: tuple[str, ...], status: int, words: str) -> None:
    ended = cli.run("quota", *arguments)
    assert ended.status == status
    assert words in ended.stderr
