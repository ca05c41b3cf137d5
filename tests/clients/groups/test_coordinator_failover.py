"""The coordinator of a group is killed in the middle of a rebalance: the group goes on with another node."""

from __future__ import annotations

import time

import pytest
from tests.clients.groups.clusters import CLUSTER_PROPERTIES, coordinator_of
from tests.clients.groups.stage import Stage
from tests.clients.groups.variants import VARIANTS

from strandline.testing import embedded

PARTITIONS = 6


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "variant_name",
    [
        pytest.param("librdkafka range", marks=pytest.mark.slow),
        pytest.param("librdkafka cooperative", marks=pytest.mark.slow),
        "librdkafka consumer",
    ],
)
def test_a_rebalance_survives_its_coordinator(topic: str, variant_name: str) -> None:
    variant = VARIANTS[variant_name]
    with (
        embedded(nodes=3, properties=CLUSTER_PROPERTIES) as cluster,
        Stage(
            cluster.bootstrap,
            variant.command(),
            topic,
            protocol=variant.protocol,
            assignor=variant.assignor,
            replication=3,
        ) as stage,
    ):
        stage.topic(PARTITIONS)
        first, second = stage.join("first"), stage.join("second")
        stage.until_shared((first, 3), (second, 3))
        stage.write()
        stage.until_read()
        coordinator = coordinator_of(cluster.bootstrap, stage.group)
        marks = len(first.life.lines), len(second.life.lines)
        third = stage.join("third")
        stage.until(
            "the rebalance is under way", lambda: bool(first.taken_away(marks[0]) or second.taken_away(marks[1]))
        )
        cluster.kill(coordinator)
        killed = time.monotonic()
        stage.until_shared((first, 2), (second, 2), (third, 2))
        shared_s = time.monotonic() - killed
        stage.write()
        stage.until_read()
        print(f"{variant_name}: shared {shared_s:.1f} s after the kill, reading {time.monotonic() - killed:.1f} s")
        assert coordinator_of(cluster.bootstrap, stage.group) != coordinator
        cluster.start(coordinator)
        stage.write()
        stage.judge()
