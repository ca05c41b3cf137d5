"""A topic is deleted and made again while groups commit: a position belongs to one topic, not to its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.hostile.peer import ROUTES, Peer, answer_of, request
from tests.hostile.process import until

from strandline.codec.message import Message
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded

GROUP = "billing"
MANY = 1_000
"""Partitions of the old topic: the broker deletes them over many turns of its loop."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded() as running:
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.port) as connected:
        yield connected


def create_request(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def answer(peer: Peer, asked: Message, version: int) -> Any:
    return answer_of(ROUTES[asked.API_KEY], version, peer.receive_answer())


def partition_count(peer: Peer, name: str) -> int:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = peer.ask(asked, 12).topics
    return len(topic.partitions)


def find_coordinator(peer: Peer) -> int:
    code: int = peer.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators[0].error_code
    return code


def commit(peer: Peer, name: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition])]
    answer = peer.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), 9)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def committed(peer: Peer, name: str) -> int:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
    (group,) = peer.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]), 9).groups
    assert group.error_code == 0
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


def test_a_commit_for_the_new_topic_outlives_the_deletion_of_the_old_one(broker: EmbeddedBroker, peer: Peer) -> None:
    name = "orders"
    assert peer.ask(create_request(name, MANY), 7).topics[0].error_code == 0
    until(lambda: find_coordinator(peer) == 0, "the group has a coordinator")
    until(lambda: commit(peer, name, 100) == 0, "the coordinator is loaded")
    with Peer(broker.port) as deleting, Peer(broker.port) as creating:
        deletion, creation = (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000),
            create_request(name, 1),
        )
        deleting.send(request(deletion, 6))
        until(lambda: partition_count(peer, name) == 0, "the old topic is out of sight")
        creating.send(request(creation, 7))
        until(lambda: partition_count(peer, name) == 1, "the new topic is there")
        assert commit(peer, name, 7) == 0
        assert committed(peer, name) == 7
        # Each answer says that everything decided before it has taken effect on this broker.
        assert answer(deleting, deletion, 6).responses[0].error_code == 0
        assert answer(creating, creation, 7).topics[0].error_code == 0
    assert committed(peer, name) == 7
