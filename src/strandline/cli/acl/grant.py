"""`strandline acl grant`: ACLs created, and a word where a denial still wins."""

from __future__ import annotations

from strandline.cli.acl.access import create_acls, read_acls
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
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.security.acl.access_rule import Acl, AclFilter
from strandline.security.acl.kinds import Permission


def grant(
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
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Allow a user something, or deny it with --deny: --user billing --read orders --group billing."""
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
    acls = wanted.acls(require_principals(users, principals), host=host, denies=deny)
    if not acls:
        raise UsageFailed("grant what?", hint="say --read TOPIC, --write TOPIC, --group GROUP or --operation")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    existing = read_acls(cluster, AclFilter())
    new = [acl for acl in acls if acl not in set(existing)]
    if new and not dry_run:
        create_acls(cluster, new)
    for acl in acls:
        outcome = "exists" if acl not in new else "would be created" if dry_run else "created"
        tell_outcome(output, acl, outcome)
    _tell_denials(output, acls, existing)


def _tell_denials(output: Output, acls: list[Acl], existing: list[Acl]) -> None:
    """Say which of the new permissions a denial still overrules, because that surprises."""
    deciding = authorizer_of([*existing, *acls])
    for acl in acls:
        decision = decision_about(acl, deciding)
        if acl.permission == Permission.ALLOW and decision.acl is not None and not decision.allowed:
            output.talk(f"note: a denial wins over it: {words_of(decision.acl)}")
