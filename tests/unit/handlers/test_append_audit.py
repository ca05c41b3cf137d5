"""Lines for the audit topic are taken from nodes, and from no client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.secured_peers import is_peer
from strandline.codec.messages.append_audit_request import AppendAuditRequest
from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode
from strandline.handlers.k20011_append_audit import handle
from strandline.handlers.k20012_find_anchors import handle as find_anchors
from strandline.security.principal import ANONYMOUS_SESSION, USER, Principal, Session

NODE, ALICE = Session(Principal(USER, "node")), Session(Principal(USER, "alice"))
SASL = "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9094\ninter.broker.listener.name=INSIDE\n"
PROTOCOLS = "listener.security.protocol.map=INSIDE:{},OUTSIDE:SASL_PLAINTEXT\nsasl.enabled.mechanisms=SCRAM-SHA-512\n"


def peer(listener: str, session: Session, *, protocol: str = "SASL_PLAINTEXT", login: str | None = "node") -> bool:
    config = BrokerConfig.load(SASL + PROTOCOLS.format(protocol))
    environment: Any = SimpleNamespace(
        config=lambda: config, broker_login=None if login is None else lambda: SimpleNamespace(name=login)
    )
    return is_peer(environment, listener, session)


def test_a_peer_logs_in_between_brokers_as_this_node_does() -> None:
    assert peer("INSIDE", NODE)
    assert not peer("INSIDE", ALICE)
    assert not peer("OUTSIDE", NODE)
    assert not peer("INSIDE", NODE, login=None), "a node that no other can join has no peers"
    assert peer("INSIDE", ANONYMOUS_SESSION, protocol="PLAINTEXT"), "where no listener knows names, it decides"
    assert not peer("OUTSIDE", ANONYMOUS_SESSION, protocol="PLAINTEXT")


@pytest.mark.parametrize(
    ("has_authorizer", "is_node", "is_taken"), [(False, False, False), (False, True, True), (True, False, True)]
)
def test_only_nodes_append(has_authorizer: bool, is_node: bool, is_taken: bool) -> None:
    """With an authorizer the table of rights has asked for CLUSTER_ACTION."""
    appended: list[tuple[Any, str]] = []
    node: Any = SimpleNamespace(
        authorizer=object() if has_authorizer else None,
        is_peer=lambda listener, session: is_node,
        audit_topic=SimpleNamespace(append=lambda request, writer, then: appended.append((request, writer))),
    )
    context: Any = SimpleNamespace(node=node, listener_name="INSIDE", session=ALICE, client_host="10.0.0.9")
    answer = handle(context, AppendAuditRequest(lines=[b"{}"]))
    assert bool(appended) == is_taken
    if is_taken:
        assert appended[0][1] == "User:alice 10.0.0.9", "the leader says where a line comes from"
    else:
        assert answer is not None
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    empty = handle(context, AppendAuditRequest())
    assert empty is not None
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("has_authorizer", "is_node", "is_answered"), [(False, False, False), (False, True, True), (True, False, True)]
)
def test_only_nodes_find_anchors(has_authorizer: bool, is_node: bool, is_answered: bool) -> None:
    asked: list[Any] = []
    node: Any = SimpleNamespace(
        authorizer=object() if has_authorizer else None,
        is_peer=lambda listener, session: is_node,
        audit_topic=SimpleNamespace(find_anchors=lambda request, then: asked.append(request)),
    )
    context: Any = SimpleNamespace(node=node, listener_name="INSIDE", session=ALICE, reply=None)
    answer = find_anchors(context, FindAnchorsRequest())
    assert bool(asked) == is_answered
    assert is_answered or (answer is not None and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
