"""Kafka's own tool for share groups: list, describe, reset, delete, with what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.kafka_tools import Tools
from tests.scenarios.share_group_client import ShareConsumer
from tests.scenarios.test_share_groups import settled

import strandline

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "jobs"
GROUP = "workers"
# The tool takes its time, and the member of this test sends no heartbeats meanwhile.
PATIENT = {"group.share.session.timeout.ms": "600000", "group.share.max.session.timeout.ms": "600000"}


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    with strandline.embedded(properties=PATIENT) as broker:
        broker.create_topic(TOPIC, 4)
        yield Tools(broker.bootstrap, tmp_path)


def shares(tools: Tools, *arguments: str) -> str:
    return tools.run("consumer.group.ShareGroupCommand", *arguments)


def rows(said: str) -> list[list[str]]:
    """Return the rows of the table that the tool prints, without its head."""
    table = [line.split() for line in said.splitlines() if line.strip()]
    head = next(at for at, row in enumerate(table) if row[0] == "GROUP")
    return table[head + 1 :]


def test_a_share_group_by_kafkas_tool(tools: Tools) -> None:
    producer = Producer({"bootstrap.servers": tools.bootstrap})
    for _ in range(10):
        producer.produce(TOPIC, b"task", partition=1)
    assert producer.flush(30) == 0
    del producer
    port = int(tools.bootstrap.rpartition(":")[2])
    member = ShareConsumer([port], GROUP, [TOPIC])
    settled(member)

    assert shares(tools, "--list").split() == [GROUP]
    assert rows(shares(tools, "--list", "--state")) == [[GROUP, "Stable"]]
    (described,) = rows(shares(tools, "--describe", "--group", GROUP, "--members"))
    assert described[:2] == [GROUP, member.member_id]
    assert described[-1] == f"{TOPIC}:0,1,2,3"
    (state,) = rows(shares(tools, "--describe", "--group", GROUP, "--state"))
    assert (state[0], state[-2:]) == (GROUP, ["Stable", "1"])

    member.leave()
    said = shares(tools, "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    assert sorted(row[:4] for row in rows(said)) == [[GROUP, TOPIC, str(index), "0"] for index in range(4)]
    offsets = {int(row[2]): row[3] for row in rows(shares(tools, "--describe", "--group", GROUP, "--offsets"))}
    assert offsets == dict.fromkeys(range(4), "0")

    said = shares(tools, "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    assert "Successful" in said
    assert "successful" in shares(tools, "--delete", "--group", GROUP)
    assert shares(tools, "--list").split() == []
