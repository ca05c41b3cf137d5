"""Clients of different makes in one group, of both protocols at once, while it changes its own and back."""

from __future__ import annotations

import pytest
from tests.clients.groups.clusters import CLUSTER_PROPERTIES, coordinator_of
from tests.clients.groups.stage import MemberProcess, Stage
from tests.clients.groups.variants import VARIANTS

from strandline.testing import embedded

PARTITIONS = 6


def comes(stage: Stage, variant_name: str, *, instance: str | None = None) -> MemberProcess:
    variant = VARIANTS[variant_name]
    stage.command = variant.command()
    name = f"{len(stage.members)}-{variant_name.replace(' ', '-')}"
    return stage.join(name, speaks=(variant.protocol, variant.assignor), instance=instance)


def staged(bootstrap: str, topic: str, *, replication: int = 1) -> Stage:
    variant = VARIANTS["librdkafka range"]
    return Stage(
        bootstrap,
        variant.command(),
        topic,
        protocol=variant.protocol,
        assignor=variant.assignor,
        replication=replication,
    )


@pytest.mark.slow
def test_four_makes_of_clients_share_one_group(bootstrap: str, topic: str) -> None:
    with staged(bootstrap, topic) as stage:
        stage.topic(PARTITIONS)
        python = comes(stage, "kafka-python range")
        stage.write()
        stage.until_shared((python, 6))
        consumer = comes(stage, "librdkafka consumer")
        stage.write()
        stage.until_shared((python, 3), (consumer, 3))
        aio = comes(stage, "aiokafka range")
        stage.write()
        stage.until_shared((python, 2), (consumer, 2), (aio, 2))
        eager = comes(stage, "librdkafka range")
        python.leave()
        stage.write()
        stage.until_shared((consumer, 2), (aio, 2), (eager, 2))
        consumer.leave()
        stage.write()
        stage.until_shared((aio, 3), (eager, 3))
        again = comes(stage, "librdkafka consumer")
        stage.write()
        stage.until_shared((aio, 2), (eager, 2), (again, 2))
        stage.write()
        stage.judge()


@pytest.mark.slow
def test_the_only_consumer_of_the_new_kind_dies(bootstrap: str, topic: str) -> None:
    """Its session ends, and what it owned is read by the classic members, in a classic group again."""
    with staged(bootstrap, topic) as stage:
        stage.topic(PARTITIONS)
        stage.notice_deaths_soon()
        first, second = comes(stage, "librdkafka cooperative"), comes(stage, "librdkafka cooperative")
        stage.until_shared((first, 3), (second, 3))
        consumer = comes(stage, "librdkafka consumer")
        stage.write()
        stage.until_shared((first, 2), (second, 2), (consumer, 2))
        consumer.kill()
        stage.write()
        stage.until_shared((first, 3), (second, 3))
        stage.write()
        stage.judge()


@pytest.mark.slow
def test_static_members_go_over_one_by_one_and_back(bootstrap: str, topic: str) -> None:
    with staged(bootstrap, topic) as stage:
        stage.topic(PARTITIONS)
        seats = ["till-1", "till-2"]
        sitting = [comes(stage, "librdkafka range", instance=seat) for seat in seats]
        stage.until_shared(*((member, 3) for member in sitting))
        stage.write()
        for speaks in ("librdkafka consumer", "librdkafka range"):
            for number, seat in enumerate(seats):
                sitting[number].leave()
                sitting[number] = comes(stage, speaks, instance=seat)
                stage.write()
                stage.until_shared(*((member, 3) for member in sitting))
        stage.write()
        stage.judge()


@pytest.mark.slow
@pytest.mark.parametrize("classic", ["librdkafka range", "librdkafka cooperative"])
def test_the_coordinator_dies_while_the_group_goes_over_and_back(topic: str, classic: str) -> None:
    with (
        embedded(nodes=3, properties=CLUSTER_PROPERTIES) as cluster,
        staged(cluster.bootstrap, topic, replication=3) as stage,
    ):
        stage.topic(PARTITIONS)
        first, second = comes(stage, classic), comes(stage, classic)
        stage.until_shared((first, 3), (second, 3))
        stage.write()
        third = comes(stage, "librdkafka consumer")
        coordinator = coordinator_of(cluster.bootstrap, stage.group)
        stage.until("somebody gives up partitions", lambda: len(first.owned | second.owned) < PARTITIONS)
        cluster.kill(coordinator)
        stage.write()
        stage.until_shared((first, 2), (second, 2), (third, 2))
        cluster.start(coordinator)
        stage.write()
        coordinator = coordinator_of(cluster.bootstrap, stage.group)
        third.leave()
        cluster.kill(coordinator)
        stage.write()
        stage.until_shared((first, 3), (second, 3))
        cluster.start(coordinator)
        stage.write()
        stage.judge()
