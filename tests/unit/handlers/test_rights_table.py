"""The rights that every API needs, and its refusals: the table against requests of every kind and version."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.hostile.peer import request_class

from strandline.broker.network.routes import BROKER, CONTROLLER, Route, routes
from strandline.codec.message_codec import encode
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.handlers.access.authorization import authorize
from strandline.handlers.access.checks import AccessOutcome
from strandline.handlers.access.rights_table import IN_HANDLER, ON_CONTROLLER, RIGHTS
from strandline.handlers.support.local_context import LocalContext
from strandline.ids import ZERO_UUID
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal, Session

ALICE = Principal("User", "alice")
HOST = "192.0.2.7"
TOPIC_ID = uuid.UUID(int=7)
NO_RIGHT = {17, 18, 36, 71, 72}
"""SASL, ApiVersions and telemetry are for every client."""
HIDES = {16, 66, 20_002, 20_003, 20_004}
"""Lists: what the client may not see is left out, without an error."""
REFUSALS = {29, 30, 31, 53}
FETCH = 1
DESCRIBE_CLUSTER = 60
DESCRIBE_LOG_DIRS = 35
ROUTES = [(listener, key) for listener in (BROKER, CONTROLLER) for key in routes(listener)]


def test_every_api_has_a_row() -> None:
    served = {key for _, key in ROUTES}
    assert served <= RIGHTS.keys()
    assert ON_CONTROLLER.keys() <= served


def filled(message: Any, version: int) -> Any:
    """Return the message with one element in every array, that names the resources of this test."""
    for field in message.FIELDS:
        if not field.present(version):
            continue
        if field.struct is not None:
            made = filled(field.struct(), version)
            setattr(message, field.name, [made] if field.kafka_type.startswith("[]") else made)
        elif field.name == "topic_id":
            by_name = any(other.name == "name" and other.present(version) for other in message.FIELDS)
            message.topic_id = ZERO_UUID if by_name else TOPIC_ID
        elif field.name in NAMES:
            setattr(message, field.name, NAMES[field.name])
    return message


NAMES: dict[str, Any] = {
    "name": "orders",
    "topic": "orders",
    "topic_name": "orders",
    "topic_names": ["orders"],
    "subscribed_topic_names": ["orders"],
    "group_id": "billing",
    "groups": ["billing"],
    "group_ids": ["billing"],
    "groups_names": ["billing"],
    "coordinator_keys": ["billing"],
    "key": "billing",
    "transactional_id": "payments",
    "v3_and_below_transactional_id": "payments",
    "transactional_ids": ["payments"],
    "sink_id": "payments",
    "sink_ids": ["payments"],
    "resource_name": "orders",
    "resource_type": 2,
    "partitions": [0],
    "partition_indexes": [0],
}


class Stage:
    """A node with a topic and an authorizer, as far as `authorize` looks at it."""

    def __init__(self) -> None:
        image = ClusterImage()
        image.apply(TopicRecord(name="orders", topic_id=TOPIC_ID))
        self.authorizer = Authorizer(super_users=frozenset({Principal("User", "root")}), allows_everyone=False)
        self.node: Any = SimpleNamespace(authorizer=self.authorizer, image=image)

    def allow(self, *rules: tuple[ResourceType, str, Operation]) -> None:
        self.load((*rule, Permission.ALLOW, "*", PatternType.LITERAL) for rule in rules)

    def load(self, rules: Iterator[tuple[ResourceType, str, Operation, Permission, str, PatternType]]) -> None:
        self.authorizer.load(
            AccessControlEntryRecord(
                id=uuid.uuid4(),
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                principal=str(ALICE),
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for kind, name, operation, permission, host, pattern in rules
        )

    def ask(self, route: Route, request: Any, version: int, *, listener: str, principal: Principal = ALICE) -> Any:
        context = LocalContext(
            self.node, {}, version, lambda _: None, client_id=None, client_host=HOST, session=Session(principal)
        )
        context.is_at_controller = listener == CONTROLLER
        return authorize(context, route.api_key, route.name, request)


def codes(message: Any, version: int) -> set[int]:
    """Return all error codes in a message."""
    found: set[int] = set()
    for field in message.FIELDS:
        if not field.present(version):
            continue
        value = getattr(message, field.name)
        if field.struct is not None:
            for element in value if isinstance(value, list) else [value] if value is not None else []:
                found |= codes(element, version)
        elif field.name.endswith("error_code"):
            found.add(value)
    return found - {0}


def request_of(route: Route, version: int) -> Any:
    return filled(request_class(route)(), version)


EVERYTHING = [
    *((ResourceType.TOPIC, "orders", operation) for operation in (Operation.ALL,)),
    *((ResourceType.GROUP, "billing", operation) for operation in (Operation.ALL,)),
    *((ResourceType.TRANSACTIONAL_ID, "payments", operation) for operation in (Operation.ALL,)),
    *((ResourceType.CLUSTER, "kafka-cluster", operation) for operation in (Operation.ALL,)),
]


def is_checked(listener: str, key: int) -> bool:
    """Return whether the table refuses the API to a client without rights, rather than its handler or nothing."""
    if listener == BROKER and key == DESCRIBE_CLUSTER:
        return False
    return key not in NO_RIGHT and (key not in IN_HANDLER or (listener == CONTROLLER and key in ON_CONTROLLER))


CASES = [
    pytest.param(listener, key, version, id=f"{listener}-{route.name}-{version}")
    for listener in (BROKER, CONTROLLER)
    for key, route in routes(listener).items()
    for version in range(route.version_min, route.version_max + 1)
]
CHECKED = [case for case in CASES if is_checked(*case.values[:2])]


@pytest.mark.parametrize(("listener", "key", "version"), CHECKED)
def test_a_client_without_rights_is_refused(listener: str, key: int, version: int) -> None:
    route = routes(listener)[key]
    stage = Stage()
    outcome = stage.ask(route, request_of(route, version), version, listener=listener)
    assert isinstance(outcome, AccessOutcome)
    if key in HIDES:
        assert outcome.amend is not None or outcome.answer is not None
        return
    assert outcome.request is None
    if key == FETCH and version < 7:
        # No place for an error: the connection is closed.
        assert outcome.answer is None
        return
    encode(outcome.answer, version)
    # Older answers have no place for an error: as in Kafka, they are empty.
    has_place = key != DESCRIBE_LOG_DIRS or version >= 3
    assert bool(codes(outcome.answer, version) & REFUSALS) is has_place


@pytest.mark.parametrize(("listener", "key", "version"), CASES)
@pytest.mark.parametrize("who", ["allowed", "super user"])
def test_a_client_with_all_rights_is_not(listener: str, key: int, version: int, who: str) -> None:
    route = routes(listener)[key]
    stage = Stage()
    principal = ALICE
    if who == "allowed":
        stage.allow(*EVERYTHING)
    else:
        principal = Principal("User", "root")
    request = request_of(route, version)
    outcome = stage.ask(route, request, version, listener=listener, principal=principal)
    assert outcome is None or outcome.request is request
    assert encode(request, version) == encode(request_of(route, version), version)


@pytest.mark.parametrize(("listener", "key", "version"), [case for case in CHECKED if case.values[1] not in HIDES])
@pytest.mark.parametrize("how", ["prefix", "host"])
def test_a_denial_wins(listener: str, key: int, version: int, how: str) -> None:
    route = routes(listener)[key]
    stage = Stage()
    allowed = [(*rule, Permission.ALLOW, "*", PatternType.LITERAL) for rule in EVERYTHING]
    if how == "prefix":
        denied = [
            (kind, name if kind is ResourceType.CLUSTER else name[:3], operation, Permission.DENY, "*", pattern)
            for kind, name, operation in EVERYTHING
            for pattern in [PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType.PREFIXED]
        ]
    else:
        denied = [(*rule, Permission.DENY, HOST, PatternType.LITERAL) for rule in EVERYTHING]
    stage.load(iter([*allowed, *denied]))
    outcome = stage.ask(route, request_of(route, version), version, listener=listener)
    assert isinstance(outcome, AccessOutcome)
    assert outcome.request is None


@pytest.mark.parametrize(("listener", "key", "version"), CASES)
def test_report_mode_refuses_and_hides_nothing(listener: str, key: int, version: int) -> None:
    route = routes(listener)[key]
    stage = Stage()
    stage.authorizer.reports_only = True
    request = request_of(route, version)
    outcome = stage.ask(route, request, version, listener=listener)
    assert outcome is None or outcome.request is request
    assert encode(request, version) == encode(request_of(route, version), version)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "field"), [(10, "coordinator_keys"), (15, "groups"), (65, "transactional_ids")])
def test_a_request_of_many_names_takes_time_by_their_number(key: int, field: str) -> None:
    route = routes(BROKER)[key]
    kind = ResourceType.TRANSACTIONAL_ID if key == 65 else ResourceType.GROUP
    stage = Stage()
    stage.load(iter([(kind, "may-", Operation.ALL, Permission.ALLOW, "*", PatternType.PREFIXED)]))

    def seconds(count: int) -> float:
        names = [f"{'may' if index % 2 else 'not'}-{index}" for index in range(count)]
        request = request_class(route)()
        setattr(request, field, names)
        began = time.thread_time()
        outcome = stage.ask(route, request, route.version_max, listener=BROKER)
        took = time.thread_time() - began
        assert getattr(outcome.request, field) == names[1::2]
        return took

    # Ten times as long if time goes with the number, a hundred times if with its square. The best of some, for one may
    # have met the collector, which in a large process takes longer than all of them.
    few = seconds(2_000)
    assert min(seconds(20_000) for _ in range(5)) < 40 * max(few, 0.005)
