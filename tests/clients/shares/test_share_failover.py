"""Nodes of a cluster die one after the other: leaders, group coordinators and share coordinators of a share group."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.client import WAIT_S_MAX, ClientFailed
from tests.clients.groups.clusters import CLUSTER_PROPERTIES
from tests.clients.groups.variants import BUILD_TIMEOUT_S, ClientUnavailable
from tests.clients.shares.member import ShareMember, values
from tests.clients.shares.stories import SHARE_PROPERTIES, ShareStage
from tests.clients.shares.variants import CLIENTS

from strandline.testing import embedded

TASKS = 20
"""Tasks for each node that dies."""


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S + 600)
@pytest.mark.parametrize("client", [pytest.param(name, marks=each.marks) for name, each in CLIENTS.items()])
def test_every_node_dies_once(client: str, topic: str, tmp_path: Path) -> None:
    """No task is lost, and none comes again whose acknowledgement was answered without an error."""
    with embedded(nodes=3, properties=CLUSTER_PROPERTIES | SHARE_PROPERTIES) as cluster:
        stage = ShareStage(CLIENTS[client], cluster.bootstrap, topic, tmp_path, replication=3)
        try:
            members = [stage.member(max_poll_records="5") for _ in range(2)]
            written: set[str] = set()
            done: set[str] = set()
            for node in sorted(cluster.nodes):
                tasks = [f"{node}-{number}" for number in range(TASKS)]
                for first in range(0, TASKS, 5):
                    stage.write(*tasks[first : first + 5])
                written |= set(tasks)
                held = members[0].poll_some()
                assert not done & set(values(held))
                cluster.kill(node)
                done |= settled(stage, members[0], values(held))
                work_off(stage, members, written, done)
                cluster.start(node)
            assert all(member.is_idle() for member in members)
        except (KafkaUnavailable, ClientUnavailable) as reason:
            pytest.skip(f"a client is missing: {reason}")
        finally:
            stage.close()


def work_off(stage: ShareStage, members: list[ShareMember], written: set[str], done: set[str]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while done != written:
        assert time.monotonic() < deadline, f"{sorted(written - done)} are not delivered"
        for member in members:
            found = values(member.poll())
            assert not done & set(found), "what was accepted came again"
            done |= settled(stage, member, found)


def settled(stage: ShareStage, member: ShareMember, tasks: list[str]) -> set[str]:
    """Accept tasks; return them if the broker stored that. Others may come again."""
    if not tasks:
        return set()
    member.acknowledge("a")
    try:
        outcome = member.commit()
    except ClientFailed:
        return set()
    return set(tasks) if outcome == {stage.place: None} else set()
