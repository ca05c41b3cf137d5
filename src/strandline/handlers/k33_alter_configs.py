"""AlterConfigs (33), versions 0-2: replaces all that is set on a resource by what the request names.

Honoured: topics, brokers, client metrics subscriptions, groups; validate-only; one outcome per resource. Loggers can
only be changed incrementally, as in Kafka. Answered when the records are flushed and in effect.
"""

from __future__ import annotations

from strandline.codec.messages.alter_configs_request import AlterConfigsRequest
from strandline.codec.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from strandline.handlers.support.alterations import alter
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.config_changes import ConfigAlteration, ConfigOperation

API_KEY = 33
VERSIONS = (0, 2)


def alterations(request: AlterConfigsRequest) -> list[ConfigAlteration]:
    return [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigOperation(config.name, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]


def handle(context: RequestContext, request: AlterConfigsRequest) -> None:
    alter(
        context,
        alterations(request),
        validate_only=request.validate_only,
        response=AlterConfigsResponse(),
        part_class=AlterConfigsResourceResponse,
    )
