"""AppendAudit (20011), version 0: a node has the leader of `__strandline_audit` append its lines.

It is Strandline's own, between nodes. Honoured: the numbers of the lines, by which a batch that comes twice is written
once. Answered when the lines are committed. The sender needs CLUSTER_ACTION. Without an authorizer it must come by the
listener between brokers, as the user that this node logs in as (CLUSTER_AUTHORIZATION_FAILED).
"""

from __future__ import annotations

from strandline.codec.messages.append_audit_request import AppendAuditRequest
from strandline.codec.messages.append_audit_response import AppendAuditResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 20_011
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AppendAuditRequest) -> AppendAuditResponse | None:
    if not request.lines or not _may_append(context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if request.lines else ErrorCode.INVALID_REQUEST
        return AppendAuditResponse(error_code=code)
    writer = f"{context.session.principal} {context.client_host}"
    context.node.audit_topic.append(request, writer, lambda code: context.reply(AppendAuditResponse(error_code=code)))
    return None


def _may_append(context: RequestContext) -> bool:
    node = context.node
    return node.authorizer is not None or node.is_peer(context.listener_name, context.session)
