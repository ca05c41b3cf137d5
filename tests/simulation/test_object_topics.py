"""Object topics in the simulated world: short runs under faults of processes and of the store, and stories.

`truth.object_truth` says what must hold.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulation.test_users import focused
from tests.simulator.clients.processor import ProcessorManners
from tests.simulator.clients.transactional import NEW
from tests.simulator.object_users import with_object_topics
from tests.simulator.options import TRANSACTION_SETTINGS, SimOptions, TransactorOptions
from tests.simulator.run import Result, run
from tests.simulator.world.cluster import SimNode

from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_records_response import DeleteRecordsResponse
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse, PartitionData
from strandline.errors import ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "strandline.remote.store.url": "memory://bucket",
    "remote.log.manager.task.interval.ms": "300",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "strandline.object.flush.interval.ms": "50",
    "strandline.object.merge.interval.ms": "5000",
    "strandline.object.checkpoint.interval.ms": "600000",
    "strandline.object.orphan.ms": "5000",
    "log.segment.delete.delay.ms": "0",
}
STORED = {**ORDERS.configs, "strandline.storage": "object"}
TOPIC = dataclasses.replace(ORDERS, partitions=1, configs=STORED)
TRANSACTORS = TransactorOptions(
    count=2,
    churn_s=5.0,
    manners=ProcessorManners(speaks=(NEW,), timeout_s=6.0, pause_s=0.3, abort_share=0.3, hang_share=0.05),
)


ATTEMPTS = 20
NOT_YET = (ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# Short runs


def stored(
    seed: int, faults: dict[str, int], *, safety_s: float = 20.0, acks: str = "object", **users: Any
) -> SimOptions:
    """Return what a seed means with object topics and transactions in them, and with these faults only."""
    drawn = focused(seed, faults, safety_s=safety_s, cleaning=True, **users)
    orders = drawn.topics[0]
    drawn = dataclasses.replace(
        drawn,
        topics=tuple(each for each in drawn.topics if each.name in ("orders", "brief")),
        outputs=(dataclasses.replace(orders, name="ledger", partitions=2),),
        table=None,
        transactors=TRANSACTORS,
        settings={**TRANSACTION_SETTINGS, **drawn.settings},
        nemesis=dataclasses.replace(drawn.nemesis, pause_s=1.5),
    )
    return with_object_topics(drawn, random.Random(f"object users {seed}"), {"orders", "brief", "ledger"}, acks=acks)


def compacted(seed: int, faults: dict[str, int], *, safety_s: float = 20.0) -> SimOptions:
    """Return what a seed means with a table in the store, and with these faults only."""
    drawn = focused(seed, faults, safety_s=safety_s, cleaning=True)
    assert drawn.table is not None
    drawn = dataclasses.replace(
        drawn,
        topics=drawn.topics[:1],
        table=dataclasses.replace(drawn.table, transactors=TRANSACTORS),
        settings={**TRANSACTION_SETTINGS, **drawn.settings},
        nemesis=dataclasses.replace(drawn.nemesis, pause_s=1.5),
    )
    return with_object_topics(drawn, random.Random(f"object users {seed}"), {"table"}, acks="object")


def survives(options: SimOptions) -> Result:
    result = run(options)
    print(result, dict(result.fault_kinds))
    assert result.failure is None, result.failure
    assert result.acknowledged > 0
    return result


def survives_in_store(options: SimOptions) -> None:
    result = survives(options)
    assert result.objects > 0
    assert result.merged > 0
    assert result.transactions_committed > 0


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 5, 6))])
def test_leaders_that_die_stop_and_go_on(seed: int) -> None:
    survives_in_store(stored(seed, {"kill": 3, "pause": 3, "isolate": 2, "stop": 1}))


@pytest.mark.slow
def test_a_transaction_whose_marker_only_the_local_log_has_is_told() -> None:
    """A segment ends before the marker, and the next range begins behind it, with a transaction of its own."""
    survives_in_store(stored(1090, {"kill": 3, "pause": 3, "isolate": 2, "stop": 1}, safety_s=25.0))


@pytest.mark.slow
def test_a_former_leader_commits_while_the_next_one_claims() -> None:
    survives_in_store(stored(26, {"pause": 4, "isolate": 4}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_loses_answers_and_uploads(seed: int) -> None:
    survives_in_store(stored(seed, {"lost store answers": 3, "cut uploads": 3, "late lists": 2, "kill": 2}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_is_away_overloaded_and_slow(seed: int) -> None:
    faults = {"store outage": 2, "store overload": 3, "slow store": 2, "expired credentials": 1, "kill": 2, "pause": 1}
    survives(stored(seed, faults, safety_s=60.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_all_brokers_die_at_once_and_lose_disks(seed: int) -> None:
    survives(stored(seed, {"kill all": 3, "replaced disk": 2, "power cut": 2, "kill": 1}, safety_s=60.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_returns_wrong_bytes(seed: int) -> None:
    survives(stored(seed, {"wrong ranges": 4, "kill": 2, "pause": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_are_deleted_by_request_and_by_retention(seed: int) -> None:
    faults = {"kill": 2, "pause": 2, "store overload": 1, "stop": 1}
    survives(stored(seed, faults, safety_s=40.0, every_s=0.7, duties=("trim",) * 8))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_that_are_created_again(seed: int) -> None:
    faults = {"late lists": 2, "lost store answers": 1, "kill": 1, "pause": 1}
    survives(stored(seed, faults, every_s=0.7, duties=("recreate",) * 5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_that_replicas_acknowledge(seed: int) -> None:
    faults = {"kill": 2, "pause": 2, "store outage": 1, "lost store answers": 1, "kill all": 1}
    survives(stored(seed, faults, acks="wal"))


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_that_are_compacted_in_the_store(seed: int) -> None:
    faults = {"kill": 3, "pause": 3, "isolate": 2, "stop": 1}
    assert survives(compacted(seed, faults, safety_s=40.0 if seed else 10.0)).compacted > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_that_are_compacted_in_a_bad_store(seed: int) -> None:
    faults = {"lost store answers": 3, "cut uploads": 2, "wrong ranges": 2, "slow store": 1, "kill": 2, "pause": 2}
    survives(compacted(seed, faults, safety_s=40.0))


# Stories


@contextmanager
def objects(seed: int) -> Iterator[Play]:
    """Begin with clients at work, and end with every check that there is of the store."""
    with stage(seed, TOPIC, settings=SETTINGS, on_all_nodes=True) as play:
        play.run.tier_truth.watch()
        play.work()
        play.wait(acknowledged=50)
        yield play
        play.run.options = dataclasses.replace(play.run.options, has_tiers=True)


def fetched_from(play: Play, node: SimNode) -> PartitionData:
    """Return the answer to a Fetch as a consumer sends it that has read something."""
    topic_id = play.topic_id("orders")
    asked = FetchPartition(partition=0, fetch_offset=1, last_fetched_epoch=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=topic_id, partitions=[asked])])
    answer = play.ask(node, request, 13, FetchResponse)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


def test_a_broker_that_does_not_lead_serves_what_is_committed_and_no_empty_log() -> None:
    """A reader would take an empty log for one that was truncated, and begin again at 0."""
    with objects(1) as play:
        for follower in play.followers("orders"):
            found = fetched_from(play, follower)
            for _ in range(ATTEMPTS):
                if found.records:
                    break
                # It has yet to read the commit log so far, or the metadata of segments.
                assert found.error_code in NOT_YET
                play.wait(acknowledged=5)
                found = fetched_from(play, follower)
            assert found.records
            assert found.diverging_epoch.end_offset == -1
            assert found.high_watermark <= fetched_from(play, play.leader("orders")).high_watermark


def test_a_leader_that_stood_still_between_upload_and_commit_is_fenced() -> None:
    """Its object becomes an orphan, and goes."""
    with objects(2) as play:
        bucket, truth = play.cluster.bucket, play.run.object_truth

        def unnamed() -> list[str]:
            return [key for key in bucket.objects if "/wal/" in key and not truth.is_needed(key)]

        play.until(unnamed, "an object is there, and no commit names it")
        old = play.leader("orders")
        begun = [key for key in unnamed() if f"/{old.node_id}-" in key]
        assert begun
        old.pause()
        play.until(lambda: play.image_of("orders").leader != old.node_id, "another node leads", 60.0)
        play.wait(acknowledged=50)
        old.resume()
        play.until(lambda: not set(begun) & set(bucket.objects), "the object is deleted", 120.0)


def test_records_are_merged_though_the_log_starts_inside_a_batch() -> None:
    """The next leader finds them only in objects, and segments hold whole batches."""
    with objects(3) as play:
        old, truth = play.leader("orders"), play.run.object_truth
        partition = old.node.partition("orders", 0) if old.node is not None else None
        assert partition is not None
        batches = play.run.invariants.partitions[partition.topic_id.bytes, 0].batches
        base, (last, *_) = next((base, each) for base, each in sorted(batches.items()) if each[0] > base)
        play.run.invariants.trimmed.add("orders")
        asked = DeleteRecordsPartition(partition_index=0, offset=last)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("orders", [asked])], timeout_ms=5000)
        answer = play.ask(old, request, 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].low_watermark == last > base
        old.kill()
        play.until(lambda: play.image_of("orders").leader != old.node_id, "another node leads", 60.0)
        known = truth.fold.partitions[partition.topic_id, 0]
        play.until(lambda: known.first_offset > last, "the first records are in a segment", 60.0)
        # The final read would look for what was deleted on purpose.
        play.is_over = True
