"""Rights of principals. A principal that a contract names has the rights that the contract gives it, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.acl.access import create_acls, delete_acls, read_acls
from strandline.cli.acl.rules import words_of
from strandline.cli.common.failures import CommandFailed
from strandline.cli.contract.acl_contract import (
    AclChange,
    PrincipalContract,
    compare_rights,
    export_rights,
    parse_principal_contract,
)
from strandline.cli.contract.kinds import Access, Action, ContractDefaults, ContractItem, ContractStep, Detail, Turn
from strandline.documents.fields import Fields
from strandline.security.acl.access_rule import Acl, AclFilter, name_of
from strandline.security.acl.kinds import WILDCARD, Operation, Permission


@dataclass(frozen=True)
class AclKind:
    field: str = "acls"

    def parse(self, fields: Fields, defaults: ContractDefaults) -> ContractItem:
        rights = parse_principal_contract(fields)
        return ContractItem(rights.principal, rights, fields.path)

    def steps(self, access: Access, items: Sequence[ContractItem]) -> list[ContractStep]:
        if not items:
            return []
        found = []
        current = _by_principal(access)
        for item in items:
            rights: PrincipalContract = item.value
            change = compare_rights(rights, current.get(rights.principal, ()))
            found += _steps(access, change)
        return found

    def export(self, access: Access, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        if names:
            return {}
        try:
            current = _by_principal(access)
        except CommandFailed as failure:
            access.notes.append(f"rights are not exported: {failure.message}")
            return {}
        return {"acls": [export_rights(principal, acls) for principal, acls in sorted(current.items())]}

    def unmanaged(self, access: Access, items: Sequence[ContractItem]) -> list[str]:
        named = {item.value.principal for item in items}
        try:
            return [f"rights of {principal}" for principal in sorted(_by_principal(access)) if principal not in named]
        except CommandFailed:
            return []


def _by_principal(access: Access) -> dict[str, list[Acl]]:
    found: dict[str, list[Acl]] = {}
    for acl in read_acls(access.cluster, AclFilter()):
        found.setdefault(acl.principal, []).append(acl)
    return found


def _steps(access: Access, change: AclChange) -> list[ContractStep]:
    """Return up to two steps: what is given is given first, and what goes is taken at the very end."""
    found = []
    denials = [acl for acl in change.added if acl.permission == Permission.DENY]
    if change.added:
        found.append(
            ContractStep(
                "acls",
                Action.CREATE,
                f"rights of {change.principal}",
                Turn.GRANT,
                lambda: create_acls(access.cluster, change.added),
                tuple(Detail(words_of(acl)) for acl in change.added),
                tuple(f"the right to {_right_words(acl)}" for acl in denials),
                change=AclChange(change.principal, added=change.added),
            )
        )
    if change.removed:
        found.append(
            ContractStep(
                "acls",
                Action.DELETE,
                f"rights of {change.principal}",
                Turn.REVOKE,
                lambda: _delete(access, change),
                tuple(Detail(words_of(acl)) for acl in change.removed),
                tuple(
                    f"the right to {_right_words(acl)}" for acl in change.removed if acl.permission == Permission.ALLOW
                ),
                change=AclChange(change.principal, removed=change.removed),
            )
        )
    return found


def _delete(access: Access, change: AclChange) -> None:
    delete_acls(access.cluster, change.removed)


def _right_words(acl: Acl) -> str:
    """Return `READ on topic 'orders'`."""
    where = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{name_of(Operation, acl.operation)} on {acl.resource_words()}{where}"
