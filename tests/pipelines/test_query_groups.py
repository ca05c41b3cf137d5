"""Groups of queries are read and removed whatever becomes of their coordinator."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer
from tests.clients.client import until
from tests.clients.positions import commit

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.run import query_groups
from strandline.pipelines.run.query_groups import committed_positions, remove_groups
from strandline.testing import embedded


def test_positions_are_read_and_groups_removed(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    broker.create_topic(f"{topic}-2")
    for place, offset in (((topic, 0), 0), ((topic, 2), 70), ((f"{topic}-2", 0), 5)):
        commit(broker.bootstrap, f"of-{topic}", place[0], offset, partition=place[1])
    assert committed_positions(broker.bootstrap, f"of-{topic}") == {topic: {"0": 0, "2": 70}, f"{topic}-2": {"0": 5}}
    assert committed_positions(broker.bootstrap, f"nobody-of-{topic}") == {}
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"in-use-{topic}"})
    member.subscribe([topic])
    until("a member", lambda: member.poll(0.1) is None and bool(member.assignment()))
    groups = [f"nobody-of-{topic}", f"in-use-{topic}", f"of-{topic}"]
    assert remove_groups(broker.bootstrap, groups) == [f"of-{topic}"]
    assert committed_positions(broker.bootstrap, f"of-{topic}") == {}
    member.close()


@pytest.mark.slow
def test_a_coordinator_that_stands_still_or_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the request under way, which ends a process that asks by librdkafka."""
    with embedded(nodes=3, properties={"offsets.topic.num.partitions": "1"}) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        for group in ("one", "two"):
            commit(cluster.bootstrap, group, "orders", 7)
        cluster.wait_in_sync("__consumer_offsets")
        dies = cluster.leader_of("__consumer_offsets")
        cluster.pause(dies)
        death = threading.Timer(1.0, cluster.kill, [dies])
        death.start()
        assert committed_positions(cluster.bootstrap, "one") == {"orders": {"0": 7}}
        death.join()
        assert remove_groups(cluster.bootstrap, ["one", "two"]) == ["one", "two"]
        servers = cluster.bootstrap
    monkeypatch.setattr(query_groups, "READ_S_MAX", 1.0)
    monkeypatch.setattr(query_groups, "REMOVE_S_MAX", 1.0)
    assert remove_groups(servers, ["one", "two"]) == []
    with pytest.raises(
        PipelineRefused, match=r"^the positions of the group one cannot be read, try again: .* cannot be reached"
    ):
        committed_positions(servers, "one")
