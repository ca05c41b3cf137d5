"""ACLs of a cluster, read and changed over the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import converse, error_name, not_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.codec.message import Message
from strandline.codec.messages.create_acls_request import AclCreation, CreateAclsRequest
from strandline.codec.messages.create_acls_response import CreateAclsResponse
from strandline.codec.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from strandline.codec.messages.delete_acls_response import DeleteAclsResponse
from strandline.codec.messages.describe_acls_request import DescribeAclsRequest
from strandline.codec.messages.describe_acls_response import DescribeAclsResponse
from strandline.errors import ErrorCode
from strandline.security.acl.access_rule import Acl, AclFilter, acls_of

ResponseT = TypeVar("ResponseT", bound=Message)


def read_acls(cluster: Cluster, selection: AclFilter) -> list[Acl]:
    """Return the ACLs that the filter selects, in the order of their principals and resources."""
    request = DescribeAclsRequest(
        resource_type_filter=selection.resource_type,
        resource_name_filter=selection.name,
        pattern_type_filter=selection.pattern_type,
        principal_filter=selection.principal,
        host_filter=selection.host,
        operation=selection.operation,
        permission_type=selection.permission,
    )
    doing = "cannot read ACLs"
    answer = _ask(cluster, request, DescribeAclsResponse, doing)
    _check(answer.error_code, answer.error_message, doing)
    return sorted(acls_of(answer), key=lambda acl: (acl.principal, acl.resource_type, acl.name, acl))


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs; CommandFailed says which one the cluster rejects."""
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    answer = _ask(cluster, CreateAclsRequest(creations=creations), CreateAclsResponse, "cannot grant")
    for acl, result in zip(acls, answer.results, strict=True):
        _check(result.error_code, result.error_message, f"cannot create the ACL that {acl}")


def delete_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[Acl]:
    """Delete exactly these ACLs; return those that were there."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    answer = _ask(cluster, DeleteAclsRequest(filters=filters), DeleteAclsResponse, "cannot revoke")
    for acl, result in zip(acls, answer.filter_results, strict=True):
        _check(result.error_code, result.error_message, f"cannot delete the ACL that {acl}")
    return [acl for acl, result in zip(acls, answer.filter_results, strict=True) if result.matching_acls]


def _ask(cluster: Cluster, request: Message, response_class: type[ResponseT], doing: str) -> ResponseT:
    conversation = converse(cluster)
    if conversation is None:
        raise not_spoken(doing)
    with conversation:
        answer = conversation.ask(request, response_class)
    if answer is None:
        raise CommandFailed(f"{doing}: this cluster does not offer ACLs")
    return answer


def _check(code: int, message: str | None, doing: str) -> None:
    if code == ErrorCode.SECURITY_DISABLED:
        raise CommandFailed(
            f"{doing}: the cluster has no authorizer, so every client may do everything",
            hint="set authorizer.class.name and super.users on every node: see docs/security.md",
        )
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise CommandFailed(
            f"{doing}: this client may not",
            hint="reading ACLs needs DESCRIBE on the cluster, changing them ALTER; ask a super user",
        )
    if code:
        raise CommandFailed(f"{doing}: {error_name(code)}{f' ({message})' if message else ''}")
