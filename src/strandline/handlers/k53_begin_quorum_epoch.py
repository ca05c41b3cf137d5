"""BeginQuorumEpoch (53), versions 0-1: a leader tells who leads, and where it is (version 1).

The epoch is on disk before the answer leaves. A request about another partition, of another cluster or of an old epoch
is refused with Kafka's codes.
"""

from __future__ import annotations

from strandline.codec.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from strandline.codec.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from strandline.errors import StrandlineError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of

API_KEY = 53
VERSIONS = (0, 1)
NODE_ENDPOINTS_FROM = 1


def handle(context: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    try:
        response = member_of(context).on_request(request)
    except StrandlineError as error:
        # Its disk failed: this member promises nothing any more.
        return BeginQuorumEpochResponse(error_code=error_code(error))
    assert isinstance(response, BeginQuorumEpochResponse)
    if context.api_version < NODE_ENDPOINTS_FROM:
        response.node_endpoints = []
    return response
