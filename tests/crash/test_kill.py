"""A broker that is killed again and again under load keeps every promise it made.

Two idempotent producers, two readers, a client that makes and drops topics, and one that takes producer ids; segments
so small that they roll many times a second. The broker is killed at a random moment, sometimes again in the middle of
its recovery, and started on what it left behind.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.crash.churn import ProducerIdTaker, TopicChurn
from tests.crash.harness import (
    RESUME_TIMEOUT_S,
    SEGMENT_BYTES,
    SMALL_BATCHES,
    judge,
    new_seed,
    processes_by_producer_id,
    without_one_record,
)

from strandline.ids import TopicPartition
from strandline.local.embedded import embedded
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing.checker import check
from strandline.testing.workload import Workload

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


def pause(seconds: float) -> None:
    """Part of the fault schedule: how far into its work the broker comes before it dies."""
    threading.Event().wait(seconds)


def end_and_restart(log: EmbeddedBroker, rng: random.Random) -> None:
    """Kills the broker, now and then after a clean stop in the middle of the load, and starts it again."""
    if rng.random() < 0.2:
        log.restart()
        pause(rng.uniform(0.0, 0.2))
    log.kill()
    while rng.random() < 0.3:
        log.spawn()
        pause(rng.uniform(0.0, 0.4))
        log.kill()
    log.start()


def run_kills(kills: int, directory: Path) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    data = directory / "data"
    with embedded(data=data, properties={"num.partitions": "1"}) as log:
        log.create_topic("orders", len(PARTITIONS), internal_segment_bytes=SEGMENT_BYTES)
        with (
            Workload(
                log.bootstrap, PARTITIONS, seed=seed, value_bytes=200, producer_settings=SMALL_BATCHES
            ) as workload,
            TopicChurn(workload.recorder, log.bootstrap) as churn,
            ProducerIdTaker(workload.recorder, log.host, log.port) as taker,
        ):
            for _ in range(kills):
                progress = workload.recorder.acknowledged + rng.randint(1, 500)
                workload.recorder.wait_acknowledged(progress, timeout_s=RESUME_TIMEOUT_S)
                pause(rng.uniform(0.0, 0.1))
                end_and_restart(log, rng)
        # The last recovery is from a clean stop, so the final read sees what both kinds of shutdown leave behind.
        log.restart()
        ops, report = judge(workload, directory)
        churn.check_against(set(AdminClient({"bootstrap.servers": log.bootstrap}).list_topics(timeout=30).topics))
    # No send was given up: each was retried over every kill until the broker had it.
    assert report.sends.keys() == {"ok"}
    assert not check(without_one_record(ops, rng)).ok, "a lost record would not have been noticed"

    owners = processes_by_producer_id(data, "orders")
    shared = {producer_id: owner for producer_id, owner in owners.items() if len(owner) > 1}
    assert not shared, f"producer ids with more than one producer: {shared}"
    assert -1 not in owners, "a batch of an idempotent producer without a producer id"
    assert not owners.keys() & set(taker.given), "a producer id was given to a producer and to the client beside it"
    assert len(taker.given) >= kills


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    run_kills(3, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_sixty_times(tmp_path: Path) -> None:
    run_kills(60, tmp_path)
