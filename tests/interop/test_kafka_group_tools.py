"""Kafka's own tools for groups: list, describe, reset, delete, with what they print."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.interop.kafka_tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.java]

RECORDS = 20


@pytest.fixture
def group(tools: Tools, topic: str) -> str:
    """A group that has read half of a topic and is left by its member."""
    tools.create(topic)
    producer = Producer({"bootstrap.servers": tools.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, f"{number}")
    producer.flush(30)
    with member(tools, topic, f"{topic}-group") as consumer:
        for _ in range(RECORDS // 2):
            message = consumer.poll(30)
            assert message is not None
            consumer.commit(message, asynchronous=False)
    return f"{topic}-group"


@contextmanager
def member(tools: Tools, topic: str, group: str, **more: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": tools.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def groups(tools: Tools, *arguments: str | Path) -> str:
    return tools.run("consumer.group.ConsumerGroupCommand", *arguments)


def refused(tools: Tools, *arguments: str) -> str:
    """The tool ends well also where it was refused what it asked for."""
    said = groups(tools, *arguments)
    assert "Error" in said or "failed" in said, said
    return said


def eventually(look: Callable[[], str], wanted: str) -> str:
    deadline = time.monotonic() + 60
    while wanted not in (said := look()):
        assert time.monotonic() < deadline, said
    return said


def columns(output: str) -> list[dict[str, str]]:
    """The rows of a table by the names of its columns; the lines around it are left out."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
    names = lines[head]
    return [dict(zip(names, words, strict=False)) for words in lines[head + 1 :] if len(words) >= len(names)]


def test_groups_are_listed_by_state_and_type(tools: Tools, topic: str, group: str) -> None:
    assert group in groups(tools, "--list").splitlines()
    by_state = columns(groups(tools, "--list", "--state"))
    assert {"GROUP": group, "STATE": "Empty"} in by_state
    assert group not in groups(tools, "--list", "--state", "Stable")
    by_type = groups(tools, "--list", "--type")
    assert re.search(rf"{group}\s+Classic", by_type)
    assert group not in groups(tools, "--list", "--type", "consumer")
    assert group in tools.run("GroupsCommand", "--list")


def test_an_empty_group_is_described_with_its_lag(tools: Tools, topic: str, group: str) -> None:
    said = groups(tools, "--describe", "--group", group)
    (row,) = columns(said)
    assert row["CONSUMER-ID"] == "-"
    assert (row["TOPIC"], row["PARTITION"]) == (topic, "0")
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("10", "20", "10")
    state = groups(tools, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*Empty\s+0", state)
    assert "not found" in refused(tools, "--describe", "--group", "nobody-at-all")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_described_and_kept(tools: Tools, topic: str, group: str, protocol: str) -> None:
    with member(tools, topic, group, group_protocol=protocol) as consumer:
        assert consumer.poll(60) is not None
        said = groups(tools, "--describe", "--group", group)
        (row,) = columns(said)
        assert (row["CURRENT-OFFSET"], row["CLIENT-ID"]) == ("10", "reader")
        assert "127.0.0.1" in row["HOST"]
        members = groups(tools, "--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}(0)" in members or f"{topic}:0" in members
        state = groups(tools, "--describe", "--group", group, "--state", "--verbose")
        assert re.search(rf"{group}\s.*Stable\s.*1", state)
        assert "not empty" in refused(tools, "--delete", "--group", group)
        reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
        assert "inactive" in refused(tools, *reset)
        assert "subscribed" in refused(tools, "--delete-offsets", "--group", group, "--topic", topic)


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (("--to-earliest",), "0"),
        (("--to-latest",), "20"),
        (("--to-offset", "3"), "3"),
        (("--shift-by", "-4"), "6"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--by-duration", "P1D"), "0"),
        (("--to-current",), "10"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_offsets_are_reset(tools: Tools, topic: str, group: str, where: tuple[str, ...], offset: str) -> None:
    (planned,) = columns(groups(tools, "--reset-offsets", "--group", group, "--topic", topic, *where, "--dry-run"))
    assert planned["NEW-OFFSET"] == offset
    groups(tools, "--reset-offsets", "--group", group, "--topic", topic, *where, "--execute")
    (row,) = columns(groups(tools, "--describe", "--group", group))
    assert row["CURRENT-OFFSET"] == offset


def test_offsets_are_reset_from_a_file(tools: Tools, topic: str, group: str, tmp_path: Path) -> None:
    wanted = tmp_path / "offsets.csv"
    wanted.write_text(f"{topic},0,7\n")
    groups(tools, "--reset-offsets", "--group", group, "--from-file", wanted, "--execute")
    (row,) = columns(groups(tools, "--describe", "--group", group))
    assert row["CURRENT-OFFSET"] == "7"


def test_offsets_and_groups_are_deleted(tools: Tools, topic: str, group: str) -> None:
    said = groups(tools, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in said
    assert topic not in groups(tools, "--describe", "--group", group)
    said = groups(tools, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in said
    assert group not in groups(tools, "--list").splitlines()
    refused(tools, "--delete", "--group", group)
