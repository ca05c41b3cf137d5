"""Refuses a plan that takes away rights of the principal that applies it.

An applier that locks itself out cannot finish, and cannot take back what it did. Rights are computed with the
authorizer of the nodes, from the ACLs before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from strandline.cli.acl.access import read_acls
from strandline.cli.acl.deciding import AuthorizerConfig, authorizer_of, read_config
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.contract.acl_contract import AclChange
from strandline.cli.contract.kinds import Access, ContractStep
from strandline.security.acl.access_rule import Acl, AclFilter
from strandline.security.acl.kinds import SUPPORTED, WILDCARD, Operation, PatternType, Permission, ResourceType
from strandline.security.principal import parse_principal

LOSSES_SHOWN = 3
Right = tuple[Operation, ResourceType, str, str]
"""An operation on a resource, by its type and name, from a host."""


def check_own_rights(access: Access, steps: Sequence[ContractStep], principal: str | None) -> None:
    """Raise CommandFailed if the steps take rights from the applier."""
    changes = [step.change for step in steps if isinstance(step.change, AclChange)]
    if not changes:
        return
    config = read_config(access.cluster)
    applier = principal or applier_of(access.cluster)
    if applier is None:
        if any(change.removed or _denials(change) for change in changes):
            raise UsageFailed(
                "this plan takes rights away, and it is not known from whom it is applied",
                hint="name the principal that this client is with --principal, as User:CN=operator",
            )
        return
    current = read_acls(access.cluster, AclFilter())
    lost = list(lost_rights(applier, current, changes, config, _topic_names(access)))
    if lost:
        words = ", ".join(_words(right) for right in lost[:LOSSES_SHOWN])
        more = f" and {len(lost) - LOSSES_SHOWN} more" if len(lost) > LOSSES_SHOWN else ""
        raise CommandFailed(
            f"refused: this would take rights from {applier}, who applies it: {words}{more}",
            hint="give them to it in the contract, or apply as another administrator",
        )


def applier_of(cluster: Cluster) -> str | None:
    """Return the principal of this client; None if a certificate decides that."""
    security = cluster.security
    if security.user:
        return f"User:{security.user}"
    return "User:ANONYMOUS" if security.is_plain else None


def _denials(change: AclChange) -> bool:
    return any(acl.permission == Permission.DENY for acl in change.added)


def _topic_names(access: Access) -> list[str]:
    with access.cluster.errors("cannot list topics"):
        return list(access.admin.list_topics(timeout=access.cluster.timeout_s).topics)


def lost_rights(
    applier: str,
    current: Iterable[Acl],
    changes: Sequence[AclChange],
    config: AuthorizerConfig,
    topics: Iterable[str],
) -> Iterator[Right]:
    """Yield each right that the applier has before the changes and not after them (pure)."""
    before = {Acl(*acl) for acl in current}
    removed = {Acl(*acl) for change in changes for acl in change.removed}
    added = {Acl(*acl) for change in changes for acl in change.added}
    rules_before = authorizer_of(before, config)
    rules_after = authorizer_of((before - removed) | added, config)
    principal = parse_principal(applier)
    for right in _probes(removed | added, list(topics)):
        operation, kind, name, host = right
        had = rules_before.explain(principal, host, operation, kind, name).allowed
        if had and not rules_after.explain(principal, host, operation, kind, name).allowed:
            yield right


def _probes(acls: Iterable[Acl], topics: list[str]) -> Iterator[Right]:
    """Yield what the ACLs can decide about: each operation on the resources that they name, or that exist."""
    seen: set[Right] = set()
    for acl in sorted(acls):
        names = {acl.name}
        if acl.pattern_type == PatternType.PREFIXED:
            names |= {f"{acl.name}0"}
        if acl.resource_type == ResourceType.TOPIC:
            is_prefix = acl.pattern_type == PatternType.PREFIXED
            names |= {name for name in topics if acl.name == WILDCARD or (is_prefix and name.startswith(acl.name))}
        kind = ResourceType(acl.resource_type)
        operations = [each for each in Operation if each > Operation.ALL and SUPPORTED[kind] >> each & 1]
        for name in sorted(names):
            for operation in operations:
                if acl.operation in (Operation.ALL, operation):
                    right = (operation, kind, name, acl.host)
                    if right not in seen:
                        seen.add(right)
                        yield right


def _words(right: Right) -> str:
    operation, kind, name, _ = right
    where = "the cluster" if kind == ResourceType.CLUSTER else f"{kind.name.lower().replace('_', ' ')} {name}"
    return f"{operation.name} on {where}"
