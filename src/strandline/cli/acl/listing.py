"""`strandline acl list`: the ACLs of users, or those that decide about a resource."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.acl.access import read_acls
from strandline.cli.acl.rules import OfCluster, Principals, Users, acl_json, principals_of
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.security.acl.access_rule import Acl, AclFilter, name_of
from strandline.security.acl.kinds import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType


def list_acls(
    users: Users = None,
    principals: Principals = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="What decides about this topic, prefixes and '*' too.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="Likewise.", autocompletion=completion.group_names),
    ] = None,
    transactional_id: Annotated[str | None, typer.Option("--transactional-id", metavar="ID", help="Likewise.")] = None,
    of_cluster: OfCluster = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List ACLs: all, those of a user, or those that decide about a topic, a group or another resource."""
    owners = principals_of(users, principals)
    resource = resource_of(topic, group, transactional_id, of_cluster)
    selection = AclFilter()
    if resource is not None:
        selection = AclFilter(resource[0], PatternType.MATCH, resource[1])
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    found = [acl for acl in read_acls(cluster, selection) if not owners or acl.principal in owners]
    if as_json:
        for acl in found:
            output.json_line(acl_json(acl))
    elif found:
        output.table(["principal", "may", "operation", "on", "name", "from"], [_row(acl) for acl in found])
    elif owners or resource is not None:
        output.talk("no ACL is like that")
    else:
        output.talk("no ACLs yet: `strandline acl grant --user NAME --read TOPIC` makes one")


def resource_of(
    topic: str | None, group: str | None, transactional_id: str | None, of_cluster: bool
) -> tuple[ResourceType, str] | None:
    """Return the one resource that the options name, None for none."""
    named = [
        (kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.TRANSACTIONAL_ID, transactional_id),
            (ResourceType.CLUSTER, CLUSTER_NAME if of_cluster else None),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise UsageFailed("choose one of --topic, --group, --transactional-id and --cluster")
    return named[0] if named else None


def _row(acl: Acl) -> tuple[str, ...]:
    is_prefix = acl.pattern_type == PatternType.PREFIXED
    return (
        acl.principal,
        "yes" if acl.permission == Permission.ALLOW else "NO",
        name_of(Operation, acl.operation),
        name_of(ResourceType, acl.resource_type).lower().replace("_", " "),
        acl.name + (WILDCARD if is_prefix else ""),
        "anywhere" if acl.host == WILDCARD else acl.host,
    )
