"""The quota on changes of topics and partitions, through the handlers that charge it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.broker.network.throttling import BucketMutations
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import ErrorCode
from strandline.handlers import k03_metadata, k19_create_topics, k20_delete_topics, k37_create_partitions
from strandline.security.quotas.token_bucket import TokenBucket

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Ground:
    """A node whose clients share ten tokens, of which one a second comes back."""

    def __init__(self) -> None:
        self.node = NodeOfOne()
        self.asked: list[tuple[str, str]] = []
        throttling: Any = SimpleNamespace(now_ms=lambda: self.node.runtime.now * 1000, note=lambda *_: None)
        bucket = TokenBucket(1.0, windows=10, window_ms=1000, now_ms=throttling.now_ms())

        def quota(user: str, client_id: str, is_strict: bool) -> BucketMutations:
            self.asked.append((user, client_id))
            return BucketMutations(throttling, bucket, is_strict=is_strict)

        self.node.quota = quota

    def create(self, *counts: int, version: int = 7, validate_only: bool = False) -> tuple[list[int], int]:
        at = len(self.node.image.topics)
        topics = [
            CreatableTopic(name=f"t{at + place}", num_partitions=count, replication_factor=1)
            for place, count in enumerate(counts)
        ]
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        answer = ask(k19_create_topics, self.node, request, version, CreateTopicsResponse)
        return [each.error_code for each in answer.topics], answer.throttle_time_ms


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_what_does_not_fit_is_refused(ground: Ground) -> None:
    assert ground.create(6, 6, 6) == ([0, 0, EXCEEDED], 2000)
    assert len(ground.node.image.topics) == 2
    assert ground.asked == [("ANONYMOUS", "test")]
    ground.node.runtime.now += 1.5
    assert ground.create(1) == ([EXCEEDED], 500)
    ground.node.runtime.now += 0.5
    assert ground.create(1) == ([0], 0)


def test_older_clients_are_only_delayed(ground: Ground) -> None:
    assert ground.create(6, 6, 6, version=5) == ([0, 0, 0], 8000)
    assert len(ground.node.image.topics) == 3


def test_topic_that_is_refused_anyway_costs_nothing(ground: Ground) -> None:
    codes, throttle_ms = ground.create(9, 0)
    assert codes == [0, ErrorCode.INVALID_PARTITIONS]
    assert throttle_ms == 0
    assert ground.create(1) == ([0], 0)


def test_validation_costs_the_same(ground: Ground) -> None:
    assert ground.create(11, validate_only=True) == ([0], 0)
    assert ground.create(1) == ([EXCEEDED], 1000)


@pytest.mark.parametrize(("version", "codes", "throttle_ms"), [(3, [0, EXCEEDED], 2000), (2, [0, 0], 7000)])
def test_more_partitions(ground: Ground, version: int, codes: list[int], throttle_ms: int) -> None:
    assert ground.create(1, 1, version=5) == ([0, 0], 0)
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in (("t0", 11), ("t1", 6))
        ]
    )
    answer = ask(k37_create_partitions, ground.node, request, version, CreatePartitionsResponse)
    assert ([each.error_code for each in answer.results], answer.throttle_time_ms) == (codes, throttle_ms)


@pytest.mark.parametrize(("version", "codes", "throttle_ms"), [(6, [0, EXCEEDED], 2000), (4, [0, 0], 6000)])
def test_deletions(ground: Ground, version: int, codes: list[int], throttle_ms: int) -> None:
    assert ground.create(4, 4, version=5) == ([0, 0], 0)
    names = ["t0", "t1"]
    request = (
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
        if version >= 6
        else DeleteTopicsRequest(topic_names=names)
    )
    answer = ask(k20_delete_topics, ground.node, request, version, DeleteTopicsResponse)
    assert ([each.error_code for each in answer.responses], answer.throttle_time_ms) == (codes, throttle_ms)
    assert len(ground.node.image.topics) == (1 if EXCEEDED in codes else 0)


def test_topics_of_first_use_are_paid_for(ground: Ground) -> None:
    ground.create(10, 1)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="fresh")], allow_auto_topic_creation=True)
    answer = ask(k03_metadata, ground.node, request, 12, MetadataResponse)
    assert [each.error_code for each in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "fresh" not in ground.node.image.topics
    ground.node.runtime.now += 5.0
    ask(k03_metadata, ground.node, request, 12, MetadataResponse)
    assert "fresh" in ground.node.image.topics


def test_nodes_pay_nothing(ground: Ground) -> None:
    context: Any = Context(ground.node, 7, pays_quotas=False)
    topics = [CreatableTopic(name="internal", num_partitions=50, replication_factor=1)]
    k19_create_topics.handle(context, CreateTopicsRequest(topics=topics))
    ground.node.flush()
    assert context.answer(CreateTopicsResponse).topics[0].error_code == 0
    assert not ground.asked
