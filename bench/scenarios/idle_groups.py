"""1,000 groups, each with a member that was assigned a partition and has committed ten, and then nothing more."""

from __future__ import annotations

import time

from bench.asking import Question
from bench.brokers import Broker
from bench.figures import Figure, Samples, at_most
from bench.group_members import JOIN_VERSION, find_coordinator, join_request, sync
from bench.measure import proportional_mb
from bench.stage import Stage, beside_kafka
from bench.wire import ServerRefused
from strandline.codec.messages.join_group_request import JoinGroupRequest
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

NAME = "idle-groups"
SUMMARY = "memory of 1,000 groups at rest, each with a member and ten offsets"
GROUPS = 1_000
PARTITIONS = 10
SETTLE_S = 2.0
COMMIT_VERSION = 8
WARM_GROUPS = 20
MB_MAX = 50.0


def run(stage: Stage) -> list[Figure]:
    groups = stage.scaled(GROUPS, 50)
    samples = Samples()
    # Without the delay of the first rebalance one connection can speak for all of them.
    with stage.fresh_pair(both={"group.initial.rebalance.delay.ms": "0"}) as brokers:
        for broker in brokers:
            measured = grown(broker, groups)
            stage.say(f"  {broker.name:10} {measured}")
            samples.add(broker.name, measured)
    return [
        beside_kafka(samples, "mb", f"memory (PSS) of {groups:,} idle groups", "MB", at_most(MB_MAX), _WORDS),
        beside_kafka(samples, "percent", f"CPU with {groups:,} idle groups", "% of a core", None),
    ]


_WORDS = "a heap that is fixed beforehand hides Kafka's"


def grown(broker: Broker, groups: int) -> dict[str, float]:
    broker.create_topic(NAME, PARTITIONS)
    with Question("127.0.0.1", broker.port, timeout_s=60.0) as peer:
        # What the first groups bring with them, modules and the log of the topic, is no group's.
        for number in range(WARM_GROUPS):
            make_group(peer, f"{NAME}-warm-{number}")
        time.sleep(SETTLE_S)
        before_mb = proportional_mb(broker.pid)
        for number in range(groups):
            make_group(peer, f"{NAME}-{number}")
        time.sleep(SETTLE_S)
        after_mb = proportional_mb(broker.pid)
        cpu_s = broker.cpu_seconds()
        time.sleep(SETTLE_S)
        return {"mb": after_mb - before_mb, "percent": (broker.cpu_seconds() - cpu_s) / SETTLE_S * 100}


def make_group(peer: Question, group: str) -> None:
    find_coordinator(peer, group)
    joined = peer.ask(join_request(group, NAME), JOIN_VERSION)
    coordinator_errors = (14, 15, 16)
    while joined.error_code in coordinator_errors:
        time.sleep(0.05)
        joined = peer.ask(join_request(group, NAME), JOIN_VERSION)
    if joined.error_code:
        raise ServerRefused(f"{JoinGroupRequest.__name__} {group}: error code {joined.error_code}")
    sync(peer, group, joined.member_id, joined.generation_id, NAME)
    partitions = [OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in range(PARTITIONS)]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[OffsetCommitRequestTopic(name=NAME, partitions=partitions)],
    )
    answer = peer.ask(request, COMMIT_VERSION)
    if answer.topics[0].partitions[0].error_code:
        raise ServerRefused(f"OffsetCommit {group}: error code {answer.topics[0].partitions[0].error_code}")
