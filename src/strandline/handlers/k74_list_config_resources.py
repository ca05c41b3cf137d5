"""ListConfigResources (74), versions 0-1: what can be described, of the kinds that the request names.

Version 0 asks for client metrics subscriptions alone. Topics and brokers are listed whether or not anything is set on
them; groups and subscriptions exist here only by what is set.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.list_config_resources_request import ListConfigResourcesRequest
from strandline.codec.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.image.cluster_image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)

API_KEY = 74
VERSIONS = (0, 1)

RESOURCES = (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS, RESOURCE_BROKER_LOGGER, RESOURCE_BROKER, RESOURCE_TOPIC)


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse | None:
    version = context.api_version
    asked = (request.resource_types or RESOURCES) if version >= 1 else (RESOURCE_CLIENT_METRICS,)
    if any(resource_type not in RESOURCES for resource_type in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def parts() -> Iterator[bytes]:
        for resource_type in RESOURCES:
            if resource_type in asked:
                for name in _names(context.node.image, resource_type):
                    yield encode(ConfigResource(resource_name=name, resource_type=resource_type), version)

    reply_in_parts(context, ListConfigResourcesResponse(), parts())
    return None


def _names(image: ClusterImage, resource_type: int) -> list[str]:
    if resource_type == RESOURCE_TOPIC:
        return list(image.topics)
    if resource_type in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker_id) for broker_id in image.brokers]
    return [name for kind, name in image.configs if kind == resource_type]
