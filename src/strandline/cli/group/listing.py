"""`strandline group list`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.group.reading import read_groups
from strandline.cli.group.state import GroupDescription
from strandline.cli.pipeline.reading import QueryGroup, query_groups
from strandline.cli.topic.listing import matcher

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling", "Dead")
TYPES = ("classic", "consumer", "share", "streams")


def list_groups(
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="PATTERN", help="Only names like this: orders-* or /a regular expression/."),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty ... May be repeated."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only classic or only consumer groups. May be repeated."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List groups: protocol, state, members, and the node that coordinates each."""
    wanted, in_states, of_types = matcher(pattern), _known("--state", states, STATES), _known("--type", types, TYPES)
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    groups = [
        group
        for group in read_groups(cluster, tell=output.talk)
        if wanted.search(group.group_id)
        and (not in_states or group.state.lower() in in_states)
        and (not of_types or group.group_type in of_types)
    ]
    of_queries = query_groups(cluster, [group.group_id for group in groups])
    if as_json:
        for group in groups:
            output.json_line(_object(group, of_queries.get(group.group_id)))
    elif groups:
        rows = [
            (
                group.group_id,
                group.group_type,
                str(of_queries.get(group.group_id, group.state)),
                "-" if group.members is None or group.group_id in of_queries else len(group.members),
                "-" if group.coordinator is None else group.coordinator,
            )
            for group in groups
        ]
        output.table(["group", "type", "state", "members", "coordinator"], rows)
    else:
        is_filtered = pattern is not None or states or types
        output.talk("no group is like that" if is_filtered else "no groups yet: a consumer with a group.id makes one")


def _object(group: GroupDescription, query: QueryGroup | None) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "members": None if group.members is None else len(group.members),
        "coordinator": group.coordinator,
        "protocol_type": group.protocol_type,
        "pipeline": None if query is None else query.to_json(),
    }


def _known(option: str, given: list[str] | None, known: tuple[str, ...]) -> set[str]:
    """In lower case, as they are compared."""
    allowed = {word.lower() for word in known}
    for word in given or []:
        if word.lower() not in allowed:
            raise UsageFailed(f"{option} {word!r} is none of {', '.join(known)}")
    return {word.lower() for word in given or []}
