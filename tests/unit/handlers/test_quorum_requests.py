"""Odd but valid requests to a member of the quorum: an error answer with Kafka's code, and the member goes on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.world.runtime import SimHost, SimRuntime
from tests.unit.broker.quorum_world import PORT, World

from strandline.broker.network.channel import Channel
from strandline.codec.message import Message
from strandline.codec.messages import begin_quorum_epoch_request as begin
from strandline.codec.messages import describe_quorum_request as describe
from strandline.codec.messages import end_quorum_epoch_request as end
from strandline.codec.messages import fetch_request as fetch
from strandline.codec.messages import fetch_snapshot_request as snapshot
from strandline.codec.messages import vote_request as vote
from strandline.errors import ErrorCode
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.raft.messages import METADATA_TOPIC_ID


class Stranger:
    """A client that can connect, and sends any request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runtime = SimRuntime(SimHost(world.loop, "stranger"), 1)
        self.network = world.network.of(self.runtime)
        self.leader = world.leader()
        world.write(self.leader)
        self.epoch = self.leader.quorum.epoch

    def ask(self, request: Message, version: int, node_id: int | None = None) -> Any:
        answers: list[tuple[Any, BaseException | None]] = []
        name = self.world.members[node_id or self.leader.node_id].name
        channel = Channel(self.runtime, self.network, name, PORT, client_id="stranger")
        channel.ask(request, version, lambda response, error: answers.append((response, error)), timeout_s=30)
        assert self.world.loop.run_while(lambda: not answers, within_s=40), "never answered"
        channel.close()
        response, error = answers[0]
        assert error is None, error
        return response


@pytest.fixture
def stranger() -> Stranger:
    return Stranger(World(3).start())


def fetch_of(stranger: Stranger, **changes: Any) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=changes.pop("current_leader_epoch", stranger.epoch),
        fetch_offset=changes.pop("fetch_offset", 0),
        last_fetched_epoch=changes.pop("last_fetched_epoch", 0),
        partition=changes.pop("partition", 0),
        partition_max_bytes=1 << 20,
    )
    topic = fetch.FetchTopic(topic_id=changes.pop("topic_id", METADATA_TOPIC_ID), partitions=[partition])
    changes.setdefault("replica_state", fetch.ReplicaState(replica_id=77))
    changes.setdefault("max_bytes", 1 << 20)
    return fetch.FetchRequest(topics=[topic], **changes)


def outcome(response: Any) -> int:
    """The one error code of an answer, wherever it stands."""
    if response.error_code:
        return int(response.error_code)
    topics = response.responses if hasattr(response, "responses") else response.topics
    (topic,) = topics
    (partition,) = topic.partitions
    return int(partition.error_code)


def snapshot_of(stranger: Stranger, **changes: Any) -> snapshot.FetchSnapshotRequest:
    wanted = changes.pop("snapshot_id", (5, 1))
    partition = snapshot.PartitionSnapshot(
        partition=changes.pop("partition", 0),
        current_leader_epoch=changes.pop("current_leader_epoch", stranger.epoch),
        snapshot_id=snapshot.SnapshotId(end_offset=wanted[0], epoch=wanted[1]),
        position=changes.pop("position", 0),
    )
    name = changes.pop("name", CLUSTER_METADATA)
    changes.setdefault("replica_id", 77)
    return snapshot.FetchSnapshotRequest(topics=[snapshot.TopicSnapshot(name=name, partitions=[partition])], **changes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"partition": 1}, ErrorCode.INVALID_REQUEST),
        ({"topic_id": METADATA_TOPIC_ID.__class__(int=9)}, ErrorCode.INVALID_REQUEST),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": 99}, ErrorCode.INVALID_REQUEST),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"max_bytes": 0}, ErrorCode.NONE),
        ({"max_bytes": -1}, ErrorCode.NONE),
        ({"replica_state": fetch.ReplicaState(replica_id=-1)}, ErrorCode.NONE),
    ],
)
def test_fetches(stranger: Stranger, changes: dict[str, Any], code: ErrorCode) -> None:
    response = stranger.ask(fetch_of(stranger, **changes), 18)
    assert outcome(response) == code
    if response.responses:
        told = response.responses[0].partitions[0].current_leader
        assert (told.leader_id, told.leader_epoch) == (stranger.leader.node_id, stranger.epoch)
        assert [each.port for each in response.node_endpoints] == [PORT]


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_every_version_of_fetch_brings_the_log(stranger: Stranger, version: int) -> None:
    request = fetch_of(stranger)
    if version < 13:
        request.topics[0].topic, request.topics[0].topic_id = CLUSTER_METADATA, fetch.FetchTopic().topic_id
    if version < 15:
        request.replica_state, request.replica_id = fetch.ReplicaState(), 77
    response = stranger.ask(request, version)
    partition = response.responses[0].partitions[0]
    assert partition.error_code == 0
    assert len(partition.records) > 100


