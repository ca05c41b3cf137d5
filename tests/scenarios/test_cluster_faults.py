"""A cluster of processes loses a node, restarts one by one, is torn apart: what was acknowledged stays."""

from __future__ import annotations

import random
import sys

import pytest

import strandline
from strandline.ids import TopicPartition
from strandline.testing import Report, check
from strandline.testing.embedded_cluster import EmbeddedCluster
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


def test_the_kill_of_a_leader_loses_nothing_and_writing_goes_on() -> None:
    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        with Workload(cluster.bootstrap_servers, PARTITIONS, seed=new_seed()) as workload:
            acknowledged(workload, STEP_RECORDS)
            lost = cluster.leader_of(TOPIC, 0)
            cluster.kill(lost)
            acknowledged(workload, STEP_RECORDS)
            assert cluster.leader_of(TOPIC, 0) != lost
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
