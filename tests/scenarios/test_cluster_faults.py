"""A cluster of processes loses a node, restarts one by one, is torn apart: what was acknowledged stays."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import strandline
from strandline.ids import TopicPartition
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.testing import Report, check
from strandline.testing.workload import Workload

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
STEP_RECORDS = 400
PATIENCE_S = 60.0

pytestmark = pytest.mark.timeout(180)


def new_seed() -> int:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed={seed}", file=sys.stderr)
    return seed


def acknowledged(workload: Workload, more: int) -> None:
    """So many more records are acknowledged from now on."""
    recorder = workload.recorder
    recorder.wait_acknowledged(recorder.acknowledged + more, timeout_s=PATIENCE_S)


def judge(workload: Workload) -> Report:
    assert workload.fatal_errors == []
    report = check(workload.history())
    assert report.ok, report
    return report


def set_in_sync_min(cluster: EmbeddedCluster, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)


@contextlib.contextmanager
def too_few_in_sync(cluster: EmbeddedCluster) -> Iterator[None]:
    """While two of three replicas are in sync, ask for all three."""
    set_in_sync_min(cluster, 3)
    yield
    set_in_sync_min(cluster, 2)


def produce_by_hand(cluster: EmbeddedCluster) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "strandline", "produce", TOPIC, "-p", "0", "--timeout", "0.5"]
    environment = os.environ | {"STRANDLINE_BOOTSTRAP": cluster.bootstrap_servers}
    return subprocess.run(command, input=b"a\nb\n", env=environment, capture_output=True, timeout=60)


def test_the_kill_of_a_leader_loses_nothing_and_writing_goes_on() -> None:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        with Workload(cluster.bootstrap_servers, PARTITIONS, seed=new_seed()) as workload:
            acknowledged(workload, STEP_RECORDS)
            lost = cluster.leader_of(TOPIC, 0)
            cluster.kill(lost)
            acknowledged(workload, STEP_RECORDS)
            assert cluster.leader_of(TOPIC, 0) != lost
            with too_few_in_sync(cluster):
                ended = produce_by_hand(cluster)
                assert ended.returncode == 4
                assert b"2 of 2 records were not acknowledged" in ended.stderr
                assert b"acknowledged nothing for 0.5 s" in ended.stderr
            cluster.start(lost)
            cluster.wait_in_sync(TOPIC)
            acknowledged(workload, STEP_RECORDS)
        judge(workload)


@pytest.mark.slow
def test_a_rolling_restart_under_load_gives_no_error_that_a_client_cannot_retry() -> None:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        with Workload(cluster.bootstrap_servers, PARTITIONS, seed=new_seed()) as workload:
            for node_id in (1, 2, 3):
                acknowledged(workload, STEP_RECORDS)
                cluster.stop(node_id)
                acknowledged(workload, STEP_RECORDS)
                cluster.start(node_id)
                cluster.wait_in_sync(TOPIC)
            acknowledged(workload, STEP_RECORDS)
        report = judge(workload)
        assert report.sends.keys() == {"ok"}, "each was acknowledged, after retries of the client's own at most"


def tear(cluster: EmbeddedCluster, workload: Workload, node_id: int) -> None:
    cluster.partition(node_id)
    acknowledged(workload, STEP_RECORDS)
    cluster.heal()
    cluster.wait_in_sync(TOPIC)
    acknowledged(workload, STEP_RECORDS)


@pytest.mark.slow
def test_a_leader_cut_off_from_the_others_acknowledges_nothing_that_is_lost() -> None:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        with Workload(cluster.bootstrap_servers, PARTITIONS, seed=new_seed()) as workload:
            acknowledged(workload, STEP_RECORDS)
            tear(cluster, workload, cluster.leader_of(TOPIC, 0))
        judge(workload)


@pytest.mark.slow
def test_a_paused_node_comes_back_and_takes_nothing_away() -> None:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        with Workload(cluster.bootstrap_servers, PARTITIONS, seed=new_seed()) as workload:
            acknowledged(workload, STEP_RECORDS)
            hung = cluster.leader_of(TOPIC, 1)
            cluster.pause(hung)
            acknowledged(workload, STEP_RECORDS)
            cluster.resume(hung)
            cluster.wait_in_sync(TOPIC)
            acknowledged(workload, STEP_RECORDS)
        judge(workload)
