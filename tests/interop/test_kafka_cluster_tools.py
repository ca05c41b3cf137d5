"""Kafka's own tools for a cluster: its quorum, its leaders, where its replicas are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.interop.kafka_tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture
def node_id(tools: Tools) -> int:
    (node_id,) = AdminClient({"bootstrap.servers": tools.bootstrap}).list_topics(timeout=30).brokers
    return int(node_id)


def test_the_quorum_is_described(tools: Tools, node_id: int) -> None:
    status = dict(
        line.split(":", 1) for line in tools.run("MetadataQuorumCommand", "describe", "--status").splitlines() if line
    )
    assert status["LeaderId"].strip() == str(node_id)
    (voter,) = json.loads(status["CurrentVoters"])
    assert voter["id"] == node_id
    replication = tools.run("MetadataQuorumCommand", "describe", "--replication").splitlines()
    assert [line.split()[0] for line in replication if line.rstrip().endswith("Leader")] == [str(node_id)]


def test_preferred_leaders_are_there_already(tools: Tools, topic: str) -> None:
    tools.create(topic)
    said = tools.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "already" in said, said
    assert topic in said, said


def test_replicas_are_reassigned_to_where_they_are(tools: Tools, topic: str, node_id: int, tmp_path: Path) -> None:
    tools.create(topic)
    wanted = tmp_path / "wanted.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [node_id]}]})
    )
    command = "reassign.ReassignPartitionsCommand"
    said = tools.run(command, "--reassignment-json-file", wanted, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in said
    assert "is completed" in tools.run(command, "--reassignment-json-file", wanted, "--verify")
    assert "No partition reassignments found" in tools.run(command, "--list")


def test_settings_of_groups_are_described(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "groups", "--entity-name", f"readers-of-{topic}")
    tools.configs("--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tools.configs("--describe", *entity)
