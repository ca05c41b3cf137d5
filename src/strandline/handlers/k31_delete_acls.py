"""DeleteAcls (31), versions 1-3: the ACLs that filters select are removed, and named in the answer.

Every filter has an outcome of its own. Answered when the removals are committed and in effect on this node. Without an
authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.message_codec import encode
from strandline.codec.messages.delete_acls_request import DeleteAclsRequest
from strandline.codec.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from strandline.errors import ErrorCode, RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import refusal
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.submission import Outcomes
from strandline.security.acl.access_rule import Acl, AclFilter

API_KEY = 31
VERSIONS = (1, 3)


def handle(context: RequestContext, request: DeleteAclsRequest) -> Any:
    version = context.api_version
    if context.node.authorizer is None:
        return refusal(request, version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.resource_name_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]

    def on_done(outcomes: Outcomes[list[Acl] | RequestError]) -> None:
        parts = (encode(_result(outcome, error), version) for outcome, error in outcomes)
        reply_in_parts(context, DeleteAclsResponse(), parts)

    controller = context.node.controller
    controller.submit_all(controller.delete_access_rules(filters), on_done)
    return None


def _result(outcome: list[Acl] | RequestError, write_error: BaseException | None) -> DeleteAclsFilterResult:
    error = write_error or (outcome if isinstance(outcome, RequestError) else None)
    if error is not None:
        return DeleteAclsFilterResult(error_code=error_code(error), error_message=error_message(error))
    assert isinstance(outcome, list)
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in outcome])


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
