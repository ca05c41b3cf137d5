"""Validated topics in a cluster: ids come from the leader of `_schemas`, and what it has not said decides nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.hostile.peer import Peer
from tests.hostile.process import until
from tests.registry.validated_topics import (
    VALIDATED,
    batch_of,
    configure,
    create,
    reasons,
    schema_record,
    send,
    with_id,
)

import strandline
from strandline.errors import ErrorCode
from strandline.local.embedded_cluster import EmbeddedCluster

SCHEMAS = "_schemas"
INVALID, LATER = int(ErrorCode.INVALID_RECORD), int(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with strandline.embedded(nodes=3) as started:
        started.create_topic(SCHEMAS, cleanup_policy="compact")
        yield started
        for text in started.stderr_texts().values():
            assert "Traceback" not in text


def register(cluster: EmbeddedCluster, subject: str, schema_id: int, **settings: str) -> None:
    """Write what a registry writes, and return when it is committed."""
    key, value = schema_record(subject, schema_id, schema_id)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **settings})
    producer.produce(SCHEMAS, value, key, partition=0)
    assert producer.flush(30) == 0


def peer_at(cluster: EmbeddedCluster, node_id: int) -> Peer:
    return Peer(cluster.nodes[node_id].port)


def topic_elsewhere(cluster: EmbeddedCluster) -> str:
    """A validated topic whose leader does not lead the topic of schemas."""
    for _ in range(20):
        topic = create(cluster.bootstrap, VALIDATED, replicas=3)
        if cluster.leader_of(topic) != cluster.leader_of(SCHEMAS):
            cluster.wait_in_sync(topic)
            return topic
    raise AssertionError("one node leads everything")


@pytest.mark.slow
def test_every_leader_knows_an_id_as_soon_as_it_is_registered(cluster: EmbeddedCluster) -> None:
    topics = [create(cluster.bootstrap, VALIDATED, replicas=3) for _ in range(3)]
    for topic in topics:
        cluster.wait_in_sync(topic)
    leaders = {topic: cluster.leader_of(topic) for topic in topics}
    peers = {leader: peer_at(cluster, leader) for leader in set(leaders.values())}
    for schema_id in range(100, 104):
        for topic in topics:
            register(cluster, f"{topic}-value", schema_id)
            assert send(peers[leaders[topic]], topic, batch_of([with_id(schema_id)])).error_code == 0
    for peer in peers.values():
        peer.close()


def test_without_the_leader_of_schemas_only_known_ids_are_judged(cluster: EmbeddedCluster) -> None:
    topic = topic_elsewhere(cluster)
    register(cluster, f"{topic}-value", 200)
    keeper = cluster.leader_of(SCHEMAS)
    with peer_at(cluster, cluster.leader_of(topic)) as peer:
        assert send(peer, topic, batch_of([with_id(200)])).error_code == 0
        cluster.pause(keeper)
        try:
            # With one replica paused, acks=all waits for it; what is rejected is rejected before.
            result = send(peer, topic, batch_of([with_id(201)]))
            assert result.error_code == LATER
            assert not result.record_errors
            assert send(peer, topic, batch_of([b"raw"])).error_code == INVALID
        finally:
            cluster.resume(keeper)
        until(lambda: send(peer, topic, batch_of([with_id(201)])).error_code == INVALID, "it is judged again")
        register(cluster, f"{topic}-value", 201)
        assert send(peer, topic, batch_of([with_id(201)])).error_code == 0


@pytest.mark.slow
def test_a_new_leader_of_schemas_is_followed(cluster: EmbeddedCluster) -> None:
    topic = topic_elsewhere(cluster)
    keeper = cluster.leader_of(SCHEMAS)
    cluster.kill(keeper)
    until(lambda: cluster.leader_of(SCHEMAS) != keeper, "another node leads it")
    register(cluster, f"{topic}-value", 300)
    with peer_at(cluster, cluster.leader_of(topic)) as peer:
        until(lambda: send(peer, topic, batch_of([with_id(300)])).error_code == 0, "the id is known")
    cluster.start(keeper)
    cluster.wait_in_sync(SCHEMAS)


def test_what_a_registry_did_not_commit_is_not_registered(cluster: EmbeddedCluster) -> None:
    topic = topic_elsewhere(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    with peer_at(cluster, cluster.leader_of(topic)) as peer:
        for is_committed, schema_id in ((False, 400), (True, 401)):
            producer.begin_transaction()
            key, value = schema_record(f"{topic}-value", schema_id, schema_id)
            producer.produce(SCHEMAS, value, key, partition=0)
            producer.flush(30)
            assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == INVALID, "not committed yet"
            producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
            if is_committed:
                # The producer is answered when the commit is decided; its marker follows.
                until(lambda: send(peer, topic, batch_of([with_id(401)])).error_code == 0, "the id is known")
            else:
                assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == INVALID


def test_a_topic_of_schemas_that_was_made_again_has_its_own_ids(cluster: EmbeddedCluster) -> None:
    topic = topic_elsewhere(cluster)
    register(cluster, f"{topic}-value", 500)
    with peer_at(cluster, cluster.leader_of(topic)) as peer:
        assert send(peer, topic, batch_of([with_id(500)])).error_code == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_topics([SCHEMAS])[SCHEMAS].result()
        cluster.create_topic(SCHEMAS, cleanup_policy="compact")
        until(lambda: send(peer, topic, batch_of([with_id(500)])).error_code == INVALID, "the old ids are gone")
        assert "which is not registered" in reasons(send(peer, topic, batch_of([with_id(500)])))[0]
        register(cluster, f"{topic}-value", 501)
        assert send(peer, topic, batch_of([with_id(501)])).error_code == 0


@pytest.mark.slow
def test_leaders_only_validate(cluster: EmbeddedCluster) -> None:
    """What a leader stored before it validated, followers copy; and another leader validates from its first batch."""
    topic = create(cluster.bootstrap, {}, replicas=3)
    cluster.wait_in_sync(topic)
    leader = cluster.leader_of(topic)
    with peer_at(cluster, leader) as peer:
        assert send(peer, topic, batch_of([b"raw"])).error_code == 0
    configure(cluster.bootstrap, topic, confluent_value_schema_validation="true")
    cluster.kill(leader)
    until(lambda: cluster.leader_of(topic) != leader, "another node leads it")
    with peer_at(cluster, cluster.leader_of(topic)) as peer:
        codes: set[int] = set()
        while INVALID not in codes:
            codes.add(send(peer, topic, batch_of([b"raw"])).error_code)
    assert 0 not in codes
    cluster.start(leader)
    cluster.wait_in_sync(topic)
