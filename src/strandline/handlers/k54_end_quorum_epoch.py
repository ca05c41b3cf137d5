"""EndQuorumEpoch (54), versions 0-1: a leader resigns, and says who should be next.

The first of the preferred candidates stands at once, the others a little later. A request about another partition, of
another cluster or of an old epoch is refused with Kafka's codes.
"""

from __future__ import annotations

from strandline.codec.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from strandline.codec.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from strandline.errors import StrandlineError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of

API_KEY = 54
VERSIONS = (0, 1)
NODE_ENDPOINTS_FROM = 1


def handle(context: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    try:
        response = member_of(context).on_request(request)
    except StrandlineError as error:
        # Its disk failed: this member promises nothing any more.
        return EndQuorumEpochResponse(error_code=error_code(error))
    assert isinstance(response, EndQuorumEpochResponse)
    if context.api_version < NODE_ENDPOINTS_FROM:
        response.node_endpoints = []
    return response
