"""A group whose coordinator dies while its lag is watched."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.clients.positions import commit

from strandline.cli.common.client import Cluster
from strandline.cli.group.lag_reading import LagReading
from strandline.testing import embedded


@pytest.mark.slow
def test_the_lag_is_read_on_when_the_coordinator_dies() -> None:
    with embedded(nodes=3, properties={"offsets.topic.num.partitions": "1"}) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=1)
        cluster.create_topic("warm-up")
        commit(cluster.bootstrap, "readers", "warm-up", 0)
        cluster.wait_in_sync("__consumer_offsets")
        dies = cluster.leader_of("__consumer_offsets")
        lives_on = next(each for each in range(3) if cluster.leader_of("orders", each) != dies)
        commit(cluster.bootstrap, "readers", "orders", 0, partition=lives_on)
        with closing(LagReading(Cluster(cluster.bootstrap, {}), group_id="readers", topics=["orders"])) as reading:
            (before,) = reading.look()
            assert before.group.coordinator == dies
            cluster.kill(dies)
            for _ in range(2):
                (after,) = reading.look()
                assert after.group.coordinator != dies
                assert [each.partition for each in after.positions] == [lives_on]
