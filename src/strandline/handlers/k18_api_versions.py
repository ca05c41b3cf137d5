"""ApiVersions (18), versions 0-4: what this node speaks, told from the table that dispatches, of the listener
that is asked.

Honoured: every version; features that are supported (`quorum/controller/features`) and finalised in the metadata log.
Traps: the table advertises Produce from version 0 although 0-2 are refused, because librdkafka will not talk to a
broker that does not (KAFKA-18659). A version above ours is answered in the format of version 0, with
UNSUPPORTED_VERSION and the list, so that the client can ask again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.context import ApiRange, RequestContext
from strandline.quorum.controller.features import SUPPORTED_FEATURES

API_KEY = 18
VERSIONS = (0, 4)

LEVEL_0_FROM = 4
"""Clients of older versions take a feature that may be off (level 0) for a malformed answer (KAFKA-17011)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not VERSIONS[0] <= context.api_version <= VERSIONS[1]:
        # Which versions of this API there are is all that a client needs to ask again (KIP-511).
        itself = ApiVersion(api_key=API_KEY, min_version=VERSIONS[0], max_version=VERSIONS[1])
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[itself])
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= 3:
        context.remember_software(request.client_software_name, request.client_software_version)
    node = context.node
    return ApiVersionsResponse(
        api_keys=_api_keys(context.routes),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest > 0 or context.api_version >= LEVEL_0_FROM
        ],
        finalized_features_epoch=node.image.applied_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(node.image.features.items())
        ],
    )


def _api_keys(routes: Mapping[int, ApiRange]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=route.advertised_min, max_version=route.version_max)
        for key, route in sorted(routes.items())
        if route.is_advertised
    ]
