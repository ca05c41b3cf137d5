"""FindAnchors (20012), version 0: the leader of `__strandline_audit` says which anchors partitions have last.

It is Strandline's own, between nodes: a new leader goes on with the chain of hashes of its partition. Answered when the
lines that are committed have been looked at. The sender is checked as for AppendAudit.
"""

from __future__ import annotations

from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 20_012
VERSIONS = (0, 0)


def handle(context: RequestContext, request: FindAnchorsRequest) -> FindAnchorsResponse | None:
    node = context.node
    if node.authorizer is None and not node.is_peer(context.listener_name, context.session):
        return FindAnchorsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    node.audit_topic.find_anchors(request, context.reply)
    return None
