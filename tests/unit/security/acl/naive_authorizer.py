"""An authorizer that looks at every ACL for every decision, written from the rules and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.security.acl.access_rule import Acl
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal

DESCRIBES = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def covers(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def is_of(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (str(principal), "User:*") and acl.host in (host, "*")


def concerns(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    if acl.permission == Permission.DENY:
        return False
    if operation == Operation.DESCRIBE:
        return acl.operation in DESCRIBES
    return operation == Operation.DESCRIBE_CONFIGS and acl.operation == Operation.ALTER_CONFIGS


class NaiveAuthorizer:
    def __init__(self, acls: Sequence[Acl], super_users: frozenset[Principal], allows_everyone: bool) -> None:
        self.acls = acls
        self.super_users = super_users
        self.allows_everyone = allows_everyone

    def allows(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        covering = [acl for acl in self.acls if covers(acl, resource_type, name)]
        if not covering:
            return self.allows_everyone
        matching = {acl.permission for acl in covering if is_of(acl, principal, host) and concerns(acl, operation)}
        return Permission.DENY not in matching and Permission.ALLOW in matching

    def allows_any(self, principal: Principal, host: str, operation: int, resource_type: ResourceType) -> bool:
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        own = [
            acl
            for acl in self.acls
            if acl.resource_type == resource_type
            and is_of(acl, principal, host)
            and acl.operation in (operation, Operation.ALL)
        ]
        literal = {acl.name for acl in own if acl.pattern_type == PatternType.LITERAL and acl.permission == 2}
        prefixed = {acl.name for acl in own if acl.pattern_type == PatternType.PREFIXED and acl.permission == 2}
        if "*" in literal:
            return False
        for acl in own:
            if acl.permission != Permission.ALLOW:
                continue
            is_literal = acl.pattern_type == PatternType.LITERAL
            if is_literal and acl.name == "*":
                return True
            is_denied = any(acl.name.startswith(prefix) for prefix in prefixed)
            if not is_denied and not (is_literal and acl.name in literal):
                return True
        return False
