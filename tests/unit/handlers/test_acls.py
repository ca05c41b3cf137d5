"""DescribeAcls, CreateAcls and DeleteAcls over the wire format, on a node with and without an authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import NodeOfOne, SlowRuntime, ask

from strandline.codec.messages.create_acls_request import AclCreation, CreateAclsRequest
from strandline.codec.messages.create_acls_response import CreateAclsResponse
from strandline.codec.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from strandline.codec.messages.delete_acls_response import DeleteAclsResponse
from strandline.codec.messages.describe_acls_request import DescribeAclsRequest
from strandline.codec.messages.describe_acls_response import DescribeAclsResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k29_describe_acls, k30_create_acls, k31_delete_acls
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType

VERSIONS = (1, 2, 3)


class AuthorizedNode(NodeOfOne):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.authorizer = Authorizer(super_users=frozenset(), allows_everyone=False)

    def flush(self) -> None:
        super().flush()
        if self.authorizer is not None:
            self.authorizer.load(self.image.kept.of_kind("access"))


def creation(name: str = "orders", **more: Any) -> AclCreation:
    facts: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**facts | more)


def create(node: NodeOfOne, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    answer = ask(k30_create_acls, node, CreateAclsRequest(creations=list(creations)), version, CreateAclsResponse)
    return [(each.error_code, each.error_message) for each in answer.results]


def described(node: NodeOfOne, version: int = 3, **selection: Any) -> set[tuple[Any, ...]]:
    facts: dict[str, Any] = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    answer = ask(k29_describe_acls, node, DescribeAclsRequest(**facts | selection), version, DescribeAclsResponse)
    assert (answer.error_code, answer.error_message) == (0, "")
    assert len({(each.resource_type, each.resource_name, each.pattern_type) for each in answer.resources}) == len(
        answer.resources
    )
    return {
        (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host, acl.operation)
        for each in answer.resources
        for acl in each.acls
    }


def deletion(**selection: Any) -> DeleteAclsFilter:
    facts: dict[str, Any] = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    return DeleteAclsFilter(**facts | selection)


def delete(node: NodeOfOne, *filters: DeleteAclsFilter, version: int = 3) -> list[Any]:
    request = DeleteAclsRequest(filters=list(filters))
    found: list[Any] = ask(k31_delete_acls, node, request, version, DeleteAclsResponse).filter_results
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_acls_are_created_described_and_deleted(version: int) -> None:
    node = AuthorizedNode()
    prefixed = creation("ord", resource_pattern_type=PatternType.PREFIXED, principal="User:bob", host="10.0.0.1")
    assert create(node, creation(), prefixed, creation(), version=version) == [(0, "")] * 3
    first = (2, "orders", 3, "User:alice", "*", 3)
    second = (2, "ord", 4, "User:bob", "10.0.0.1", 3)
    assert described(node, version) == {first, second}
    assert described(node, version, principal_filter="User:bob") == {second}
    matching = {"pattern_type_filter": PatternType.MATCH, "resource_name_filter": "orders"}
    assert described(node, version, **matching) == {first, second}
    results = delete(node, deletion(principal_filter="User:bob"), deletion(host_filter="nowhere"), version=version)
    assert [(each.error_code, len(each.matching_acls)) for each in results] == [(0, 1), (0, 0)]
    (gone,) = results[0].matching_acls
    assert (gone.error_code, gone.resource_type, gone.resource_name, gone.pattern_type) == (0, 2, "ord", 4)
    assert (gone.principal, gone.host, gone.operation, gone.permission_type) == ("User:bob", "10.0.0.1", 3, 3)
    assert described(node, version) == {first}


def test_one_that_is_not_valid_does_not_stop_the_others() -> None:
    node = AuthorizedNode()
    results = create(node, creation(principal="alice"), creation(), creation(operation=0), creation(resource_type=99))
    assert [code for code, _ in results] == [42, 0, 42, 42]
    assert "User:alice" in (results[0][1] or "")
    assert len(described(node)) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_without_an_authorizer_security_is_disabled(version: int) -> None:
    node = NodeOfOne()
    disabled = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert create(node, creation(), creation("other"), version=version) == [disabled] * 2
    results = delete(node, deletion(), deletion(), version=version)
    assert [(each.error_code, each.error_message) for each in results] == [disabled] * 2
    answer = ask(k29_describe_acls, node, DescribeAclsRequest(), version, DescribeAclsResponse)
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert answer.error_message == "No Authorizer is configured on the broker"


def test_unknown_numbers_in_filters() -> None:
    node = AuthorizedNode()
    answer = ask(k29_describe_acls, node, DescribeAclsRequest(), 3, DescribeAclsResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    (result, empty) = delete(node, deletion(permission_type=77), deletion())
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert (empty.error_code, empty.matching_acls) == (0, [])


def test_a_disk_that_fails_is_the_error_of_every_entry() -> None:
    node = AuthorizedNode()
    create(node, creation())
    node.flush = lambda: node.fail(DiskFailed("no space"))  # type: ignore[method-assign]
    assert [code for code, _ in create(node, creation("other"), creation(""))] == [56, 56]
    assert [each.error_code for each in delete(node, deletion())] == [56]


def test_the_acls_of_a_request_are_written_together() -> None:
    node = AuthorizedNode()
    written: list[int] = []
    write = node.controller_write
    node.controller.connect(node.runtime, lambda records, done: (written.append(len(records)), write(records, done)))
    assert create(node, *(creation(f"topic-{number}") for number in range(50))) == [(0, "")] * 50
    assert written == [50]


def test_many_acls_are_answered_in_slices() -> None:
    node = AuthorizedNode(runtime=SlowRuntime())
    names = [f"topic-{number}" for number in range(3_000)]
    assert create(node, *map(creation, names)) == [(0, "")] * 3_000
    assert {each[1] for each in described(node)} == set(names)
    (result,) = delete(node, deletion(principal_filter="User:alice"))
    assert len(result.matching_acls) == 3_000
    assert described(node) == set()
