"""The events of a node: changes that clients asked for, logins, and denials.

A change is recorded by the node that the client is connected to, with what the client is answered. So a request that is
forwarded to the controller is one event, also if a part of it was denied there. Requests of nodes among themselves are
no events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.network.dispatch import RequestContext
from strandline.broker.network.routes import Route
from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode
from strandline.errors import ErrorCode, named
from strandline.handlers.audit.change_table import CHANGES, OFFSET_COMMIT, WRITE_TXN_MARKERS
from strandline.handlers.support.context import BrokerServices, EncodedResponse
from strandline.handlers.support.marker_writing import CLIENT_ID_BEGIN
from strandline.runtime.time_slicing import gradually
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType
from strandline.security.audit.audit_event import (
    CHANGE,
    DENIAL,
    DENIED,
    FAILURE,
    LOGIN,
    REPORTED,
    SUCCESS,
    UNKNOWN,
    AuditEvent,
    clipped,
    details_of,
)

if TYPE_CHECKING:
    from strandline.security.acl.authorizer import Authorizer
    from strandline.security.principal import Principal

Record = Callable[[AuditEvent], object]

CREATE_TOPICS: Final = 19
_DENIED: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))


class AuditedContext(RequestContext):
    """A request of a client whose answer is recorded."""

    __slots__ = ("_events", "_request")

    def __init__(self, events: ClientEvents, context: RequestContext, request: Message) -> None:
        super().__init__(
            context.node, context.route, context.exchange, context.api_version, context.client_id, context.client_host
        )
        self._events = events
        # A copy, because the check of rights takes out of the request what the client may not ask for.
        self._request = copy(request)

    def reply(self, response: Any) -> None:
        if self.amend is not None:
            response, self.amend = self.amend(response), None
        self._events.on_answered(self, self._request, response)
        super().reply(response)


class ClientEvents:
    """Makes events of what clients do at this node."""

    def __init__(self, services: BrokerServices, record: Record) -> None:
        self._services = services
        self._record = record
        self._changing: frozenset[str] = frozenset()
        """Names of the APIs whose denials are in the event of the change."""

    def watch(self, routes: dict[int, Route]) -> None:
        """Record the changes among the requests of a listener."""
        for route in routes.values():
            if route.api_key in CHANGES:
                route.watch = self._watched
                if route.api_key != OFFSET_COMMIT:
                    self._changing |= {route.name}

    # Changes

    def _watched(self, context: RequestContext, request: Any) -> RequestContext:
        api_key = context.route.api_key
        if api_key == OFFSET_COMMIT and (request.generation_id_or_member_epoch >= 0 or request.member_id):
            # A member commits what it has read.
            return context
        if self._is_of_node(context, api_key):
            return context
        return AuditedContext(self, context, request)

    def _is_of_node(self, context: RequestContext, api_key: int) -> bool:
        """Return whether a broker sends its markers, or has a topic created that a client has asked for elsewhere."""
        if api_key == WRITE_TXN_MARKERS:
            form = f"{CLIENT_ID_BEGIN}{{}}"
        elif api_key == CREATE_TOPICS and context.is_at_controller:
            form = "broker-{}-control"
        else:
            return False
        node = self._services
        if context.client_id not in {form.format(broker_id) for broker_id in node.image.brokers}:
            return False
        if node.authorizer is None:
            return True
        rights = node.authorizer.rights_of(context.session.principal, context.client_host)
        return rights.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def on_answered(self, context: RequestContext, request: Message, response: Any) -> None:
        """Record what became of a request."""
        if type(response) is EncodedResponse:
            response, _ = decode(response_class(type(request)), context.api_version, response.body)
        gradually(self._services.runtime, self._changes(context, request, response), lambda _: None)

    def _changes(self, context: RequestContext, request: Message, response: Any) -> Iterator[None]:
        api_key = context.route.api_key
        common = _change_by(context, context.route.name)
        for change in CHANGES[api_key](request, response):
            outcome = _outcome(change.code)
            if api_key == OFFSET_COMMIT and outcome == DENIED:
                # The denial itself is an event.
                continue
            self._record(
                common._replace(
                    outcome=outcome,
                    resource_type=change.resource_type,
                    resource=clipped(change.resource),
                    error=named(change.code).name if change.code else "",
                    details=details_of(change.details),
                )
            )
            yield

    def on_topic_created(self, context: Any, name: str) -> None:
        """Record a topic that was created because a client asked for its metadata."""
        self._record(
            _change_by(context, "Metadata")._replace(
                resource_type=ResourceType.TOPIC.name,
                resource=clipped(name),
                details=(("created", "on first use"),),
            )
        )

    # Logins

    def on_login(self, listener: str, host: str, mechanism: str, principal: str, reason: str) -> None:
        """Record a login; with a reason it failed."""
        self._record(
            AuditEvent(
                LOGIN,
                FAILURE if reason else SUCCESS,
                principal=clipped(principal),
                host=host,
                listener=listener,
                mechanism=clipped(mechanism),
                error=clipped(reason),
            )
        )

    # Denials

    def watch_denials(self, authorizer: Authorizer) -> None:
        """Record the denials of an authorizer; what is called for them already is called, too."""
        logged = authorizer.on_denied

        def on_denied(
            principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str, api: str
        ) -> None:
            logged(principal, host, operation, kind, name, api)
            if api in self._changing and not authorizer.reports_only:
                return
            self._record(
                AuditEvent(
                    DENIAL,
                    REPORTED if authorizer.reports_only else DENIED,
                    principal=clipped(str(principal)),
                    host=host,
                    api=api,
                    operation=operation.name,
                    resource_type=kind.name,
                    resource=clipped(name),
                )
            )

        authorizer.on_denied = on_denied


def _change_by(context: Any, api: str) -> AuditEvent:
    """Return a change by the client of a request, without what was changed."""
    return AuditEvent(
        CHANGE,
        SUCCESS,
        principal=clipped(str(context.session.principal)),
        host=context.client_host,
        listener=context.listener_name,
        client_id=clipped(context.client_id),
        api=api,
    )


def _outcome(code: int) -> str:
    if not code:
        return SUCCESS
    if code in _DENIED:
        return DENIED
    return UNKNOWN if code == ErrorCode.REQUEST_TIMED_OUT else FAILURE
