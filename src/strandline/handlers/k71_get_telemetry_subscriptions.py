"""GetTelemetrySubscriptions (71), version 0 (KIP-714).

Honoured: ids for clients that have none, CLIENT_METRICS subscriptions matched by id, software, address and port, the
shortest interval of those that fit, and the throttling of clients that ask again too soon.
"""

from __future__ import annotations

import uuid

from strandline.codec.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from strandline.codec.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from strandline.errors import RequestError
from strandline.handlers.support.context import RequestContext
from strandline.ids import ZERO_UUID
from strandline.observability.client_telemetry import CODECS_ACCEPTED, Client
from strandline.quorum.image.cluster_image import RESOURCE_CLIENT_METRICS

API_KEY = 71
VERSIONS = (0, 0)


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    node = context.node
    subscribe(context)
    clients = node.telemetry.clients
    instance_id = request.client_instance_id
    while instance_id == ZERO_UUID or (request.client_instance_id == ZERO_UUID and clients.knows(instance_id)):
        instance_id = uuid.UUID(int=node.runtime.random.getrandbits(128), version=4)
    try:
        instance = clients.get(instance_id, client_of(context), context.connection, node.runtime.now_ms())
    except RequestError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(CODECS_ACCEPTED),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=node.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def subscribe(context: RequestContext) -> None:
    """Let the telemetry know the subscriptions of the cluster as they are now."""
    image = context.node.image
    telemetry = context.node.telemetry
    if telemetry.image_version != image.version:
        telemetry.image_version = image.version
        telemetry.clients.subscribe(
            {name: settings for (kind, name), settings in image.configs.items() if kind == RESOURCE_CLIENT_METRICS}
        )


def client_of(context: RequestContext) -> Client:
    software, version = context.client_software or ("", "")
    return Client(
        client_id=context.client_id or "",
        client_software_name=software,
        client_software_version=version,
        client_source_address=context.client_host,
        client_source_port=str(context.client_port),
    )
