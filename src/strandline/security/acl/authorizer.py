"""The authorizer: who may do what, with the semantics of Kafka's StandardAuthorizer.

In this order: a super user is allowed everything. A DENY that matches denies. An ALLOW that matches allows. A resource
that no ACL covers is open if `allow.everyone.if.no.acl.found` is set. Everything else is denied.

An ACL matches if its pattern covers the resource, its principal is the client's or `User:*`, its host is the client's
address or `*`, and its operation is the one asked for or ALL. READ, WRITE, DELETE and ALTER allow DESCRIBE as well, and
ALTER_CONFIGS allows DESCRIBE_CONFIGS. A DENY denies its own operation alone.

ACLs are indexed by principal and host, so a client's rights are four indexes at most. What was decided about a
resource is kept as a field of operations: the next decision about it is one look-up. A change of the rules raises
`version`; a holder of `ClientRights` with another version asks for new ones.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.security.acl.access_rule import Acl, acl_of
from strandline.security.acl.kinds import (
    ALL_OPERATIONS,
    DENIES,
    EVERY_USER,
    GRANTS,
    SUPPORTED,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from strandline.security.acl.resource_index import ResourceIndex
from strandline.security.principal import Principal

CLIENT_RIGHTS_MAX: Final = 10_000
"""Pairs of principal and host whose rights are kept."""
DECISIONS_PER_CLIENT_MAX: Final = 10_000
"""Resources of one type whose decision is kept for one principal and host."""
DECISIONS_MAX: Final = 500_000
"""Resources whose decision is kept for all of them, because a client chooses the names that it asks for."""

_TYPES: Final = max(ResourceType) + 1
_SOME_NAME: Final = "hardcode"
"""The name that Kafka tries to find out whether a client has a right on any resource: a super user has."""


OnDenied = Callable[[Principal, str, Operation, ResourceType, str, str], object]


def _ignore(*denial: object) -> None:
    """Do nothing with a denial."""


class Decision(NamedTuple):
    """Whether an operation is allowed, and why."""

    allowed: bool
    rule: str
    """The rule that decided, in words."""
    acl: Acl | None = None
    """The ACL that decided, if one did."""


class Authorizer:
    """All rules of the cluster, and the rights that follow from them."""

    def __init__(self, *, super_users: frozenset[Principal], allows_everyone: bool) -> None:
        self.super_users = super_users
        self.allows_everyone = allows_everyone
        self.reports_only = False
        """Whether a denial is logged and the request is served (`authorizer.mode=report`)."""
        self.on_denied: OnDenied = _ignore
        """Called with the client, what it was denied, and the API that it called."""
        self.version = 0
        self._by_id: dict[UUID, Acl] = {}
        self._indexes: dict[tuple[str, str], ResourceIndex[Acl]] = {}
        """By principal and host of the ACLs."""
        self._covered: ResourceIndex[None] = ResourceIndex()
        """The resources that have an ACL, of whatever client."""
        self._rights: dict[tuple[Principal, str], ClientRights] = {}
        self._decisions = 0

    def acls(self) -> list[Acl]:
        """Return all rules."""
        return list(self._by_id.values())

    def load(self, records: Iterable[AccessControlEntryRecord]) -> None:
        """Decide by these rules and no others from now on."""
        self._by_id.clear()
        self._indexes.clear()
        self._covered = ResourceIndex()
        for record in records:
            self._add(record)
        self._on_changed()

    def update(self, records: Iterable[AccessControlEntryRecord | RemoveAccessControlEntryRecord]) -> None:
        """Add and remove rules, in this order."""
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self._add(record)
            else:
                self._remove(record.id)
        self._on_changed()

    def _add(self, record: AccessControlEntryRecord) -> None:
        self._remove(record.id)
        acl = self._by_id[record.id] = acl_of(record)
        key = acl.principal, canonical_host(acl.host)
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = ResourceIndex()
        index.add(acl.resource_type, acl.pattern_type, acl.name, acl)
        self._covered.add(acl.resource_type, acl.pattern_type, acl.name, None)

    def _remove(self, acl_id: UUID) -> None:
        acl = self._by_id.pop(acl_id, None)
        if acl is not None:
            index = self._indexes[acl.principal, canonical_host(acl.host)]
            index.remove(acl.resource_type, acl.pattern_type, acl.name, acl)
            self._covered.remove(acl.resource_type, acl.pattern_type, acl.name, None)

    def _on_changed(self) -> None:
        self.version += 1
        self._rights = {}
        self._decisions = 0

    def rights_of(self, principal: Principal, host: str) -> ClientRights:
        """Return what a client may do; valid as long as the authorizer has the same version."""
        rights = self._rights.get((principal, host))
        if rights is None:
            if len(self._rights) >= CLIENT_RIGHTS_MAX:
                self._rights = {}
            rights = self._rights[principal, host] = ClientRights(self, principal, host)
        return rights

    def indexes_of(self, principal: Principal, host: str) -> list[ResourceIndex[Acl]]:
        """Return the ACLs whose principal and host fit."""
        address = canonical_host(host)
        keys = ((who, where) for who in {str(principal), EVERY_USER} for where in {address, WILDCARD})
        return [index for index in map(self._indexes.get, keys) if index is not None]

    def is_covered(self, resource_type: int, name: str) -> bool:
        """Return whether some ACL, of whatever client, covers the resource."""
        return any(True for _ in self._covered.covering(resource_type, name))

    def count_decision(self) -> None:
        """Count a decision that is kept; drop all of them where they are too many."""
        self._decisions += 1
        if self._decisions > DECISIONS_MAX:
            self._decisions = 0
            for rights in self._rights.values():
                rights.forget()

    def explain(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return whether the operation is allowed, and the rule that decides."""
        if principal in self.super_users:
            return Decision(True, f"{principal} is a super user (super.users)")
        found = [acl for index in self.indexes_of(principal, host) for acl in index.covering(resource_type, name)]
        for acl in found:
            if acl.permission != Permission.ALLOW and DENIES.get(acl.operation, 0) >> operation & 1:
                return Decision(False, f"an ACL {acl}", acl)
        for acl in found:
            if acl.permission == Permission.ALLOW and GRANTS.get(acl.operation, 0) >> operation & 1:
                implied = "" if acl.operation in (operation, Operation.ALL) else f", which implies {operation.name}"
                return Decision(True, f"an ACL {acl}{implied}", acl)
        resource = Acl(resource_type, PatternType.LITERAL, name, "", "", 0, 0).resource_words()
        if self.is_covered(resource_type, name):
            where = "" if host == WILDCARD else f" from {host}"
            return Decision(False, f"{resource} has ACLs, but none that allows {principal} {operation.name}{where}")
        if self.allows_everyone:
            return Decision(True, f"no ACL covers {resource}, and allow.everyone.if.no.acl.found is true")
        return Decision(False, f"no ACL covers {resource}")


