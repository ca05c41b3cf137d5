"""New ACLs that are rejected, and what filters select."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, RequestError
from strandline.security.acl.access_rule import Acl, AclFilter, check_acl
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType

GOOD = Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW)
CLUSTER = GOOD._replace(resource_type=ResourceType.CLUSTER, name="kafka-cluster")


@pytest.mark.parametrize(
    "good", [GOOD, GOOD._replace(name="*"), GOOD._replace(principal="Group:"), GOOD._replace(host=""), CLUSTER]
)
def test_what_is_accepted(good: Acl) -> None:
    check_acl(good)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD._replace(resource_type=ResourceType.ANY), "Invalid resource type ANY"),
        (GOOD._replace(resource_type=0), "Invalid resource type UNKNOWN"),
        (GOOD._replace(resource_type=99), "Invalid resource type UNKNOWN"),
        (GOOD._replace(pattern_type=PatternType.MATCH), "Invalid pattern type MATCH"),
        (GOOD._replace(pattern_type=PatternType.ANY), "Invalid pattern type ANY"),
        (GOOD._replace(operation=Operation.ANY), "Invalid operation ANY"),
        (GOOD._replace(operation=16), "Invalid operation UNKNOWN"),
        (GOOD._replace(permission=Permission.ANY), "Invalid permission type ANY"),
        (GOOD._replace(permission=-1), "Invalid permission type UNKNOWN"),
        (GOOD._replace(name=""), "empty"),
        (GOOD._replace(principal="alice"), "User:alice"),
        (CLUSTER._replace(name="mine"), "kafka-cluster"),
    ],
)
def test_what_is_rejected(bad: Acl, words: str) -> None:
    with pytest.raises(RequestError, match=words) as refused:
        check_acl(bad)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


PREFIX = GOOD._replace(pattern_type=PatternType.PREFIXED, name="ord")
EVERY = GOOD._replace(name="*")
TOPICS_MATCHING = AclFilter(resource_type=ResourceType.TOPIC, pattern_type=PatternType.MATCH)


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (AclFilter(), [GOOD, PREFIX, EVERY, CLUSTER]),
        (AclFilter(resource_type=ResourceType.TOPIC), [GOOD, PREFIX, EVERY]),
        (AclFilter(name="orders"), [GOOD]),
        (AclFilter(name="ord"), [PREFIX]),
        (AclFilter(pattern_type=PatternType.LITERAL), [GOOD, EVERY, CLUSTER]),
        (AclFilter(pattern_type=PatternType.LITERAL, name="ord"), []),
        (AclFilter(pattern_type=PatternType.PREFIXED, name="orders"), []),
        (
            TOPICS_MATCHING._replace(name="orders"),
            [GOOD, PREFIX, EVERY],
        ),
        (TOPICS_MATCHING._replace(name="ordinary"), [PREFIX, EVERY]),
        (TOPICS_MATCHING._replace(name="or"), [EVERY]),
        (AclFilter(pattern_type=PatternType.MATCH), [GOOD, PREFIX, EVERY, CLUSTER]),
        (AclFilter(principal="User:bob"), []),
        (AclFilter(principal="User:alice", host="*"), [GOOD, PREFIX, EVERY, CLUSTER]),
        (AclFilter(host="10.0.0.1"), []),
        (AclFilter(operation=Operation.ALL), []),
        (AclFilter(operation=Operation.READ, permission=Permission.ALLOW), [GOOD, PREFIX, EVERY, CLUSTER]),
        (AclFilter(permission=Permission.DENY), []),
    ],
)
def test_filters(selection: AclFilter, found: list[Acl]) -> None:
    selection.check()
    assert [acl for acl in (GOOD, PREFIX, EVERY, CLUSTER) if selection.matches(acl)] == found


@pytest.mark.parametrize("wrong", [{"resource_type": 0}, {"pattern_type": 5}, {"operation": 0}, {"permission": 9}])
def test_filters_with_unknown_numbers_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="unknown") as refused:
        AclFilter(**wrong).check()  # type: ignore[arg-type]
    assert refused.value.code == ErrorCode.INVALID_REQUEST
