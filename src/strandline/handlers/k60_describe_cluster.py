"""DescribeCluster (60), versions 0-2: the brokers and where to reach them, or the controllers.

Honoured: the type of endpoint (1+; brokers are described on the listener of clients, controllers on that of
controllers), fenced brokers (2+), authorized operations, which access rules may restrict (`handlers/access`). As in
Kafka, clients get a broker that takes requests for the controller, which is this one; on a controller's
listener it is the active controller that is named.
"""

from __future__ import annotations

from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from strandline.errors import ErrorCode
from strandline.handlers.k03_metadata import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from strandline.handlers.support.broker_endpoints import endpoint_of, registered_endpoint_of
from strandline.handlers.support.context import BrokerServices, RequestContext

API_KEY = 60
VERSIONS = (0, 2)

BROKERS = 1
CONTROLLERS = 2
ENDPOINT_TYPES_FROM = 1
"""Who asks in an older version does not know the codes about them, either."""


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    node = context.node
    if request.endpoint_type != (CONTROLLERS if context.is_at_controller else BROKERS):
        refusal = _refusal(request.endpoint_type, is_at_controller=context.is_at_controller)
        if context.api_version < ENDPOINT_TYPES_FROM:
            refusal.error_code = ErrorCode.INVALID_REQUEST
        return refusal
    if context.is_at_controller:
        leader_id = node.metadata.leader_id
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=node.cluster_id,
            controller_id=-1 if leader_id is None else leader_id,
            brokers=_controllers(node, context.listener_name),
        )
    brokers = _brokers(node, context.listener_name, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.node_id if any(broker.broker_id == node.node_id for broker in brokers) else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _refusal(endpoint_type: int, *, is_at_controller: bool) -> DescribeClusterResponse:
    if endpoint_type in (BROKERS, CONTROLLERS):
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        here, wanted = ("CONTROLLER", "BROKER") if is_at_controller else ("BROKER", "CONTROLLER")
        message = f"The request was sent to an endpoint of type {here}, but we wanted an endpoint of type {wanted}"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message)


def _controllers(node: BrokerServices, listener_name: str) -> list[DescribeClusterBroker]:
    """Return the registered controllers that have this listener, in the order of their ids."""
    registered = [
        (record.controller_id, endpoint)
        for (kind, *_), record in node.image.kept.by_identity.items()
        if kind == "controller"
        for endpoint in record.end_points
        if endpoint.name == listener_name
    ]
    return [
        DescribeClusterBroker(
            broker_id=controller_id, host=endpoint.host, port=endpoint.port, rack=None, is_fenced=False
        )
        for controller_id, endpoint in sorted(registered, key=lambda each: each[0])
    ]


def _brokers(node: BrokerServices, listener_name: str, *, with_fenced: bool) -> list[DescribeClusterBroker]:
    described = []
    for broker in node.image.brokers.values():
        is_fenced = broker.registration.fenced
        find = registered_endpoint_of if with_fenced else endpoint_of
        endpoint = find(node, broker.id, listener_name)
        if endpoint is not None:
            host, port = endpoint
            described.append(
                DescribeClusterBroker(broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=is_fenced)
            )
    return described
