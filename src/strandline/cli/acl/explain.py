"""`strandline acl explain`: whether a client may do something, and the rule that decides."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.acl.access import read_acls
from strandline.cli.acl.deciding import authorizer_of, read_config
from strandline.cli.acl.listing import resource_of
from strandline.cli.acl.rules import OfCluster, Principals, Users, acl_json, parse_operation, require_principals
from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import ExitCode, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.security.acl.access_rule import AclFilter
from strandline.security.acl.kinds import WILDCARD, Operation, PatternType
from strandline.security.principal import parse_principal


def explain(
    users: Users = None,
    principals: Principals = None,
    operation: Annotated[
        str, typer.Option("--operation", "-o", metavar="OPERATION", help="Kafka's name, as read or write.")
    ] = "",
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="NAME", help="The topic.", autocompletion=completion.topic_names),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="The group.", autocompletion=completion.group_names),
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="The transactional id.")
    ] = None,
    of_cluster: OfCluster = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="The client's address, for rules of single hosts.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say whether a user may do something, and which rule decides. Exit code 5 if not."""
    owners = require_principals(users, principals)
    resource = resource_of(topic, group, transactional_id, of_cluster)
    if resource is None:
        raise UsageFailed("with what?", hint="say --topic NAME, --group NAME, --transactional-id ID or --cluster")
    if not operation:
        raise UsageFailed("which operation?", hint="say for example --operation write")
    asked = parse_operation(operation)
    if asked == Operation.ALL:
        raise UsageFailed("a client asks for one operation at a time", hint="say for example --operation write")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    config = read_config(cluster)
    deciding = authorizer_of(read_acls(cluster, AclFilter(resource[0], PatternType.MATCH, resource[1])), config)
    is_denied = False
    for owner in owners:
        decision = deciding.explain(parse_principal(owner), host or WILDCARD, asked, *resource)
        is_denied = is_denied or not decision.allowed
        if as_json:
            facts = {"principal": owner, "operation": asked.name, "resource_type": resource[0].name}
            output.json_line(
                facts
                | {
                    "name": resource[1],
                    "host": host,
                    "allowed": decision.allowed,
                    "rule": decision.rule,
                    "acl": None if decision.acl is None else acl_json(decision.acl),
                }
            )
        else:
            output.line(f"{'allowed' if decision.allowed else 'denied'}: {decision.rule}")
    if not config.is_known:
        output.talk("note: the brokers do not say who their super users are; they may do everything")
    if is_denied:
        raise typer.Exit(ExitCode.UNHEALTHY)
