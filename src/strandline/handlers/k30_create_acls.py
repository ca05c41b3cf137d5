"""CreateAcls (30), versions 1-3: ACLs into the metadata log, all of them in one batch.

An ACL that exists succeeds without a record. One that is not valid gets INVALID_REQUEST, and the others are created.
Answered when they are committed and in effect on this node. Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.create_acls_request import CreateAclsRequest
from strandline.codec.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from strandline.errors import ErrorCode, RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import refusal
from strandline.security.acl.access_rule import Acl

API_KEY = 30
VERSIONS = (1, 3)


def handle(context: RequestContext, request: CreateAclsRequest) -> Any:
    if context.node.authorizer is None:
        return refusal(request, context.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
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

    def on_done(outcomes: list[RequestError | None] | None, error: BaseException | None) -> None:
        if outcomes is None:
            assert error is not None
            context.reply(refusal(request, context.api_version, error_code(error), error_message(error)))
        else:
            context.reply(CreateAclsResponse(results=[_result(each) for each in outcomes]))

    controller = context.node.controller
    controller.submit(lambda: controller.create_access_rules(acls), on_done)
    return None


def _result(refused: RequestError | None) -> AclCreationResult:
    if refused is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=refused.code, error_message=error_message(refused))
