"""Long work takes turns: what is decided in shares is what would be decided at once, and a failed share is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, SlowRuntime, ask

from strandline.codec.columns import Record, encode_batch
from strandline.codec.internal_records import encode_metadata_record
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse
from strandline.codec.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k03_metadata, k19_create_topics, k20_delete_topics, k37_create_partitions
from strandline.handlers.support.response_parts import joined
from strandline.quorum.controller.controller import TOPICS_PER_REQUEST_MAX
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.controller.prepared_records import PreparedRecords, encoded, folds_of
from strandline.runtime.time_slicing import gradually

TOPICS = 40


def creation(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def names(count: int = TOPICS) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer]


def test_work_is_spread_over_turns_and_nothing_is_lost() -> None:
    runtime = SlowRuntime()
    found: list[list[int]] = []
    gradually(runtime, iter(range(20)), found.append)
    turns = 0
    while not found:
        runtime.turn()
        turns += 1
    assert found == [list(range(20))]
    assert turns > 3


def test_quick_work_is_done_at_once() -> None:
    found: list[list[int]] = []
    gradually(NodeOfOne().runtime, iter(range(20)), found.append)
    assert found == [list(range(20))]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_many_topics_are_created_and_deleted_over_many_turns(version: int) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    context = Context(node, version)
    k19_create_topics.handle(context, creation(*names(), "bad/name"))
    assert len(node.writes) == 1, "what is decided is written in the same turn ..."
    assert 0 < len(node.writes[0][0]) < 10, "... and it is a share of the whole"
    node.flush()
    answer = context.answer(CreateTopicsResponse)
    assert [each.name for each in answer.topics] == [*names(), "bad/name"], "in the order of the request"
    assert codes(answer.topics) == [ErrorCode.NONE] * TOPICS + [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert set(node.image.topics) == set(names())

    asked = [DeleteTopicState(name=name) for name in [*names(), "missing"]]
    deleted = ask(k20_delete_topics, node, DeleteTopicsRequest(topics=asked), 6, DeleteTopicsResponse).responses
    assert codes(deleted) == [ErrorCode.NONE] * TOPICS + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not node.image.topics


def test_two_requests_for_the_same_names_that_take_turns_create_each_once() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    contexts = [Context(node, 7), Context(node, 7)]
    k19_create_topics.handle(contexts[0], creation(*names()))
    k19_create_topics.handle(contexts[1], creation(*reversed(names())))
    node.flush()
    first, second = (
        {each.name: each.error_code for each in context.answer(CreateTopicsResponse).topics} for context in contexts
    )
    for name in names():
        assert sorted((first[name], second[name])) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert 0 < list(first.values()).count(0) < TOPICS, "they met half way"


def test_a_topic_that_another_request_deletes_meanwhile() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    ask(k19_create_topics, node, creation(*names()), 7, CreateTopicsResponse)
    slow, quick = Context(node, 6), Context(node, 6)
    k20_delete_topics.handle(slow, DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names()]))
    k20_delete_topics.handle(quick, DeleteTopicsRequest(topics=[DeleteTopicState(name=names()[-1])]))
    node.flush()
    assert codes(quick.answer(DeleteTopicsResponse).responses) == [ErrorCode.NONE]
    assert codes(slow.answer(DeleteTopicsResponse).responses)[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.image.topics


def test_a_share_that_the_disk_refuses_is_taken_back_and_no_other() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    context = Context(node, 7)
    k19_create_topics.handle(context, creation(*names()))
    node.fail(DiskFailed("no space"))
    node.flush()
    answer = context.answer(CreateTopicsResponse).topics
    failed = [each.name for each in answer if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
    assert failed
    assert failed == names()[: len(failed)], "the first share"
    assert codes(answer[len(failed) :]) == [ErrorCode.NONE] * (TOPICS - len(failed))
    assert set(node.image.topics) == set(names()) - set(failed)
    again = ask(k19_create_topics, node, creation(*failed), 7, CreateTopicsResponse)
    assert codes(again.topics) == [ErrorCode.NONE] * len(failed)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(version: int) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    ask(k19_create_topics, node, creation(*names()), 7, CreateTopicsResponse)
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in [*names(), "missing"]]
    request = CreatePartitionsRequest(topics=topics)
    answer = ask(k37_create_partitions, node, request, version, CreatePartitionsResponse)
    assert [each.name for each in answer.results] == [*names(), "missing"]
    assert codes(answer.results) == [ErrorCode.NONE] * TOPICS + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert answer.results[0].error_message is None
    assert answer.results[-1].error_message
    assert {len(topic.partitions) for topic in node.image.topics.values()} == {3}


def test_partitions_that_the_disk_refused() -> None:
    node = NodeOfOne()
    ask(k19_create_topics, node, creation("orders"), 7, CreateTopicsResponse)
    context = Context(node, 3)
    topics = [CreatePartitionsTopic(name="orders", count=3, assignments=None)]
    k37_create_partitions.handle(context, CreatePartitionsRequest(topics=topics))
    node.fail(DiskFailed("no space"))
    assert codes(context.answer(CreatePartitionsResponse).results) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(node.image.topics["orders"].partitions) == 1


def test_metadata_creates_many_topics_over_many_turns() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names()])
    answer = ask(k03_metadata, node, request, 12, MetadataResponse)
    assert [each.name for each in answer.topics] == names()
    assert codes(answer.topics) == [ErrorCode.NONE] * TOPICS


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300])
def test_an_answer_joined_from_parts_is_the_answer_encoded_as_a_whole(version: int, count: int) -> None:
    results = [DeletableTopicResult(name=f"t{number}", error_message=None) for number in range(count)]
    parts = [encode(result, version) for result in results]
    whole = DeleteTopicsResponse(responses=results)
    assert joined(DeleteTopicsResponse(), version, parts) == encode(whole, version)
    assert decode_exact(DeleteTopicsResponse, version, joined(DeleteTopicsResponse(), version, parts)) is not None


def test_a_request_that_names_too_many_topics_is_refused_before_anything_is_made_of_it() -> None:
    node = NodeOfOne()
    many = names(TOPICS_PER_REQUEST_MAX + 1)
    created = ask(k19_create_topics, node, creation(*many), 7, CreateTopicsResponse).topics
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in many])
    deleted = ask(k20_delete_topics, node, deletion, 6, DeleteTopicsResponse).responses
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in many]
    request = CreatePartitionsRequest(topics=topics)
    added = ask(k37_create_partitions, node, request, 3, CreatePartitionsResponse).results
    for results in (created, deleted, added):
        assert [each.name for each in results] == many
        assert set(codes(results)) == {ErrorCode.POLICY_VIOLATION}
    assert node.errors == {(key, ErrorCode.POLICY_VIOLATION): len(many) for key in (19, 20, 37)}, "each is counted"
    assert not node.image.topics


class Broken(Exception):
    """A mistake of ours."""


def test_what_was_decided_before_a_mistake_of_ours_is_written_all_the_same() -> None:
    """Else the controller would take topics for there that no log knows."""
    node = NodeOfOne()

    def decisions() -> Iterator[tuple[list[Any], None]]:
        records, _ = node.controller.create_topics([NewTopic("decided")])
        yield records, None
        raise Broken

    with pytest.raises(Broken):
        node.controller.submit_all(decisions(), lambda outcomes: None)
    node.flush()
    assert "decided" in node.image.topics


# One topic that is large

LARGE = 2_050


def large(name: str = "large", partitions: int = LARGE) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def more(name: str = "orders", count: int = LARGE) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])


def begin_large(node: NodeOfOne, turns: int) -> Context:
    """Ask for a large topic, and let so many turns of the loop pass."""
    context = Context(node, 7)
    k19_create_topics.handle(context, large())
    for _ in range(turns):
        node.runtime.turn()
    return context


def turns_of(node: NodeOfOne, handler: Any, request: Any) -> int:
    """Return the turns until the request is written."""
    handler.handle(Context(node, 3), request)
    turns = 0
    while not node.writes:
        node.runtime.turn()
        turns += 1
    return turns


@pytest.mark.parametrize("kind", ["create", "add", "assign"])
def test_one_large_topic_is_made_over_many_turns_and_written_as_one_batch(kind: str) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    request: Any = large()
    handler: Any = k19_create_topics
    if kind == "assign":
        assigned = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(LARGE)]
        request.topics[0].num_partitions = request.topics[0].replication_factor = -1
        request.topics[0].assignments = assigned
    elif kind == "add":
        ask(k19_create_topics, node, creation("large"), 7, CreateTopicsResponse)
        handler, request = k37_create_partitions, more("large")
    assert turns_of(node, handler, request) >= LARGE // 100 // 3, "a slice of 100 and a look at the clock take turns"
    (records,) = [records for records, _ in node.writes if records]
    values = [Record(timestamp_ms=7, value=encode_metadata_record(record)) for record in records]
    assert encoded(records, 7) == encode_batch(values), "as if it had been encoded at once"
    assert len(folds_of(records)) <= 3, "an image takes all partitions in one step"
    whole = node.image.copy()
    for record in records:
        whole.apply(record)
    node.flush()
    assert node.image == whole
    assert len(node.image.topics["large"].partitions) == LARGE


@pytest.mark.lengthy("large inputs")
@pytest.mark.parametrize("turns", range(6))
def test_a_controller_that_loses_its_office_leaves_nothing_of_a_large_topic(turns: int) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    context = begin_large(node, turns)
    node.controller.deactivate()
    node.flush()
    assert codes(context.answer(CreateTopicsResponse).topics) == [ErrorCode.NOT_CONTROLLER]
    assert not node.image.topics
    node.controller.activate(node.image, 0.0)
    again = ask(k19_create_topics, node, large(), 7, CreateTopicsResponse)
    assert codes(again.topics) == [ErrorCode.NONE]


@pytest.mark.parametrize("turns", range(6))
def test_of_two_requests_for_one_name_the_one_that_is_decided_first_makes_it(turns: int) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    context = begin_large(node, turns)
    small = ask(k19_create_topics, node, creation("large"), 7, CreateTopicsResponse)
    node.flush()
    assert sorted(codes(small.topics) + codes(context.answer(CreateTopicsResponse).topics)) == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


@pytest.mark.lengthy("large inputs")
@pytest.mark.parametrize("turns", range(6))
def test_a_large_topic_is_placed_again_if_a_broker_leaves_meanwhile(turns: int) -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    node.start_broker(2)
    node.flush()
    context = begin_large(node, turns)
    assert not node.writes
    fence = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=node.image.brokers[2].epoch, fenced=1)
    node.controller_write(node.controller.bootstrap([fence]), lambda error: None)
    node.flush()
    assert {each.leader for each in node.image.topics["large"].partitions} == {1}
    assert codes(context.answer(CreateTopicsResponse).topics) == [ErrorCode.NONE]


def test_a_topic_that_is_deleted_while_partitions_are_added_stays_deleted() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    ask(k19_create_topics, node, creation("orders"), 7, CreateTopicsResponse)
    context = Context(node, 3)
    k37_create_partitions.handle(context, more())
    node.runtime.turn()
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
    ask(k20_delete_topics, node, deletion, 6, DeleteTopicsResponse)
    node.flush()
    answer = context.answer(CreatePartitionsResponse).results
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not node.image.topics


def test_brokers_that_change_all_the_time_do_not_keep_a_large_topic_from_being_made() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    context = begin_large(node, 0)
    for _ in range(200):
        if node.writes and isinstance(node.writes[-1][0], PreparedRecords):
            break
        epoch = node.controller.elections._state.image.brokers[1].epoch
        change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch)
        node.controller_write(node.controller.bootstrap([change]), lambda error: None)
        node.runtime.turn()
    node.flush()
    assert codes(context.answer(CreateTopicsResponse).topics) == [ErrorCode.NONE]


def test_small_topics_around_a_large_one_are_written_in_the_order_of_their_decisions() -> None:
    node = NodeOfOne(runtime=SlowRuntime())
    request = creation("before", "large", "after")
    request.topics[1].num_partitions = LARGE
    answer = ask(k19_create_topics, node, request, 7, CreateTopicsResponse)
    assert codes(answer.topics) == [ErrorCode.NONE] * 3
    assert list(node.image.topics) == ["before", "large", "after"]
