"""CreateTopics and DeleteTopics over every version of their format."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.codec.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k19_create_topics, k20_delete_topics


def create(node: NodeOfOne, *topics: CreatableTopic, version: int = 7, **more: Any) -> CreateTopicsResponse:
    request = CreateTopicsRequest(topics=list(topics), **more)
    response = ask(k19_create_topics, node, request, version, CreateTopicsResponse)
    assert isinstance(response, CreateTopicsResponse)
    return response


def topic(name: str, partitions: int = 2, replicas: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **more)


def delete(node: NodeOfOne, request: DeleteTopicsRequest, version: int = 6) -> list[tuple[str | None, int]]:
    response = ask(k20_delete_topics, node, request, version, DeleteTopicsResponse)
    return [(each.name, each.error_code) for each in response.responses]


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(version: int) -> None:
    node = NodeOfOne()
    config = CreatableTopicConfig(name="retention.ms", value="60000")
    response = create(node, topic("good", configs=[config]), topic("bad/name"), version=version)
    good, bad = response.topics
    assert (good.name, good.error_code, good.error_message) == ("good", 0, None)
    assert (bad.name, bad.error_code) == ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "bad/name" in (bad.error_message or "")
    assert node.image.topics["good"].config_overrides == {"retention.ms": "60000"}
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 1)
        assert good.configs is not None
        told = {each.name: (each.value, each.config_source) for each in good.configs}
        assert told["retention.ms"] == ("60000", 1)
        assert told["segment.bytes"] == ("1073741824", 5)
        assert [each.name for each in good.configs] == sorted(told)
    if version >= 7:
        assert good.topic_id == node.image.topics["good"].id


def test_an_explicit_assignment() -> None:
    node = NodeOfOne()
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(3)]
    (result,) = create(node, topic("t", -1, -1, assignments=assignments)).topics
    assert (result.error_code, result.num_partitions) == (0, 3)


def test_validate_only_creates_nothing() -> None:
    node = NodeOfOne()
    (result,) = create(node, topic("t"), validate_only=True).topics
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert not node.image.topics


def test_create_topics_is_not_answered_before_the_disk_has_the_topic() -> None:
    node = NodeOfOne()
    first, second = Context(node, 7), Context(node, 7)
    k19_create_topics.handle(first, CreateTopicsRequest(topics=[topic("t")]))
    k19_create_topics.handle(second, CreateTopicsRequest(topics=[topic("t")]))
    assert not first.replies
    assert not second.replies, "even that it exists is only true once it is on disk"
    node.flush()
    codes = [context.answer(CreateTopicsResponse).topics[0].error_code for context in (first, second)]
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_failed_disk_is_told_and_the_topic_can_be_tried_again() -> None:
    node = NodeOfOne()
    context = Context(node, 7)
    k19_create_topics.handle(context, CreateTopicsRequest(topics=[topic("t")]))
    node.fail(DiskFailed("no space"))
    assert context.answer(CreateTopicsResponse).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert create(node, topic("t")).topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_by_name(version: int) -> None:
    node = NodeOfOne()
    create(node, topic("a"), topic("b"))
    assert delete(node, DeleteTopicsRequest(topic_names=["a", "missing"]), version) == [
        ("a", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(node.image.topics) == ["b"]


def test_delete_by_id_and_name_in_version_6() -> None:
    node = NodeOfOne()
    create(node, topic("a"), topic("b"))
    topics = [
        DeleteTopicState(name=None, topic_id=node.image.topics["a"].id),
        DeleteTopicState(name="b"),
        DeleteTopicState(name=None, topic_id=uuid.UUID(int=9)),
        DeleteTopicState(name=None),
    ]
    assert delete(node, DeleteTopicsRequest(topics=topics)) == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
    ]
    assert not node.image.topics


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_that_is_switched_off_is_told_in_words_of_the_clients_age(version: int, code: ErrorCode) -> None:
    node = NodeOfOne(delete_topic_enable="false")
    create(node, topic("a"))
    assert delete(node, DeleteTopicsRequest(topic_names=["a"]), version) == [("a", code)]


def test_a_deletion_that_the_disk_refused() -> None:
    node = NodeOfOne()
    create(node, topic("a"))
    context = Context(node, 6)
    k20_delete_topics.handle(context, DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]))
    node.fail(DiskFailed("no space"))
    assert context.answer(DeleteTopicsResponse).responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "a" in node.image.topics
