"""Vote (52), versions 0-2: a candidate asks for this voter's vote, or whether it would get it (version 2).

What was decided is on disk before the answer leaves. A request about another partition, of another cluster or of an
old epoch is refused with Kafka's codes.
"""

from __future__ import annotations

from strandline.codec.messages.vote_request import VoteRequest
from strandline.codec.messages.vote_response import VoteResponse
from strandline.errors import StrandlineError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of

API_KEY = 52
VERSIONS = (0, 2)
NODE_ENDPOINTS_FROM = 1


def handle(context: RequestContext, request: VoteRequest) -> VoteResponse:
    try:
        response = member_of(context).on_request(request)
    except StrandlineError as error:
        # Its disk failed: this member promises nothing any more.
        return VoteResponse(error_code=error_code(error))
    assert isinstance(response, VoteResponse)
    if context.api_version < NODE_ENDPOINTS_FROM:
        response.node_endpoints = []
    return response
