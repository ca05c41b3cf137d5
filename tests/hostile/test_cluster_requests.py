"""A cluster of three and a stranger who speaks the nodes' own language, badly: an error answer, never an exit.

When all is over every node is the process it was, no exception reached the top, the same controller is in office, and
what was acknowledged before is read by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bench.asking import Question
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.hostile.cluster_cases import Case, Facts, cases
from tests.hostile.process import until

import strandline
from strandline.codec.message import Message
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode
from strandline.local.embedded_cluster import EmbeddedCluster

TOPIC = "target"
RECORDS = 100


class Stage:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.facts = self.look_around()

    def look_around(self) -> Facts:
        with Question("127.0.0.1", self.cluster.nodes[1].port) as question:
            quorum = question.quorum()
            answer = question.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
        topic = answer.topics[0]
        partition = topic.partitions[0]
        follower = next(replica for replica in partition.replica_nodes if replica != partition.leader_id)
        return Facts(
            self.cluster.layout.cluster_id,
            quorum.leader,
            quorum.epoch,
            TOPIC,
            topic.topic_id,
            partition.leader_id,
            partition.leader_epoch,
            follower,
        )

    def ask(self, to: str, request: Message, version: int) -> Any:
        facts = self.facts
        node_id = {
            "active": facts.quorum_leader,
            "passive": facts.quorum_leader % 3 + 1,
            "leader": facts.leader,
            "follower": facts.follower,
        }[to]
        place = self.cluster.nodes[node_id].place
        port = place.controller_port if to in ("active", "passive") else place.port
        assert port is not None
        with Question("127.0.0.1", port, timeout_s=60.0) as question:
            return question.ask(request, version)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        # Two elections, so that there is an epoch that has passed.
        for _ in range(2):
            leader = cluster.leader_of(TOPIC)
            cluster.restart(leader)
            cluster.wait_in_sync(TOPIC)
        produced = produce(cluster)
        made = Stage(cluster)
        assert made.facts.leader_epoch >= 1, "no leader epoch has passed"
        pids = {node_id: node.pid for node_id, node in cluster.nodes.items()}
        yield made
        assert {node_id: node.pid for node_id, node in cluster.nodes.items()} == pids
        for node_id, text in cluster.stderr_texts().items():
            assert "Traceback" not in text, f"node {node_id}: {text[text.index('Traceback') - 500 :][:4000]}"
        until(lambda: made.look_around().leader > 0, "the partition has a leader")
        assert consume(cluster) == produced
        assert len(produce(cluster)) == RECORDS


def produce(cluster: EmbeddedCluster) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
    values = [b"%d" % number for number in range(RECORDS)]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0
    return values


def consume(cluster: EmbeddedCluster) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return [message.value() for message in consumer.consume(RECORDS, 30)]
    finally:
        consumer.close()


def codes(answer: Any) -> set[int]:
    """Every error code in an answer, wherever it stands."""
    found = set()
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name == "error_code":
            found.add(value)
        elif field.struct is not None:
            for part in value if isinstance(value, list) else [value]:
                if part is not None:
                    found |= codes(part)
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.name}, to {case.to}") for case in cases()])
def test_what_is_wrong_gets_an_error(stage: Stage, case: Case) -> None:
    answer = stage.ask(case.to, case.request(stage.facts), case.version)
    found = {ErrorCode(code).name for code in codes(answer)} - {"NONE"}
    assert found == {case.expected.name}, answer


def test_nobody_lost_an_office(stage: Stage) -> None:
    for case in cases():
        stage.ask(case.to, case.request(stage.facts), case.version)
    assert stage.look_around() == stage.facts
