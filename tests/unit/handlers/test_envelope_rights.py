"""A request in an Envelope needs the rights of the client that it comes from, not only those of the broker."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.handlers.test_rights_table import ALICE, HOST, Stage, codes, filled

from strandline.broker.network.routes import CONTROLLER, Route, routes
from strandline.codec.answers import response_class
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.errors import ErrorCode
from strandline.handlers import k58_envelope
from strandline.handlers.support.local_context import LocalContext
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal, Session, encode_session

BROKER = Principal("User", "root")
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
BY_OWNERS = range(38, 42)
"""Delegation tokens: their owners may change them, which needs no ACL."""
FORWARDED = [route for key, route in routes(CONTROLLER).items() if route.is_forwarded and key not in BY_OWNERS]


def send(stage: Stage, route: Route, request: Any, principal: Principal, host: str = HOST) -> Any:
    """Return the client's response to its request in an Envelope of a broker that may do everything."""
    version = route.version_max
    flexible = version >= route.flexible_from
    header = k58_envelope.HEADER.pack(route.api_key, version, 7, -1) + (b"\0" if flexible else b"")
    envelope = EnvelopeRequest(
        request_data=header + encode(request, version),
        request_principal=encode_session(Session(principal)),
        client_host_address=socket.inet_aton(host),
    )
    stage.node.metadata = SimpleNamespace(epoch=1, is_leader=True)
    replies: list[Any] = []
    context = LocalContext(
        stage.node, routes(CONTROLLER), 0, replies.append, client_id=None, client_host=HOST, session=Session(BROKER)
    )
    done = k58_envelope.handle(context, envelope)
    answer = done if done is not None else replies[0]
    assert not answer.error_code, ErrorCode(answer.error_code).name
    return decode_exact(response_class(type(request)), version, answer.response_data, 5 if flexible else 4)


@pytest.mark.parametrize("route", FORWARDED, ids=lambda route: route.name)
def test_a_client_without_rights_is_refused_in_every_request(route: Route) -> None:
    request = filled(route.load().request_class(), route.version_max)
    answer = send(Stage(), route, request, ALICE)
    assert codes(answer, route.version_max) & REFUSALS


def test_the_address_is_that_of_the_client() -> None:
    stage, route = Stage(), routes(CONTROLLER)[19]
    everything = ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL
    denied = "10.0.0.9"
    stage.load(
        iter(
            [
                (*everything, Permission.ALLOW, "*", PatternType.LITERAL),
                (*everything, Permission.DENY, denied, PatternType.LITERAL),
            ]
        )
    )
    request = filled(route.load().request_class(), route.version_max)
    assert codes(send(stage, route, request, ALICE, denied), route.version_max) & REFUSALS
