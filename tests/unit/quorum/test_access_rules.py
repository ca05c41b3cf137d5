"""The controller's commands for access rules."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.security import access_rules as module
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.access_rule import Acl, AclFilter, acl_of
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType

READ_ORDERS = Acl(
    ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW
)
WRITE_ORDERS = READ_ORDERS._replace(operation=Operation.WRITE)
PREFIXED = READ_ORDERS._replace(pattern_type=PatternType.PREFIXED, name="ord")
EVERY_TOPIC = READ_ORDERS._replace(name="*")
GROUP = READ_ORDERS._replace(resource_type=ResourceType.GROUP)
ALL = (READ_ORDERS, WRITE_ORDERS, PREFIXED, EVERY_TOPIC, GROUP)


def controller(image: ClusterImage | None = None) -> Controller:
    return Controller(image or ClusterImage(), config=BrokerConfig.load(""), rng=random.Random(1))


def create(deciding: Controller, acls: Sequence[Acl]) -> tuple[list[Any], list[RequestError | None]]:
    records: list[Any] = []
    outcomes = []
    for decision in deciding.create_access_rules(acls):
        if decision is not None:
            records += decision[0]
            outcomes.append(decision[1])
    return records, outcomes


def delete(deciding: Controller, *filters: AclFilter) -> tuple[list[Any], list[list[Acl] | RequestError]]:
    records: list[Any] = []
    outcomes = []
    for decision in deciding.delete_access_rules(filters):
        if decision is not None:
            records += decision[0]
            outcomes.append(decision[1])
    return records, outcomes


def exact(acl: Acl) -> AclFilter:
    return AclFilter(*acl)


def test_new_acls_get_a_record_each_with_an_id_of_its_own() -> None:
    records, outcomes = create(controller(), ALL)
    assert outcomes == [None] * 5
    assert [acl_of(each) for each in records] == list(ALL)
    assert len({each.id for each in records}) == 5


def test_what_exists_or_comes_twice_succeeds_without_a_record() -> None:
    deciding = controller()
    records, outcomes = create(deciding, [READ_ORDERS, READ_ORDERS])
    assert (len(records), outcomes) == (1, [None, None])
    assert create(deciding, [READ_ORDERS]) == ([], [None])
    assert len(create(deciding, [READ_ORDERS, WRITE_ORDERS])[0]) == 1


def test_what_is_not_valid_is_rejected_alone() -> None:
    records, outcomes = create(controller(), [READ_ORDERS._replace(name=""), WRITE_ORDERS])
    assert len(records) == 1
    assert isinstance(outcomes[0], RequestError)
    assert outcomes[0].code == ErrorCode.INVALID_REQUEST
    assert outcomes[1] is None


def test_too_many_at_once_are_rejected_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_PER_REQUEST_MAX", 2)
    deciding = controller()
    records, outcomes = create(deciding, ALL)
    assert records == []
    assert {each.code for each in outcomes if each is not None} == {ErrorCode.POLICY_VIOLATION}
    assert len(outcomes) == len(ALL)
    assert len(create(deciding, [READ_ORDERS, WRITE_ORDERS, READ_ORDERS])[0]) == 2
    create(deciding, [GROUP])
    _, (first, second) = delete(deciding, AclFilter(), exact(GROUP))
    assert isinstance(first, RequestError)
    assert first.code == ErrorCode.POLICY_VIOLATION
    assert second == [GROUP]


@pytest.mark.parametrize(
    ("selection", "gone"),
    [
        (exact(READ_ORDERS), {READ_ORDERS}),
        (exact(READ_ORDERS._replace(host="10.0.0.1")), set()),
        (AclFilter(name="orders"), {READ_ORDERS, WRITE_ORDERS, GROUP}),
        (AclFilter(resource_type=ResourceType.TOPIC, name="orders"), {READ_ORDERS, WRITE_ORDERS}),
        (
            AclFilter(resource_type=ResourceType.TOPIC, pattern_type=PatternType.MATCH, name="orders"),
            {READ_ORDERS, WRITE_ORDERS, PREFIXED, EVERY_TOPIC},
        ),
        (AclFilter(pattern_type=PatternType.MATCH, name="ordinary"), {PREFIXED, EVERY_TOPIC}),
        (AclFilter(pattern_type=PatternType.PREFIXED), {PREFIXED}),
        (AclFilter(pattern_type=PatternType.PREFIXED, name="orders"), set()),
        (AclFilter(principal="User:bob"), set()),
        (AclFilter(), set(ALL)),
    ],
)
@pytest.mark.parametrize("is_paused", [False, True])
def test_filters_select_what_is_deleted(
    selection: AclFilter, gone: set[Acl], is_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACLS_PER_STEP", 1 if is_paused else 1000)
    deciding = controller()
    created, _ = create(deciding, ALL)
    ids = {each.id: acl_of(each) for each in created}
    records, (outcome,) = delete(deciding, selection)
    assert isinstance(outcome, list)
    assert set(outcome) == gone
    assert {ids[each.id] for each in records} == gone
    _, (left,) = delete(deciding, AclFilter())
    assert isinstance(left, list)
    assert set(left) == set(ALL) - gone


def test_an_acl_is_in_the_outcome_of_every_filter_that_selects_it_and_removed_once() -> None:
    deciding = controller()
    create(deciding, ALL)
    records, outcomes = delete(deciding, exact(READ_ORDERS), AclFilter(name="orders"), exact(READ_ORDERS))
    assert len(records) == 3
    assert outcomes[0] == outcomes[2] == [READ_ORDERS]
    assert isinstance(outcomes[1], list)
    assert set(outcomes[1]) == {READ_ORDERS, WRITE_ORDERS, GROUP}


def test_exact_filters_look_at_few_acls() -> None:
    """Otherwise a request that deletes thousands of ACLs would look at millions."""
    acls = [READ_ORDERS._replace(name=f"topic-{number}") for number in range(3_000)]
    deciding = controller()
    create(deciding, acls)
    decisions = list(deciding.delete_access_rules([exact(acl) for acl in acls]))
    assert None not in decisions
    assert len(decisions) == 3_000


def test_a_filter_with_unknown_numbers_is_rejected_alone() -> None:
    deciding = controller()
    create(deciding, [READ_ORDERS])
    _, (first, second) = delete(deciding, AclFilter(operation=0), exact(READ_ORDERS))
    assert isinstance(first, RequestError)
    assert first.code == ErrorCode.INVALID_REQUEST
    assert second == [READ_ORDERS]


def test_what_another_request_deletes_meanwhile_is_not_deleted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_PER_STEP", 2)
    deciding = controller()
    create(deciding, ALL)
    slow = iter(deciding.delete_access_rules([AclFilter()]))
    assert next(slow) is None
    assert delete(deciding, exact(READ_ORDERS))[1] == [[READ_ORDERS]]
    decision = next(each for each in slow if each is not None)
    assert len(decision[0]) == 4
    assert isinstance(decision[1], list)
    assert set(decision[1]) == set(ALL) - {READ_ORDERS}


def test_a_write_that_failed_counts_as_never_decided() -> None:
    committed = ClusterImage()
    deciding = controller(committed)
    create(deciding, [READ_ORDERS])
    deciding.revert(committed)
    assert len(create(deciding, [READ_ORDERS])[0]) == 1


def test_the_same_acl_under_two_ids_is_removed_under_both() -> None:
    image = ClusterImage()
    for number in (1, 2):
        image.apply(
            AccessControlEntryRecord(
                uuid.UUID(int=number), 2, "orders", 3, "User:alice", "*", Operation.READ, Permission.ALLOW
            )
        )
    records, (outcome,) = delete(controller(image), exact(READ_ORDERS))
    assert outcome == [READ_ORDERS]
    assert {each.id for each in records if isinstance(each, RemoveAccessControlEntryRecord)} == {
        uuid.UUID(int=1),
        uuid.UUID(int=2),
    }


def test_only_the_active_controller_decides() -> None:
    deciding = controller()
    deciding.deactivate()
    _, (refused,) = create(deciding, [READ_ORDERS])
    assert refused is not None
    assert refused.code == ErrorCode.NOT_CONTROLLER
    _, (outcome,) = delete(deciding, AclFilter())
    assert isinstance(outcome, RequestError)
    assert outcome.code == ErrorCode.NOT_CONTROLLER
