"""The rights of a principal as a contract describes them: words to ACLs and back (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.acl.rules import AclOptions, parse_operation, pattern_of
from strandline.cli.common.failures import CommandFailed
from strandline.documents.fields import Fields
from strandline.security.acl.access_rule import Acl, name_of
from strandline.security.acl.kinds import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_SHORT: Final = {
    (ResourceType.TOPIC, Operation.READ): "read",
    (ResourceType.TOPIC, Operation.WRITE): "write",
    (ResourceType.GROUP, Operation.READ): "groups",
    (ResourceType.TRANSACTIONAL_ID, Operation.WRITE): "transactional_ids",
}


@dataclass(frozen=True)
class PrincipalContract:
    """The rights that a principal should have. `is_exact`: those, and no others."""

    principal: str
    acls: frozenset[Acl]
    is_exact: bool = True


@dataclass(frozen=True)
class AclChange:
    """The ACLs of a principal that come and go."""

    principal: str
    added: tuple[Acl, ...] = ()
    removed: tuple[Acl, ...] = ()


def parse_principal_contract(fields: Fields) -> PrincipalContract:
    """Return the rights of an entry. DocumentFailed says what is wrong with a field."""
    principal = _principal(fields)
    exact = fields.flag("exact")
    options = AclOptions(
        read=fields.texts("read"),
        write=fields.texts("write"),
        groups=fields.texts("groups"),
        transactional_ids=fields.texts("transactional_ids"),
    )
    try:
        acls = options.acls([principal], host=None, denies=False)
    except CommandFailed as failure:
        raise fields.failure("read", failure.message) from None
    for rule in fields.parts("rules", of="a rule"):
        acls.append(_rule(rule, principal))
    fields.done()
    return PrincipalContract(principal, frozenset(acls), exact is not False)


def _principal(fields: Fields) -> str:
    user, principal = fields.text("user"), fields.text("principal")
    if (user is None) == (principal is None):
        raise fields.failure("user", "rights need user: NAME, or principal: TYPE:NAME, and not both")
    if principal is None:
        return f"User:{user}"
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise fields.failure("principal", f"{principal!r} is no principal; write for example User:billing")
    return principal


def _rule(fields: Fields, principal: str) -> Acl:
    operation = fields.needed_text("operation", "describe")
    named = {name: fields.text(name) for name in _RESOURCES}
    of_cluster = fields.flag("cluster")
    pattern = fields.choice("pattern", ("literal", "prefixed"))
    host, permission = fields.text("host"), fields.choice("permission", ("allow", "deny"))
    fields.done()
    chosen = [(name, text) for name, text in named.items() if text is not None]
    if len(chosen) + bool(of_cluster) != 1:
        raise fields.failure("operation", f"a rule is about one of {', '.join(_RESOURCES)} or cluster: true")
    try:
        asked = parse_operation(operation)
        kind = ResourceType.CLUSTER if of_cluster else _RESOURCES[chosen[0][0]]
        name = CLUSTER_NAME if of_cluster else chosen[0][1]
        if pattern is None:
            pattern_type, name = pattern_of(kind, name, False)
        else:
            pattern_type = PatternType.PREFIXED if pattern == "prefixed" else PatternType.LITERAL
    except CommandFailed as failure:
        hint = f" ({failure.hint})" if failure.hint else ""
        raise fields.failure("operation", f"{failure.message}{hint}") from None
    allows = Permission.DENY if permission == "deny" else Permission.ALLOW
    return Acl(kind, pattern_type, name, principal, host or WILDCARD, asked, allows)


def compare_rights(wanted: PrincipalContract, current: Iterable[Acl]) -> AclChange:
    """Return what must come and go; `current` are all ACLs of the principal."""
    there = {Acl(*each) for each in current}
    added = sorted(wanted.acls - there)
    removed = sorted(there - wanted.acls) if wanted.is_exact else []
    return AclChange(wanted.principal, tuple(added), tuple(removed))


def export_rights(principal: str, acls: Sequence[Acl]) -> dict[str, Any]:
    """Return the entry of a principal that plans to nothing."""
    kind, _, name = principal.partition(":")
    entry: dict[str, Any] = {"user": name} if kind == "User" else {"principal": principal}
    rules = []
    for acl in sorted(acls):
        word = _short_word(acl)
        if word is not None:
            entry.setdefault(word[0], []).append(word[1])
        else:
            rules.append(_rule_entry(acl))
    if rules:
        entry["rules"] = rules
    return entry


def _short_word(acl: Acl) -> tuple[str, str] | None:
    """Return the field and the name that say the ACL shortly, if there are such."""
    if acl.host != WILDCARD or acl.permission != Permission.ALLOW:
        return None
    word = _SHORT.get((ResourceType(acl.resource_type), Operation(acl.operation)))
    if word is None:
        return None
    name = f"{acl.name}{WILDCARD}" if acl.pattern_type == PatternType.PREFIXED else acl.name
    # A literal name that ends in * would be read back as a prefix.
    return (word, name) if pattern_of(acl.resource_type, name, False) == (acl.pattern_type, acl.name) else None


def _rule_entry(acl: Acl) -> dict[str, Any]:
    operation = name_of(Operation, acl.operation).lower().replace("_", "-")
    entry: dict[str, Any] = {"operation": operation}
    if acl.resource_type == ResourceType.CLUSTER:
        entry["cluster"] = True
    else:
        word = next(name for name, kind in _RESOURCES.items() if kind == acl.resource_type)
        entry |= {word: acl.name, "pattern": "prefixed" if acl.pattern_type == PatternType.PREFIXED else "literal"}
    if acl.permission == Permission.DENY:
        entry["permission"] = "deny"
    if acl.host != WILDCARD:
        entry["host"] = acl.host
    return entry
