"""The authorizer of a node, made from the ACLs and settings of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.cli.config.access import Target, read_entries
from strandline.errors import RequestError
from strandline.security.acl.access_rule import Acl, record_of
from strandline.security.acl.authorizer import Authorizer, Decision
from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import Principal, parse_principal


class AuthorizerConfig(NamedTuple):
    """What the brokers' settings add to the ACLs."""

    super_users: frozenset[Principal] = frozenset()
    allows_everyone: bool = False
    is_known: bool = False
    """Whether a broker said so; Kafka does not."""


NOTHING_KNOWN: Final = AuthorizerConfig()


def authorizer_of(acls: Iterable[Acl], config: AuthorizerConfig = NOTHING_KNOWN) -> Authorizer:
    """Return an authorizer that decides by these ACLs."""
    deciding = Authorizer(super_users=config.super_users, allows_everyone=config.allows_everyone)
    deciding.load(record_of(acl, UUID(int=number)) for number, acl in enumerate(acls))
    return deciding


def decision_about(acl: Acl, deciding: Authorizer) -> Decision:
    """Return what is decided about a client that does just what the ACL is about."""
    asked = Operation(acl.operation), ResourceType(acl.resource_type), acl.name
    return deciding.explain(parse_principal(acl.principal), acl.host, *asked)


def read_config(cluster: Cluster) -> AuthorizerConfig:
    """Return the settings of the authorizer, as the first broker has them."""
    admin = cluster.admin()
    with cluster.errors("cannot list brokers"):
        brokers = sorted(admin.list_topics(timeout=cluster.timeout_s).brokers)
    try:
        entries = read_entries(cluster, admin, Target("broker", str(brokers[0]))) if brokers else None
    except CommandFailed:
        entries = None
    if not entries or "super.users" not in entries:
        return NOTHING_KNOWN
    named = (name.strip() for name in (entries["super.users"].value or "").split(";"))
    everyone = entries.get("allow.everyone.if.no.acl.found")
    try:
        super_users = frozenset(parse_principal(name) for name in named if name)
    except RequestError:
        return NOTHING_KNOWN
    return AuthorizerConfig(super_users, everyone is not None and everyone.value == "true", True)