class ClientRights:
    """What one principal may do from one host."""

    __slots__ = ("_any", "_authorizer", "_indexes", "_masks", "is_super", "version")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.version = authorizer.version
        self.is_super = principal in authorizer.super_users
        self._authorizer = authorizer
        self._indexes = [] if self.is_super else authorizer.indexes_of(principal, host)
        self._masks: list[dict[str, int]] = [{} for _ in range(_TYPES)]
        """The operations that are allowed, by resource type and name."""
        self._any: dict[tuple[int, int], bool] = {}

    def allows(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether the client may do this with the resource."""
        mask = self._masks[resource_type].get(name)
        if mask is None:
            mask = self._decide(resource_type, name)
        return mask >> operation & 1 == 1

    def operations(self, resource_type: int, name: str) -> int:
        """Return the bit field of the operations on the resource that the client may do."""
        mask = self._masks[resource_type].get(name)
        if mask is None:
            mask = self._decide(resource_type, name)
        return mask & SUPPORTED[resource_type]

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the client may do this with some resource of the type, which need not exist.

        As in Kafka, an operation that another one implies counts here only if it is named.
        """
        allowed = self._any.get((operation, resource_type))
        if allowed is None:
            allowed = self.allows(operation, resource_type, _SOME_NAME) or self._decide_any(operation, resource_type)
            self._any[operation, resource_type] = allowed
        return allowed

    def forget(self) -> None:
        """Drop what was decided; the rules decide again."""
        self._masks = [{} for _ in range(_TYPES)]

    def _decide(self, resource_type: int, name: str) -> int:
        if self.is_super:
            return ALL_OPERATIONS
        allowed = denied = 0
        is_covered = False
        for index in self._indexes:
            for acl in index.covering(resource_type, name):
                is_covered = True
                if acl.permission == Permission.ALLOW:
                    allowed |= GRANTS.get(acl.operation, 0)
                else:
                    denied |= DENIES.get(acl.operation, 0)
        mask = allowed & ~denied
        authorizer = self._authorizer
        if authorizer.allows_everyone and not is_covered and not authorizer.is_covered(resource_type, name):
            mask = ALL_OPERATIONS
        authorizer.count_decision()
        kept = self._masks[resource_type]
        if len(kept) >= DECISIONS_PER_CLIENT_MAX:
            kept.clear()
        kept[name] = mask
        return mask

    def _decide_any(self, operation: int, resource_type: int) -> bool:
        named = (operation, Operation.ALL)

        def has(found: Iterator[Acl], permission: Permission) -> bool:
            return any(acl.permission == permission and acl.operation in named for acl in found)

        if any(has(index.of_literal(resource_type, WILDCARD), Permission.DENY) for index in self._indexes):
            return False
        for index in self._indexes:
            for acl in index.of_type(resource_type):
                if acl.permission != Permission.ALLOW or acl.operation not in named:
                    continue
                if acl.pattern_type == PatternType.LITERAL and acl.name == WILDCARD:
                    return True
                is_denied = any(
                    has(each.of_prefixes(resource_type, acl.name), Permission.DENY)
                    or (
                        acl.pattern_type == PatternType.LITERAL
                        and has(each.of_literal(resource_type, acl.name), Permission.DENY)
                    )
                    for each in self._indexes
                )
                if not is_denied:
                    return True
        return False


def canonical_host(text: str) -> str:
    """Return an address in one form: Java writes IPv6 in full, and IPv4 that arrives as IPv6 as IPv4."""
    if ":" not in text:
        return text
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return text
    return str(address.ipv4_mapped or address)
