"""DescribeAcls (29), versions 1-3: the ACLs that a filter selects, from the metadata image of this node.

Every filter of Kafka is honoured, MATCH as well. A filter with unknown numbers gets INVALID_REQUEST, where Kafka closes
the connection. Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_acls_request import DescribeAclsRequest
from strandline.codec.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from strandline.errors import ErrorCode, RequestError, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.runtime.time_slicing import gradually
from strandline.security.acl.access_rule import Acl, AclFilter

API_KEY = 29
VERSIONS = (1, 3)
ACLS_PER_STEP = 500


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse | None:
    authorizer = context.node.authorizer
    if authorizer is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    selection = AclFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    try:
        selection.check()
    except RequestError as refused:
        return DescribeAclsResponse(error_code=refused.code, error_message=error_message(refused))
    acls = authorizer.acls()

    def selected() -> Iterator[list[Acl]]:
        for first in range(0, len(acls), ACLS_PER_STEP):
            yield [acl for acl in acls[first : first + ACLS_PER_STEP] if selection.matches(acl)]

    def on_selected(found: list[list[Acl]]) -> None:
        resources: dict[tuple[int, int, str], list[Acl]] = {}
        for part in found:
            for acl in part:
                resources.setdefault((acl.resource_type, acl.pattern_type, acl.name), []).append(acl)
        answer = DescribeAclsResponse()
        reply_in_parts(context, answer, (_resource(each, context.api_version) for each in resources.values()))

    gradually(context.node.runtime, selected(), on_selected)
    return None


def _resource(acls: list[Acl], version: int) -> bytes:
    described = DescribeAclsResource(
        resource_type=acls[0].resource_type,
        resource_name=acls[0].name,
        pattern_type=acls[0].pattern_type,
        acls=[
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in acls
        ],
    )
    return encode(described, version)
