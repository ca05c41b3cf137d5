"""MirrorMaker 2 between two clusters, exactly once, while it and brokers are killed and a writer never stops."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.connect.running import wait_until
from tests.java_ecosystem.committed import CommittedRecords
from tests.java_ecosystem.java_process import WAIT_S, JavaProcess, mirror_class_path
from tests.java_ecosystem.steady_producer import writing

import strandline
from strandline.local.free_ports import free_port

PARTITIONS = 3
BROKERS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_each_record_is_mirrored_once_and_in_order_though_everything_is_killed(tmp_path: Path) -> None:
    try:
        class_path = mirror_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(
            strandline.embedded(properties=BROKERS | {"group.initial.rebalance.delay.ms": "0"})
        )
        target = stack.enter_context(strandline.embedded(nodes=3, properties=BROKERS))
        source.create_topic("orders", PARTITIONS)
        target.create_topic("east.orders", PARTITIONS, min_insync_replicas=2)
        found = CommittedRecords(target.bootstrap, "east.orders", PARTITIONS)
        stack.callback(found.close)
        mirror = JavaProcess(
            tmp_path / "mirror",
            class_path,
            "org.apache.kafka.connect.mirror.MirrorMaker",
            settings(source.bootstrap, target.bootstrap),
        )
        stack.enter_context(mirror)
        with writing(source.bootstrap, "orders", PARTITIONS) as numbers:

            def goes_on(after: str) -> None:
                """Wait for records that were written from now on."""
                due = len(numbers) + 20

                def is_so() -> bool:
                    found.read()
                    return min(map(len, found.values)) >= due

                wait_until(is_so, f"records come {after}; {[len(each) for each in found.values]} of {due}", WAIT_S)

            goes_on("at the start")
            mirror.kill()
            mirror.start()
            goes_on("after the mirror was killed")
            killed = target.leader_of("east.orders", 1)
            target.kill(killed)
            goes_on("after a broker of the target was killed")
            mirror.kill()
            target.start(killed)
            mirror.start()
            goes_on("after the mirror was killed again")
            source.kill()
            source.start()
            goes_on("after the broker of the source was killed")
        expected = [b"%d" % each for each in numbers]
        wait_until(lambda: found.read() >= len(expected) * PARTITIONS, "all records come", WAIT_S)
        assert found.values == [expected] * PARTITIONS


def settings(source: str, target: str) -> dict[str, str]:
    """Return MirrorMaker's settings: from the cluster `east` to `west`, exactly once."""
    given = {
        "clusters": "east,west",
        "east.bootstrap.servers": source,
        "west.bootstrap.servers": target,
        "east->west.enabled": "true",
        "east->west.topics": "orders",
        "west.exactly.once.source.support": "enabled",
        "east.consumer.isolation.level": "read_committed",
        # Tasks of more than one process need it, and exactly once does for fencing.
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "scheduled.rebalance.max.delay.ms": "0",
        "tasks.max": "2",
        "replication.factor": "3",
        "checkpoints.topic.replication.factor": "3",
        # It is in the source's cluster, which has one node.
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "refresh.topics.interval.seconds": "5",
    }
    for each in ("config.storage", "offset.storage", "status.storage"):
        given[f"east.{each}.replication.factor"] = "1"
        given[f"west.{each}.replication.factor"] = "3"
    return given
