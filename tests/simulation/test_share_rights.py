"""Rights of share consumers: READ on the group and on each topic, looked up for every request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.simulation.share_stage import GROUP, Worker, share_stage, write
from tests.simulation.stage import Play

from strandline.codec.messages.create_acls_request import AclCreation, CreateAclsRequest
from strandline.codec.messages.create_acls_response import CreateAclsResponse
from strandline.codec.messages.share_delivery_request import (
    DeliveredPartition,
    DeliveredTopic,
    ShareDeliveryRequest,
)
from strandline.codec.messages.share_delivery_response import ShareDeliveryResponse
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT
from strandline.errors import ErrorCode
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType


@pytest.fixture
def play() -> Iterator[Play]:
    """A node where everything is allowed that no rule is about."""
    rights = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    with share_stage(**rights) as (play, _):
        write(play, 4)
        yield play


def rule(play: Play, kind: ResourceType, name: str, operation: Operation, permission: Permission) -> None:
    """Add a rule for all clients. Once there is one, what no rule allows is denied on that resource."""
    acl = AclCreation(kind, name, PatternType.LITERAL, "User:*", "*", operation, permission)
    answer = play.ask(play.leader("tasks"), CreateAclsRequest(creations=[acl]), 3, CreateAclsResponse)
    assert [each.error_code for each in answer.results] == [0]


def worker(play: Play) -> Worker:
    return Worker(play, play.leader("tasks"), "ann")


def fetched_code(ann: Worker) -> tuple[ErrorCode, ErrorCode]:
    """Fetch; return the error of the request and that of the partition."""
    answer = ann.fetch()
    of_partition = answer.responses[0].partitions[0].error_code if answer.responses else 0
    return ErrorCode(answer.error_code), ErrorCode(of_partition)


def test_a_client_that_may_read_group_and_topic_consumes(play: Play) -> None:
    rule(play, ResourceType.GROUP, GROUP, Operation.READ, Permission.ALLOW)
    rule(play, ResourceType.TOPIC, "tasks", Operation.READ, Permission.ALLOW)
    ann = worker(play)
    assert ann.poll() == [(0, 3, 1)]
    assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize("operation", [Operation.DESCRIBE, Operation.DELETE])
def test_another_right_on_the_group_is_not_enough(play: Play, operation: Operation) -> None:
    rule(play, ResourceType.GROUP, GROUP, operation, Permission.ALLOW)
    assert fetched_code(worker(play)) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE)
    ann = worker(play)
    ann.epoch = 1
    assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("operation", [Operation.DESCRIBE, Operation.WRITE])
def test_another_right_on_the_topic_is_not_enough(play: Play, operation: Operation) -> None:
    rule(play, ResourceType.TOPIC, "tasks", operation, Permission.ALLOW)
    ann = worker(play)
    assert fetched_code(ann) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (ResourceType.GROUP, GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, "tasks", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_right_that_is_taken_away_is_missing_in_an_open_session(
    play: Play, kind: ResourceType, name: str, expected: ErrorCode
) -> None:
    ann = worker(play)
    assert ann.poll() == [(0, 3, 1)]
    rule(play, kind, name, Operation.READ, Permission.DENY)
    assert ann.acknowledge((0, 3, [ACCEPT])) is expected
    if expected is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        # A request that is refused as a whole does not count as one of the session.
        ann.epoch -= 1
    assert expected in fetched_code(ann)


def delivery_codes(play: Play) -> tuple[ErrorCode, ErrorCode]:
    """Ask the leader what it holds; return the error of the request and that of the partition."""
    topics = [DeliveredTopic(name="tasks", partitions=[DeliveredPartition(partition=0)])]
    request = ShareDeliveryRequest(group_id=GROUP, topics=topics)
    answer = play.ask(play.leader("tasks"), request, 0, ShareDeliveryResponse)
    of_partition = answer.topics[0].partitions[0].error_code if answer.topics else 0
    return ErrorCode(answer.error_code), ErrorCode(of_partition)


def test_holders_are_described_with_the_right_on_group_and_topic(play: Play) -> None:
    assert worker(play).poll() == [(0, 3, 1)]
    assert delivery_codes(play) == (ErrorCode.NONE, ErrorCode.NONE)
    rule(play, ResourceType.TOPIC, "tasks", Operation.DESCRIBE, Permission.DENY)
    assert delivery_codes(play) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    rule(play, ResourceType.GROUP, GROUP, Operation.DESCRIBE, Permission.DENY)
    assert delivery_codes(play)[0] is ErrorCode.GROUP_AUTHORIZATION_FAILED
