"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to and subtract from single settings.

Honoured: topics, brokers, client metrics subscriptions, groups, and levels of loggers, which hold until the process
ends; validate-only; one outcome per resource. Answered when the records are flushed and in effect.
"""

from __future__ import annotations

from strandline.codec.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from strandline.codec.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from strandline.handlers.support.alterations import alter
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.config_changes import ConfigAlteration, ConfigOperation

API_KEY = 44
VERSIONS = (0, 1)


def alterations(request: IncrementalAlterConfigsRequest) -> list[ConfigAlteration]:
    return [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigOperation(each.name, each.value, each.config_operation) for each in resource.configs],
        )
        for resource in request.resources
    ]


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    alter(
        context,
        alterations(request),
        validate_only=request.validate_only,
        response=IncrementalAlterConfigsResponse(),
        part_class=AlterConfigsResourceResponse,
    )
