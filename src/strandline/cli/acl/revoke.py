"""`strandline acl revoke`: ACLs deleted, after a plan."""

from __future__ import annotations

from strandline.cli.acl.access import delete_acls, read_acls
from strandline.cli.acl.deciding import authorizer_of, decision_about
from strandline.cli.acl.rules import (
    AclOptions,
    Deny,
    Groups,
    Host,
    OfCluster,
    Operations,
    Plan,
    Prefix,
    Principals,
    Read,
    Topics,
    TransactionalIds,
    Users,
    Write,
    require_principals,
    tell_outcome,
    words_of,
)
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import NotFound
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.security.acl.access_rule import Acl, AclFilter
from strandline.security.acl.kinds import Permission


def revoke(
    users: Users = None,
    principals: Principals = None,
    read: Read = None,
    write: Write = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    topics: Topics = None,
    of_cluster: OfCluster = False,
    operations: Operations = None,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Host = None,
    dry_run: Plan = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Take back what `acl grant` gave, with the same words. Without a resource: everything of the user.

    --deny takes back denials. Shows what would go, and asks.
    """
    owners = require_principals(users, principals)
    wanted = AclOptions(
        read or (),
        write or (),
        topics or (),
        groups or (),
        transactional_ids or (),
        of_cluster,
        operations or (),
        prefix,
    )
    permission = Permission.DENY if deny else Permission.ALLOW
    filters = [
        AclFilter(kind, pattern, name, owner, host, operation, permission)
        for owner in owners
        for kind, pattern, name, operation in wanted.pairs()
    ] or [AclFilter(principal=owner, host=host, permission=permission if deny else Permission.ANY) for owner in owners]
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    existing = read_acls(cluster, AclFilter())
    doomed = [acl for acl in existing if any(each.matches(acl) for each in filters)]
    if not doomed:
        raise NotFound("no ACL is like that", hint=_hint([acl for acl in existing if acl.principal in owners], owners))
    _tell_others(output, doomed, existing)
    if not dry_run:
        plan = [f"delete: {words_of(acl)}" for acl in doomed]
        confirm(output, plan, yes=yes, question="Revoke?", undone="nothing was revoked")
        doomed = delete_acls(cluster, doomed)
    for acl in doomed:
        outcome = "would be deleted" if dry_run else "deleted"
        tell_outcome(output, acl, outcome)


def _hint(theirs: list[Acl], owners: list[str]) -> str:
    if not theirs:
        return f"{', '.join(owners)} has no ACL; see all with `strandline acl list`"
    return f"{', '.join(owners)} has: " + "; ".join(words_of(acl) for acl in theirs[:3])


def _tell_others(output: Output, doomed: list[Acl], existing: list[Acl]) -> None:
    """Say what still allows the same, because the user keeps its right by it."""
    deciding = authorizer_of(set(existing) - set(doomed))
    for acl in doomed:
        decision = decision_about(acl, deciding)
        if acl.permission == Permission.ALLOW and decision.acl is not None and decision.allowed:
            output.talk(f"note: another ACL still allows it: {words_of(decision.acl)}")
