"""DescribeClientQuotas and AlterClientQuotas over every version of their format."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import NodeOfOne, ask

from strandline.codec.messages import alter_client_quotas_request as alter
from strandline.codec.messages.alter_client_quotas_response import AlterClientQuotasResponse
from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.codec.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from strandline.codec.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k48_describe_client_quotas, k49_alter_client_quotas
from strandline.handlers.k48_describe_client_quotas import MATCH_ANY, MATCH_DEFAULT, MATCH_EXACT
from strandline.quorum.controller.security import client_quotas

Entity = dict[str, str | None]
ALICE: Entity = {"user": "alice"}
APP: Entity = {"user": "alice", "client-id": "app"}
BYTES = "producer_byte_rate"


@pytest.fixture
def node() -> NodeOfOne:
    return NodeOfOne()


def change(
    node: NodeOfOne, *entries: tuple[Entity, dict[str, float | None]], version: int = 1, validate_only: bool = False
) -> list[int]:
    answer = ask(k49_alter_client_quotas, node, request_of(*entries, validate_only=validate_only), version, ALTERED)
    sent = [{each.entity_type: each.entity_name for each in entry.entity} for entry in answer.entries]
    assert sent == [entity for entity, _ in entries]
    for entry in answer.entries:
        assert (entry.error_message is None) == (entry.error_code == 0), "a refusal is told in words"
    return [entry.error_code for entry in answer.entries]


ALTERED = AlterClientQuotasResponse


def request_of(
    *entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False
) -> alter.AlterClientQuotasRequest:
    return alter.AlterClientQuotasRequest(
        entries=[
            alter.EntryData(
                entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
            for entity, values in entries
        ],
        validate_only=validate_only,
    )


def described(node: NodeOfOne, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components],
        strict=strict,
    )
    return ask(k48_describe_client_quotas, node, request, version, DescribeClientQuotasResponse)


def quotas(node: NodeOfOne, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    answer = described(node, *components, strict=strict, version=version)
    assert answer.error_code == 0
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_changed_and_removed(node: NodeOfOne, version: int) -> None:
    assert change(node, (ALICE, {BYTES: 1000.0, "request_percentage": 12.5}), version=version) == [0]
    assert quotas(node, version=version) == [(ALICE, {BYTES: 1000.0, "request_percentage": 12.5})]
    assert change(node, (ALICE, {BYTES: 2000.0, "request_percentage": None}), version=version) == [0]
    assert quotas(node, version=version) == [(ALICE, {BYTES: 2000.0})]
    assert change(node, (ALICE, {BYTES: None}), version=version) == [0]
    assert quotas(node, version=version) == []


def test_what_changes_nothing_makes_no_record(node: NodeOfOne) -> None:
    change(node, (APP, {BYTES: 1000.0}))
    length = len(node.log)
    # The order of the parts of an entity means nothing.
    assert change(node, ({"client-id": "app", "user": "alice"}, {BYTES: 1000.0, "request_percentage": None})) == [0]
    assert len(node.log) == length


def test_validate_only_changes_nothing(node: NodeOfOne) -> None:
    length = len(node.log)
    outcomes = change(node, (ALICE, {BYTES: 1000.0}), (APP, {BYTES: -1.0}), validate_only=True)
    assert outcomes == [0, ErrorCode.INVALID_REQUEST]
    assert len(node.log) == length


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {BYTES: 1.0}),
        ({"user": ""}, {BYTES: 1.0}),
        ({"client-id": ""}, {BYTES: 1.0}),
        ({"planet": "earth"}, {BYTES: 1.0}),
        ({"ip": "10.0.0.1", "user": "alice"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1", "client-id": None}, {"connection_creation_rate": 1.0}),
        ({"ip": "no.such.host"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {BYTES: 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0**31}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.5}),
        (ALICE, {"connection_creation_rate": 1.0}),
        (ALICE, {"unknown": 1.0}),
        (ALICE, {BYTES: 0.0}),
        (ALICE, {BYTES: -5.0}),
        (ALICE, {BYTES: 1.5}),
        (ALICE, {BYTES: 2.0**64}),
        (ALICE, {BYTES: math.nan}),
        (ALICE, {BYTES: math.inf}),
        (ALICE, {"request_percentage": 0.0}),
        (ALICE, {BYTES: 1000.0, "controller_mutation_rate": -1.0}),
    ],
)
def test_wrong_entities_and_values_are_refused(
    node: NodeOfOne, entity: Entity, values: dict[str, float | None]
) -> None:
    length = len(node.log)
    good: Entity = {"client-id": "good"}
    assert change(node, (entity, values), (good, {BYTES: 7.0})) == [ErrorCode.INVALID_REQUEST, 0]
    assert len(node.log) == length + 1
    assert quotas(node) == [(good, {BYTES: 7.0})]


def test_entity_or_key_that_stands_twice_is_refused(node: NodeOfOne) -> None:
    twice = change(node, (APP, {BYTES: 1.0}), ({"client-id": "app", "user": "alice"}, {BYTES: 2.0}))
    assert twice == [ErrorCode.INVALID_REQUEST] * 2
    request = request_of((ALICE, {BYTES: 1.0}))
    request.entries[0].ops *= 2
    answer = ask(k49_alter_client_quotas, node, request, 1, ALTERED)
    assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
    request = request_of((ALICE, {BYTES: 1.0}))
    request.entries[0].entity *= 2
    answer = ask(k49_alter_client_quotas, node, request, 1, ALTERED)
    assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
    assert quotas(node) == []


def test_address_is_stored_as_connections_show_it(node: NodeOfOne) -> None:
    assert change(node, ({"ip": "::ffff:10.0.0.1"}, {"connection_creation_rate": 5.0})) == [0]
    assert quotas(node) == [({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0})]


def test_host_name_that_kafka_stored_can_be_removed(node: NodeOfOne) -> None:
    stored = ClientQuotaRecord(
        entity=[EntityData(entity_type="ip", entity_name="host.example")], key="connection_creation_rate", value=5.0
    )
    for image in (node.image, node.controller._state.image):
        image.apply(stored)
    assert change(node, ({"ip": "host.example"}, {"connection_creation_rate": 6.0})) == [ErrorCode.INVALID_REQUEST]
    assert change(node, ({"ip": "host.example"}, {"connection_creation_rate": None})) == [0]
    assert quotas(node) == []


def test_number_of_quotas_is_bounded(node: NodeOfOne, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "QUOTAS_MAX", 2)
    monkeypatch.setattr(client_quotas, "QUOTAS_PER_REQUEST_MAX", 3)
    entries: list[tuple[Entity, dict[str, float | None]]] = [({"user": name}, {BYTES: 1.0}) for name in "abc"]
    assert change(node, *entries) == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert change(node, ({"user": "a"}, {BYTES: 2.0})) == [0]
    assert change(node, *entries, ({"user": "d"}, {BYTES: 1.0})) == [ErrorCode.POLICY_VIOLATION] * 4


def test_failed_write_is_answered_for_each_entity(node: NodeOfOne) -> None:
    from tests.unit.handlers.node_of_one import Context

    context: Any = Context(node, 1)
    k49_alter_client_quotas.handle(context, request_of((ALICE, {BYTES: 1.0}), (APP, {BYTES: 1.0})))
    node.fail(DiskFailed("no disk"))
    answer = context.answer(ALTERED)
    assert [entry.error_code for entry in answer.entries] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert quotas(node) == []


ENTITIES: list[Entity] = [
    {"user": "alice"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": None, "client-id": None},
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("components", "matches"),
    [
        ([], lambda each: True),
        ([("user", MATCH_EXACT, "alice")], lambda each: each.get("user") == "alice"),
        ([("user", MATCH_DEFAULT, None)], lambda each: each.get("user", "-") is None),
        ([("user", MATCH_ANY, None)], lambda each: "user" in each),
        (
            [("user", MATCH_EXACT, "alice"), ("client-id", MATCH_ANY, None)],
            lambda each: each.get("user") == "alice" and "client-id" in each,
        ),
        (
            [("user", MATCH_ANY, None), ("client-id", MATCH_DEFAULT, None)],
            lambda each: "user" in each and each.get("client-id", "-") is None,
        ),
        ([("ip", MATCH_ANY, None)], lambda each: "ip" in each),
    ],
)
def test_filters(node: NodeOfOne, components: Any, matches: Any, strict: bool) -> None:
    change(node, *((entity, {BYTES: 5.0}) for entity in ENTITIES))
    found = [entity for entity, _ in quotas(node, *components, strict=strict)]
    expected = [each for each in ENTITIES if matches(each) and (not strict or len(each) == len(components))]
    assert sorted(map(repr, map(sorted, map(dict.items, found)))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", MATCH_ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", MATCH_ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", MATCH_ANY, None), ("user", MATCH_EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", MATCH_EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", MATCH_DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", MATCH_ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("user", MATCH_ANY, None), ("ip", MATCH_ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_filters_are_refused(node: NodeOfOne, components: Any, code: int) -> None:
    answer = described(node, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