def test_a_fetch_of_nothing(stranger: Stranger) -> None:
    assert outcome(stranger.ask(fetch.FetchRequest(), 18)) == ErrorCode.INVALID_REQUEST
    assert outcome(stranger.ask(fetch.FetchRequest(topics=[fetch.FetchTopic()]), 18)) == ErrorCode.INVALID_REQUEST
    twice = fetch_of(stranger)
    twice.topics.append(twice.topics[0])
    assert outcome(stranger.ask(twice, 18)) == ErrorCode.INVALID_REQUEST


def test_a_fetch_before_epochs_were_told(stranger: Stranger) -> None:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0)
    topic = fetch.FetchTopic(topic=CLUSTER_METADATA, partitions=[partition])
    request = fetch.FetchRequest(replica_id=77, topics=[topic], max_bytes=1000)
    assert outcome(stranger.ask(request, 11)) == ErrorCode.INVALID_REQUEST


def test_a_follower_says_who_leads(stranger: Stranger) -> None:
    follower = next(member for member in stranger.world.up if member is not stranger.leader)
    response = stranger.ask(fetch_of(stranger), 18, follower.node_id)
    assert outcome(response) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.responses[0].partitions[0].current_leader.leader_id == stranger.leader.node_id
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [
        (stranger.leader.node_id, stranger.leader.name)
    ]
    (asked,) = describe_of().topics
    answered = stranger.ask(describe.DescribeQuorumRequest(topics=[asked]), 2, follower.node_id)
    assert outcome(answered) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_without_news_waits_for_some_and_no_longer_than_it_said(stranger: Stranger) -> None:
    world, quorum = stranger.world, stranger.leader.quorum
    world.settle()
    request = fetch_of(stranger, fetch_offset=quorum.next_offset, last_fetched_epoch=stranger.epoch, max_wait_ms=200)
    request.topics[0].partitions[0].high_watermark = quorum.high_watermark
    began = world.loop.now
    response = stranger.ask(request, 18)
    assert world.loop.now - began >= 0.2
    assert response.responses[0].partitions[0].records in (b"", None)
    request.max_wait_ms = 20_000
    answers: list[Any] = []
    channel = Channel(stranger.runtime, stranger.network, stranger.leader.name, PORT, client_id="stranger")
    channel.ask(request, 18, lambda answer, error: answers.append(answer), timeout_s=30)
    world.run(0.05)
    assert not answers
    world.write(stranger.leader)
    assert world.loop.run_while(lambda: not answers, within_s=1)
    assert len(answers[0].responses[0].partitions[0].records) > 50


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"name": "orders"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": (0, 0)}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": (-1, -1)}, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_snapshots_that_are_not_there(
    stranger: Stranger, changes: dict[str, Any], code: ErrorCode, version: int
) -> None:
    assert outcome(stranger.ask(snapshot_of(stranger, **changes), version)) == code


def test_a_snapshot_of_nothing(stranger: Stranger) -> None:
    """An empty list of topics once ended Kafka's controller."""
    for version in (0, 1):
        for topics in ([], [snapshot.TopicSnapshot()], [snapshot.TopicSnapshot(name=CLUSTER_METADATA)]):
            response = stranger.ask(snapshot.FetchSnapshotRequest(topics=topics), version)
            assert outcome(response) == ErrorCode.INVALID_REQUEST
    assert stranger.leader.quorum.is_leader


def test_a_snapshot_comes_in_parts(stranger: Stranger) -> None:
    quorum = stranger.leader.quorum
    quorum.make_snapshot()
    stranger.world.run(1)
    (wanted,) = quorum.snapshots.ids
    data = b""
    while True:
        request = snapshot_of(stranger, snapshot_id=wanted, position=len(data), max_bytes=100)
        part = stranger.ask(request, 1).topics[0].partitions[0]
        assert (part.error_code, part.position) == (0, len(data))
        data += part.unaligned_records
        if len(data) >= part.size:
            break
        assert len(part.unaligned_records) == 100
    assert data == quorum.snapshots.read_whole(wanted)
    for position in (-1, len(data), 2**62):
        request = snapshot_of(stranger, snapshot_id=wanted, position=position)
        assert outcome(stranger.ask(request, 1)) == ErrorCode.POSITION_OUT_OF_RANGE


