"""DescribeCluster (60), versions 0-2: the brokers and where to reach them.

Honoured: the type of endpoint (1+; brokers are described here, controllers are not), fenced brokers (2+), authorized
operations, which are all of them while there are no access rules. As in Kafka the controller that is named is a broker
that takes requests for it: on one node, that node.
"""

from __future__ import annotations

from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from strandline.errors import ErrorCode
from strandline.handlers.broker_endpoints import endpoint_of, registered_endpoint_of
from strandline.handlers.context import Node, RequestContext
from strandline.handlers.k03_metadata import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED

API_KEY = 60
VERSIONS = (0, 2)

BROKERS = 1
CONTROLLERS = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _refusal(request.endpoint_type)
    node = context.node
    brokers = _brokers(node, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.node_id if any(broker.broker_id == node.node_id for broker in brokers) else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _refusal(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message)


def _brokers(node: Node, *, with_fenced: bool) -> list[DescribeClusterBroker]:
    described = []
    for broker in node.image.brokers.values():
        is_fenced = broker.registration.fenced
        endpoint = registered_endpoint_of(node, broker.id) if with_fenced else endpoint_of(node, broker.id)
        if endpoint is not None:
            host, port = endpoint
            described.append(
                DescribeClusterBroker(broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=is_fenced)
            )
    return described
