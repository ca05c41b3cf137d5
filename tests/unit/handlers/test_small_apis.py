"""ApiVersions, FindCoordinator and InitProducerId."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k10_find_coordinator, k18_api_versions, k22_init_producer_id


@pytest.mark.parametrize("version", range(5))
def test_api_versions_come_from_the_table_that_dispatches(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    answer = ask(k18_api_versions, NodeOfOne(), request, version, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.NONE
    told = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
    assert told == [(0, 0, 13), (3, 0, 13), (18, 0, 4)]
    if version >= 3:
        assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("metadata.version", 30),
            ("share.version", 2),
            ("strandline.coordinator.hash", 1),
            ("transaction.version", 2),
        ]
        # Clients of version 3 may not be told of what begins with 0.
        supported = [("metadata.version", 7, 30)]
        if version >= 4:
            supported += [
                ("eligible.leader.replicas.version", 0, 1),
                ("group.version", 0, 1),
                ("transaction.version", 0, 2),
                ("share.version", 0, 2),
                ("strandline.coordinator.hash", 0, 1),
            ]
        assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == supported
        assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize(("name", "software_version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1\n")])
def test_a_client_software_that_has_no_name_is_refused(name: str, software_version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    answer = ask(k18_api_versions, NodeOfOne(), request, 4, ApiVersionsResponse)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_so_that_the_client_can_ask_again(version: int) -> None:
    response = k18_api_versions.handle(Context(NodeOfOne(), version), ApiVersionsRequest())
    answer = decode_exact(ApiVersionsResponse, 0, encode(response, 0))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (18, 0, 4) in [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]


def find(node: NodeOfOne, version: int, key_type: int = 0, key: str = "group") -> list[tuple[Any, ...]]:
    request = (
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        if version >= 4
        else FindCoordinatorRequest(key=key, key_type=key_type)
    )
    answer = ask(k10_find_coordinator, node, request, version, FindCoordinatorResponse)
    coordinators = answer.coordinators if version >= 4 else [answer]
    return [(each.error_code, each.node_id, each.host, each.port) for each in coordinators]


@pytest.mark.parametrize("version", range(7))
def test_the_first_who_asks_for_a_group_coordinator_makes_the_offsets_topic(version: int) -> None:
    node = NodeOfOne(offsets_topic_num_partitions="3")
    assert find(node, version) == [(ErrorCode.NONE, 1, "127.0.0.1", 19092)]
    assert len(node.image.topics["__consumer_offsets"].partitions) == 3
    assert find(node, version) == [(ErrorCode.NONE, 1, "127.0.0.1", 19092)]
    assert len(node.image.topics) == 1


def test_two_who_ask_at_once_make_one_offsets_topic() -> None:
    node = NodeOfOne()
    contexts = [Context(node, 2), Context(node, 2)]
    for context in contexts:
        assert k10_find_coordinator.handle(context, FindCoordinatorRequest(key="g")) is None
    node.flush()
    assert [context.replies[0].error_code for context in contexts] == [ErrorCode.NONE] * 2
    assert len(node.image.topics) == 1


@pytest.mark.parametrize("key_type", [0, 1])
def test_a_coordinator_that_has_just_begun_is_named_when_it_serves(key_type: int) -> None:
    node = NodeOfOne()
    node.groups.is_loading = True

    def asked() -> Context:
        context = Context(node, 2)
        k10_find_coordinator.handle(context, FindCoordinatorRequest(key="g", key_type=key_type))
        node.flush()
        return context

    context = asked()
    for _ in range(5):
        node.runtime.timers.pop().callback()
        assert not context.replies
    node.groups.is_loading = False
    node.runtime.timers.pop().callback()
    assert [each.error_code for each in context.replies] == [ErrorCode.NONE]
    node.groups.is_loading = True
    patient = asked()
    for _ in range(k10_find_coordinator.LOOKS_MAX):
        assert not patient.replies
        node.runtime.timers.pop().callback()
    assert [each.error_code for each in patient.replies] == [ErrorCode.NONE], "a load may take long"


def test_no_offsets_topic_no_coordinator() -> None:
    node = NodeOfOne()
    context = Context(node, 2)
    k10_find_coordinator.handle(context, FindCoordinatorRequest(key="g"))
    node.fail(DiskFailed("no space"))
    assert context.replies[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_coordinator_whose_broker_is_elsewhere() -> None:
    node = NodeOfOne(offsets_topic_num_partitions="1")
    node.start_broker(2)
    find(node, 6)
    node.image.topics["__consumer_offsets"].partitions[0].leader = 2
    assert find(node, 6) == [(ErrorCode.NONE, 2, "host-2", 9002)]
    node.image.topics["__consumer_offsets"].partitions[0].leader = -1
    assert find(node, 6) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (99, ErrorCode.INVALID_REQUEST)],
)
def test_coordinators_that_are_not_there_yet(key_type: int, code: ErrorCode) -> None:
    node = NodeOfOne()
    assert [answer[0] for answer in find(node, 6, key_type)] == [code]
    assert [answer[0] for answer in find(node, 2, key_type)] == [code]
    assert not node.image.topics


def test_transactional_ids_have_a_topic_and_coordinators_of_their_own() -> None:
    node = NodeOfOne(transaction_state_log_num_partitions="3")
    assert find(node, 6, 1, "payments") == [(ErrorCode.NONE, 1, *find(node, 6)[0][2:])]
    topic = node.image.topics["__transaction_state"]
    assert len(topic.partitions) == 3
    overrides = topic.config_overrides
    assert (overrides["flush.mode"], overrides["cleanup.policy"]) == ("ack", "compact")
    assert overrides["min.insync.replicas"] == "2"


def init(node: NodeOfOne, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    answer = ask(k22_init_producer_id, node, request, version, InitProducerIdResponse)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    node = NodeOfOne()
    assert [init(node, version) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_an_id_leaves_only_when_its_block_is_on_disk_and_never_twice() -> None:
    node = NodeOfOne()
    waiting = [Context(node, 5) for _ in range(2500)]
    for context in waiting:
        assert k22_init_producer_id.handle(context, InitProducerIdRequest(transactional_id=None)) is None
    assert not any(context.replies for context in waiting)
    node.flush()
    ids = [context.replies[0].producer_id for context in waiting]
    assert len(set(ids)) == len(ids)
    assert max(ids) < node.image.next_producer_id
    # After a restart that lost everything but the log, ids go on above every one that was given.
    restarted = NodeOfOne(start=False)
    for record in node.log:
        restarted.image.apply(record)
    restarted.controller.revert(restarted.image)
    assert init(restarted)[1] > max(ids)


def test_the_next_block_is_fetched_before_the_last_id_is_gone() -> None:
    node = NodeOfOne()
    for _ in range(900):
        init(node)
    context = Context(node, 5)
    k22_init_producer_id.handle(context, InitProducerIdRequest(transactional_id=None))
    assert context.replies, "this id was in the block that is already on disk"
    node.runtime.settle()
    assert node.image.next_producer_id == 2000 or node.writes


def test_a_failed_disk_gives_no_ids() -> None:
    node = NodeOfOne()
    context = Context(node, 5)
    k22_init_producer_id.handle(context, InitProducerIdRequest(transactional_id=None))
    node.fail(DiskFailed("no space"))
    (answer,) = context.replies
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    assert init(node)[0] == ErrorCode.NONE, "the next request asks for a block again"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": 1}, ErrorCode.NONE),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_producer_may_ask(fields: dict[str, Any], code: ErrorCode) -> None:
    answer = init(NodeOfOne(), **fields)
    assert answer[0] == code
    assert answer[1:] == ((0, 0) if code == ErrorCode.NONE else (-1, -1))
