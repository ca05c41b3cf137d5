"""Metadata: by name, by id, all of them; creation on the way; and that the joined bytes are the encoded message."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.codec.message_codec import encode
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k03_metadata
from strandline.quorum.controller.controller import TopicRef
from strandline.quorum.controller.new_topics import NewTopic

FIRST, LAST = k03_metadata.VERSIONS
EVERY_VERSION = range(FIRST, LAST + 1)


def node_with(*names: str, partitions: int = 2, **settings: str) -> NodeOfOne:
    node = NodeOfOne(**settings)
    records, _ = node.controller.create_topics([NewTopic(name, partitions) for name in names])
    node.controller_write(records, lambda error: None)
    node.flush()
    return node


def by_names(*names: str, **flags: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **flags)


def metadata(node: NodeOfOne, request: MetadataRequest, version: int = LAST) -> MetadataResponse:
    answer = ask(k03_metadata, node, request, version, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return answer


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_every_version_tells_brokers_and_topics(version: int) -> None:
    node = node_with("a", "b")
    answer = metadata(node, by_names("a"), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "127.0.0.1", 19092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "a")
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == "a-cluster"
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == node.image.topics["a"].id


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("asked", [(), ("a",), ("a", "missing", "b"), ("bad/name",)])
def test_the_joined_bytes_are_those_of_the_whole_message(version: int, asked: tuple[str, ...]) -> None:
    node = node_with("a", "b", auto_create_topics_enable="false")
    request = by_names(*asked)
    first, again = (k03_metadata.handle(Context(node, version), request) for _ in range(2))
    assert first == again
    assert first is not None
    answer = metadata(node, request, version)
    assert encode(answer, version) == first.body


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_all_topics_and_none(version: int) -> None:
    node = node_with("a", "b")
    everything = MetadataRequest(topics=None if version else [])
    assert sorted(topic.name or "" for topic in metadata(node, everything, version).topics) == ["a", "b"]
    if version:
        assert metadata(node, MetadataRequest(topics=[]), version).topics == []


def test_by_id() -> None:
    node = node_with("a", "b")
    unknown = uuid.UUID(int=77)
    known = node.image.topics["b"].id
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=each) for each in (known, unknown)])
    answer = metadata(node, request)
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics] == [
        (ErrorCode.NONE, "b", known),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_version_12_are_refused(version: int) -> None:
    node = node_with("a")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=node.image.topics["a"].id)])
    (topic,) = metadata(node, request, version).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("setting", "flag", "created"),
    [("true", True, True), ("true", False, False), ("false", True, False), ("false", False, False)],
)
def test_a_missing_topic_is_created_where_node_and_request_allow_it(setting: str, flag: bool, created: bool) -> None:
    node = NodeOfOne(auto_create_topics_enable=setting, num_partitions="3")
    (topic,) = metadata(node, by_names("new", allow_auto_topic_creation=flag)).topics
    assert topic.error_code == (ErrorCode.NONE if created else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(topic.partitions) == (3 if created else 0)
    assert ("new" in node.image.topics) == created


def test_two_requests_for_one_missing_topic_create_it_once_and_wait_for_it() -> None:
    node = NodeOfOne()
    contexts = [Context(node, LAST) for _ in range(2)]
    for context in contexts:
        assert k03_metadata.handle(context, by_names("new")) is None
    assert not any(context.replies for context in contexts), "not answered before the disk has it"
    node.flush()
    first, second = (context.replies[0] for context in contexts)
    assert first == second
    assert len(node.image.topics) == 1
    assert node.image.topics["new"].partitions


def test_what_cannot_be_created_is_told_per_topic() -> None:
    node = node_with("a.b")
    answer = metadata(node, by_names("fine", "a_b", "bad/name", "a.b", "__strandline_audit"))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "fine": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a.b": ErrorCode.NONE,
        "__strandline_audit": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_the_offsets_topic_is_created_with_its_own_settings_and_is_internal() -> None:
    node = NodeOfOne(offsets_topic_num_partitions="4")
    (topic,) = metadata(node, by_names("__consumer_offsets")).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 4)


def test_a_failed_disk_creates_nothing_and_says_so() -> None:
    node = NodeOfOne()
    context = Context(node, LAST)
    k03_metadata.handle(context, by_names("new"))
    node.fail(DiskFailed("no space"))
    assert len(context.replies) == 1
    assert "new" not in node.image.topics
    assert metadata(node, by_names("new")).topics[0].error_code == ErrorCode.NONE, "the next request tries again"


def test_a_kept_answer_is_forgotten_when_the_topic_or_a_broker_changes() -> None:
    node = node_with("a")
    request = by_names("a")
    epoch = metadata(node, request).topics[0].partitions[0].leader_epoch
    node.start_broker(1)
    node.flush()
    assert metadata(node, request).topics[0].partitions[0].leader_epoch == epoch + 1
    records, _ = node.controller.delete_topics([TopicRef("a")])
    node.controller_write(records, lambda error: None)
    node.flush()
    answer = metadata(node, by_names("a", allow_auto_topic_creation=False))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_whose_leader_is_away_says_so() -> None:
    from strandline.codec.messages.fence_broker_record import FenceBrokerRecord

    node = node_with("a", partitions=1)
    assert metadata(node, by_names("a")).topics[0].partitions[0].error_code == ErrorCode.NONE
    node.image.apply(FenceBrokerRecord(id=1, epoch=node.image.brokers[1].epoch))
    answer = metadata(node, by_names("a"))
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [1]
    assert answer.brokers == []


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12, 13])
def test_authorized_operations_are_all_of_them_when_asked_for(version: int) -> None:
    node = node_with("a")
    request = by_names("a", include_topic_authorized_operations=True)
    request.include_cluster_authorized_operations = version <= 10
    answer = metadata(node, request, version)
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    if version <= 10:
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    assert metadata(node, by_names("a"), version).topics[0].topic_authorized_operations == -(2**31)


def test_a_topic_named_twice_is_told_once() -> None:
    assert len(metadata(node_with("a"), by_names("a", "a")).topics) == 1


def test_addresses_are_those_of_the_listener_that_was_asked() -> None:
    node = node_with("a", partitions=1)
    node.start_broker(2, listeners=("PLAINTEXT", "OUTSIDE"))
    node.start_broker(3)
    node.flush()
    for listener_name, expected in (
        ("PLAINTEXT", [(1, 19092), (2, 9002), (3, 9003)]),
        ("OUTSIDE", [(1, 19092), (2, 9102)]),
    ):
        context = Context(node, LAST, listener_name=listener_name)
        context.reply(k03_metadata.handle(context, MetadataRequest(topics=None)))
        answer = context.answer(MetadataResponse)
        assert [(each.node_id, each.port) for each in answer.brokers] == expected


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_leader_without_the_listener_is_named_to_none_of_its_clients(version: int, code: ErrorCode) -> None:
    node = node_with("a", partitions=1)

    def partition(listener_name: str) -> tuple[int, int, list[int]]:
        context = Context(node, version, listener_name=listener_name)
        context.reply(k03_metadata.handle(context, by_names("a")))
        (found,) = context.answer(MetadataResponse).topics[0].partitions
        return found.error_code, found.leader_id, found.offline_replicas

    assert partition("PLAINTEXT") == (0, 1, [])
    assert partition("OUTSIDE") == (code, -1, [1])
    assert partition("PLAINTEXT") == (0, 1, []), "an answer for another listener was kept"
    node.start_broker(1, listeners=("PLAINTEXT", "OUTSIDE"))
    node.flush()
    assert partition("OUTSIDE") == (0, 1, [])