def vote_of(stranger: Stranger, **changes: Any) -> vote.VoteRequest:
    cluster_id = changes.pop("cluster_id", None)
    name = changes.pop("name", CLUSTER_METADATA)
    voter_id = changes.pop("voter_id", -1)
    facts = {"replica_id": 77, "replica_epoch": stranger.epoch, "last_offset_epoch": 0, "last_offset": 0, **changes}
    topics = [vote.TopicData(topic_name=name, partitions=[vote.PartitionData(**facts)])]
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=topics)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"name": "orders"}, ErrorCode.INVALID_REQUEST),
        ({"partition_index": 4}, ErrorCode.INVALID_REQUEST),
        ({"replica_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": 99}, ErrorCode.INVALID_REQUEST),
        ({"replica_epoch": 2**31 - 1}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 9}, ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_votes_that_are_refused(stranger: Stranger, changes: dict[str, Any], code: ErrorCode) -> None:
    response = stranger.ask(vote_of(stranger, **changes), 2)
    assert outcome(response) == code
    assert not any(partition.vote_granted for topic in response.topics for partition in topic.partitions)
    assert stranger.leader.quorum.epoch == stranger.epoch
    assert stranger.leader.quorum.is_leader


@pytest.mark.parametrize("version", [0, 1])
def test_who_is_no_voter_does_not_lead(stranger: Stranger, version: int) -> None:
    for request in (
        begin.BeginQuorumEpochRequest(),
        begin.BeginQuorumEpochRequest(topics=[begin.TopicData(topic_name=CLUSTER_METADATA)]),
        end.EndQuorumEpochRequest(),
    ):
        assert stranger.ask(request, version).error_code == ErrorCode.INVALID_REQUEST
    told = begin.PartitionData(leader_id=77, leader_epoch=stranger.epoch)
    topics = [begin.TopicData(topic_name=CLUSTER_METADATA, partitions=[told])]
    assert outcome(stranger.ask(begin.BeginQuorumEpochRequest(topics=topics), version)) == ErrorCode.INVALID_REQUEST
    over = end.PartitionData(leader_id=77, leader_epoch=stranger.epoch)
    ends = [end.TopicData(topic_name=CLUSTER_METADATA, partitions=[over])]
    assert outcome(stranger.ask(end.EndQuorumEpochRequest(topics=ends), version)) == ErrorCode.INVALID_REQUEST
    assert stranger.leader.quorum.is_leader


@pytest.mark.parametrize("version", [0, 1, 2])
def test_vote_in_every_version(stranger: Stranger, version: int) -> None:
    response = stranger.ask(vote_of(stranger), version)
    assert outcome(response) == ErrorCode.NONE
    assert bool(response.node_endpoints) == (version >= 1)


def describe_of(name: str = CLUSTER_METADATA, index: int = 0) -> describe.DescribeQuorumRequest:
    partitions = [describe.PartitionData(partition_index=index)]
    return describe.DescribeQuorumRequest(topics=[describe.TopicData(topic_name=name, partitions=partitions)])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_described(stranger: Stranger, version: int) -> None:
    stranger.world.settle()
    stranger.world.run(2)
    response = stranger.ask(describe_of(), version)
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (stranger.leader.node_id, stranger.epoch)
    assert [replica.replica_id for replica in partition.current_voters] == [1, 2, 3]
    # An idle leader writes now and then.
    assert all(abs(replica.log_end_offset - partition.high_watermark) <= 2 for replica in partition.current_voters)
    if version >= 1:
        now_ms = stranger.leader.runtime.now_ms()
        assert all(0 <= now_ms - replica.last_fetch_timestamp < 2000 for replica in partition.current_voters)
    assert [node.node_id for node in response.nodes] == ([1, 2, 3] if version >= 2 else [])


def test_the_quorum_of_another_topic_is_not_described(stranger: Stranger) -> None:
    assert outcome(stranger.ask(describe_of("orders"), 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(stranger.ask(describe_of(index=1), 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stranger.ask(describe.DescribeQuorumRequest(), 2).topics == []
