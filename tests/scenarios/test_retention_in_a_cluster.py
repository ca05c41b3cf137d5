"""Retention where records have replicas: leaders and followers each delete, and no start offset is ever taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.retention_ground import (
    DAY_MS,
    HOUR_MS,
    QUICK,
    SEGMENT_BYTES,
    TOPIC,
    bases,
    configure,
    delete_below,
    now_ms,
    read_offsets,
    span,
    until,
    write,
)

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    data = tmp_path_factory.mktemp("cluster")
    with strandline.embedded(nodes=3, data=data, properties=QUICK) as started:
        yield started


def directories(cluster: EmbeddedCluster) -> list[Path]:
    return [node.data for node in cluster.nodes.values()]


def create(cluster: EmbeddedCluster, topic: str, **configs: str | int) -> None:
    cluster.create_topic(topic, internal_segment_bytes=SEGMENT_BYTES, **configs)


@pytest.mark.slow
def test_every_replica_deletes_and_an_election_brings_nothing_back(cluster: EmbeddedCluster) -> None:
    create(cluster, TOPIC, retention_ms=-1)
    write(cluster.bootstrap, [now_ms() - DAY_MS] * 9 + [now_ms()])
    configure(cluster.bootstrap, retention_ms=HOUR_MS)
    until(lambda: span(cluster.bootstrap) == (9, 10))
    until(lambda: all(bases(data) == [9] for data in directories(cluster)), "all replicas")
    leader = cluster.leader_of(TOPIC)
    cluster.kill(leader)
    until(lambda: cluster.leader_of(TOPIC) != leader)
    until(lambda: span(cluster.bootstrap) == (9, 10))
    assert read_offsets(cluster.bootstrap) == [9]
    # A follower that was away while its leader deleted more begins where the leader begins now.
    configure(cluster.bootstrap, retention_ms=1)
    until(lambda: span(cluster.bootstrap) == (10, 10))
    write(cluster.bootstrap, [now_ms() + HOUR_MS // 2] * 2)
    cluster.start(leader)
    cluster.wait_in_sync(TOPIC)
    for other in set(cluster.nodes) - {leader}:
        if cluster.leader_of(TOPIC) != leader:
            cluster.restart(other)
            cluster.wait_in_sync(TOPIC)
        assert read_offsets(cluster.bootstrap) == [10, 11]


def test_deleted_records_are_gone_on_every_replica(cluster: EmbeddedCluster) -> None:
    create(cluster, "events", retention_ms=-1)
    write(cluster.bootstrap, [now_ms()] * 10, topic="events")
    assert delete_below(cluster.bootstrap, 7, topic="events") == 7
    until(lambda: all(bases(data, topic="events") == [6, 9] for data in directories(cluster)))
    assert read_offsets(cluster.bootstrap, topic="events") == [7, 8, 9]


@pytest.mark.slow
def test_a_whole_cluster_that_is_killed_starts_where_it_was_seen_to(cluster: EmbeddedCluster) -> None:
    create(cluster, "killed", retention_ms=-1)
    write(cluster.bootstrap, [now_ms() - DAY_MS] * 9 + [now_ms()], topic="killed")
    configure(cluster.bootstrap, topic="killed", retention_ms=HOUR_MS)
    until(lambda: span(cluster.bootstrap, topic="killed") == (9, 10))
    cluster.kill_all()
    cluster.start_all()
    cluster.wait_in_sync("killed")
    assert span(cluster.bootstrap, topic="killed") == (9, 10)
    assert read_offsets(cluster.bootstrap, topic="killed") == [9]
