"""UpdateFeatures (57), versions 0-2: raise the level of a feature of the cluster.

Honoured: validate-only, upgrade types (before version 1: "allow downgrade"), all updates or none. The one feature
there is, `metadata.version`, can be raised up to ours and not be lowered: see `quorum/controller/features`. Answered
when the records are flushed in the metadata log. The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.codec.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.features import SAFE_DOWNGRADE, UPGRADE, FeatureUpdate

API_KEY = 57
VERSIONS = (0, 2)

RESULTS_UNTIL = 1
"""Later versions tell one outcome for all."""


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> None:
    updates = [_update(asked, context.api_version) for asked in request.feature_updates]

    def on_done(_: None, error: BaseException | None) -> None:
        response = UpdateFeaturesResponse(error_code=0 if error is None else error_code(error), error_message=None)
        if isinstance(error, RequestError):
            reason = f"The update failed for all features since the following feature had an error: {error}"
            response.error_message = error_message(RequestError(error.code, reason))
        elif error is None and context.api_version <= RESULTS_UNTIL:
            response.results = [
                # Kafka's word for "nothing is wrong".
                UpdatableFeatureResult(feature=asked.feature, error_message="NONE")
                for asked in request.feature_updates
            ]
        context.reply(response)

    controller = context.node.controller
    controller.submit(lambda: (controller.update_features(updates, validate_only=request.validate_only), None), on_done)


def _update(asked: FeatureUpdateKey, api_version: int) -> FeatureUpdate:
    upgrade_type = asked.upgrade_type
    if api_version == 0:
        upgrade_type = SAFE_DOWNGRADE if asked.allow_downgrade else UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)
