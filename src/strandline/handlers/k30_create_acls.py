"""CreateAcls (30), versions 1-3: ACLs into the metadata log.

An ACL that exists succeeds without a record. One that is not valid gets INVALID_REQUEST, and the others are created.
What is decided in one turn of the loop is written as one batch, which is some hundred ACLs; Kafka always writes one.
Answered when they are committed and in effect on this node. Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.message_codec import encode
from strandline.codec.messages.create_acls_request import CreateAclsRequest
from strandline.codec.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from strandline.errors import ErrorCode, RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import refusal
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.submission import Outcomes
from strandline.security.acl.access_rule import Acl

API_KEY = 30
VERSIONS = (1, 3)


def handle(context: RequestContext, request: CreateAclsRequest) -> Any:
    version = context.api_version
    if context.node.authorizer is None:
        return refusal(request, version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    acls = [
        Acl(
            each.resource_type,
            each.resource_pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        parts = (encode(_result(error or refused), version) for refused, error in outcomes)
        reply_in_parts(context, CreateAclsResponse(), parts)

    controller = context.node.controller
    controller.submit_all(controller.create_access_rules(acls), on_done)
    return None


def _result(error: BaseException | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=error_code(error), error_message=error_message(error))
