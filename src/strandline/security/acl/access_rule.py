"""One ACL, the checks of a new one, and the filters that DescribeAcls and DeleteAcls select by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.errors import ErrorCode, RequestError
from strandline.security.acl.kinds import CLUSTER_NAME, EVERY_USER, WILDCARD, Operation, PatternType, Permission
from strandline.security.acl.kinds import ResourceType as Resource

if TYPE_CHECKING:
    from strandline.codec.messages.describe_acls_response import DescribeAclsResponse

_OPERATIONS: Final = frozenset(operation for operation in Operation if operation >= Operation.ALL)
_RESOURCES: Final = frozenset(resource for resource in Resource if resource >= Resource.TOPIC)
_PATTERNS: Final = frozenset((PatternType.LITERAL, PatternType.PREFIXED))
_PERMISSIONS: Final = frozenset((Permission.DENY, Permission.ALLOW))
_FILTERED: Final = (
    ("resource type", "resource_type", _RESOURCES | {Resource.ANY}),
    ("pattern type", "pattern_type", _PATTERNS | {PatternType.ANY, PatternType.MATCH}),
    ("operation", "operation", _OPERATIONS | {Operation.ANY}),
    ("permission", "permission", _PERMISSIONS | {Permission.ANY}),
)


class Acl(NamedTuple):
    """A rule. The numbers are those of `kinds`; a record of a newer Kafka may hold others, which match nothing."""

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        verb = "allows" if self.permission == Permission.ALLOW else "denies"
        who = "every client" if self.principal == EVERY_USER else self.principal
        where = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{verb} {who} {name_of(Operation, self.operation)} on {self.resource_words()}{where}"

    def resource_words(self) -> str:
        """Return the resources that the ACL covers, in words."""
        kind = name_of(Resource, self.resource_type).lower().replace("_", " ")
        if self.resource_type == Resource.CLUSTER:
            return "the cluster"
        if self.pattern_type == PatternType.PREFIXED:
            return f"every {kind} that begins with {self.name!r}"
        return f"every {kind}" if self.name == WILDCARD else f"{kind} {self.name!r}"


def acls_of(described: DescribeAclsResponse) -> list[Acl]:
    """Return the ACLs in an answer to DescribeAcls, in its order."""
    return [
        Acl(
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in described.resources
        for acl in resource.acls
    ]


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """Return the ACL of a record of the metadata log."""
    return Acl(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def record_of(acl: Acl, acl_id: UUID) -> AccessControlEntryRecord:
    """Return the record of the metadata log that creates an ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def check_acl(acl: Acl) -> None:
    """Raise RequestError (INVALID_REQUEST) for an ACL that the controller does not create."""
    if acl.resource_type not in _RESOURCES:
        raise _invalid(f"Invalid resource type {name_of(Resource, acl.resource_type)}")
    if acl.pattern_type not in _PATTERNS:
        raise _invalid(f"Invalid pattern type {name_of(PatternType, acl.pattern_type)}")
    if acl.operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {name_of(Operation, acl.operation)}")
    if acl.permission not in _PERMISSIONS:
        raise _invalid(f"Invalid permission type {name_of(Permission, acl.permission)}")
    if not acl.name:
        raise _invalid("The name of the resource is empty")
    if ":" not in acl.principal:
        raise _invalid(f"Principal {acl.principal!r} has no type; expected for example User:alice")
    if acl.resource_type == Resource.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name of the CLUSTER resource is {CLUSTER_NAME}")


class AclFilter(NamedTuple):
    """A selection of ACLs. None and ANY select everything."""

    resource_type: int = Resource.ANY
    pattern_type: int = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def check(self) -> None:
        """Raise RequestError (INVALID_REQUEST) for a number that no filter may have."""
        for words, attribute, allowed in _FILTERED:
            if getattr(self, attribute) not in allowed:
                raise _invalid(f"The filter has an unknown {words}: {getattr(self, attribute)}")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (Resource.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type == PatternType.MATCH:
            # MATCH asks for every ACL that decides about the name: its own, those of prefixes and those of all names.
            if self.name is None:
                return True
            if acl.pattern_type == PatternType.PREFIXED:
                return self.name.startswith(acl.name)
            return acl.name in (self.name, WILDCARD)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)


def name_of(kind: type[Operation] | type[Resource] | type[PatternType] | type[Permission], number: int) -> str:
    """Return Kafka's name of a number, UNKNOWN for one that Kafka does not have."""
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
