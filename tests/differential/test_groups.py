"""The conversation of groups: every answer is Kafka's, and so are the records that are left behind.

A test without Java compares with the recording; another holds the recording, and what is in the files, beside a running
Apache Kafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bench.brokers import Broker, start_strandline
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.kafka_server import running_kafka
from tests.differential.group_conversation import SETTINGS, Transcript, recorded, talk

from strandline.codec.columns import columns_of
from strandline.coordinators.groups.events import Loaded
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_records import group_metadata_value
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.replay import replay
from strandline.coordinators.partitioning import KAFKAS_HASH, partition_of_group

ANSWERS_MIN = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_kafka(tmp_path_factory, SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def strandline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = start_strandline(tmp_path_factory.mktemp("strandline") / "node", settings=SETTINGS)
    try:
        yield broker
    finally:
        broker.discard()


def partition_directory(broker: Broker, group: str) -> Path:
    return broker.data / f"__consumer_offsets-{partition_of_group(group, partition_count=3, hash_level=KAFKAS_HASH)}"


def shard_of(broker: Broker, group: str) -> GroupShard:
    """The group's shard, loaded by us from the segment that the broker wrote."""
    segment = partition_directory(broker, group) / "00000000000000000000.log"
    shard = GroupShard(GroupConfig(), Random(0))
    for columns in columns_of(segment.read_bytes()):
        shard.load(replay(columns))
    shard.step(Loaded(), 0)
    return shard


def left_behind(broker: Broker, group: str) -> list[Any]:
    shard = shard_of(broker, group)
    value = group_metadata_value(shard.groups[group])
    offset = shard.offsets.get(group, "t", 0)
    assert offset is not None
    seats = [
        [m.group_instance_id, m.client_id, m.client_host, m.session_timeout, m.rebalance_timeout, m.assignment]
        for m in value.members
    ]
    position = [offset.offset, offset.leader_epoch, offset.metadata, offset.expire_timestamp, offset.topic_id.int != 0]
    return [value.generation, value.protocol, value.protocol_type, seats, position]


@pytest.fixture(scope="module")
def our_transcript(strandline: Broker) -> Transcript:
    return talk(strandline)


@pytest.fixture(scope="module")
def their_transcript(kafka: Broker) -> Transcript:
    return talk(kafka)


def unlike(transcript: Transcript, other: Transcript) -> list[str]:
    assert [label for label, _ in transcript] == [label for label, _ in other]
    assert len(transcript) > ANSWERS_MIN
    return [
        f"{label}:\n  {answer}\n  {others}"
        for (label, answer), (_, others) in zip(transcript, other, strict=True)
        if answer != others
    ]


def test_every_answer_is_kafkas(our_transcript: Transcript) -> None:
    different = unlike(our_transcript, recorded())
    assert not different, "\n".join(different)


@pytest.mark.java
@pytest.mark.slow
def test_kafka_still_answers_so(their_transcript: Transcript) -> None:
    different = unlike(their_transcript, recorded())
    assert not different, "\n".join(different)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("our_transcript", "their_transcript")
def test_the_records_that_are_left_say_the_same(kafka: Broker, strandline: Broker) -> None:
    assert left_behind(strandline, "tills") == left_behind(kafka, "tills")


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("our_transcript")
def test_kafkas_own_tool_reads_our_records(strandline: Broker) -> None:
    try:
        class_path = kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    segment = partition_directory(strandline, "tills") / "00000000000000000000.log"
    tool = ["java", "-cp", class_path, "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder"]
    dumped = subprocess.run([*tool, "--files", str(segment)], capture_output=True, text=True, check=True).stdout
    assert "isvalid: false" not in dumped
    commits = [line for line in dumped.splitlines() if '"group":"tills","topic":"t","partition":0' in line]
    assert '"version":"4","data":{"offset":4,' in commits[-1]
    generations = [line for line in dumped.splitlines() if '"type":"2","data":{"group":"tills"}' in line]
    assert '"groupInstanceId":"till-1","clientId":"s","clientHost":"/127.0.0.1"' in generations[-1]
