"""`strandline group describe | members`: who is in a group, what each member owns, and where the group stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    GroupName,
    Timeout,
)
from strandline.cli.common.output import Output
from strandline.cli.common.partition_places import leaders_of
from strandline.cli.common.plain_words import count
from strandline.cli.group.lag_counts import Lag, read_lags
from strandline.cli.group.offsets import committed_offsets, ranges_of
from strandline.cli.group.reading import read_group
from strandline.cli.group.state import GroupDescription, GroupMember, partitions_words, places_json
from strandline.cli.pipeline.reading import QueryGroup, query_groups


def describe(
    name: GroupName,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print committed offsets as `topic,partition,offset`, for reset --from-file.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a group: protocol, state, coordinator, members with what each owns, and its position in each partition."""
    if as_csv and as_json:
        raise UsageFailed("--csv and --json are two forms of one answer: choose one")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    group = read_group(cluster, name)
    if as_csv:
        for (topic, partition), committed in sorted(committed_offsets(cluster, name).items()):
            output.line(f"{topic},{partition},{committed.offset}")
        return
    positions = _positions(cluster, group)
    query = query_groups(cluster, [name]).get(name)
    if as_json:
        output.json_line(
            _group_object(group)
            | {
                "pipeline": None if query is None else query.to_json(),
                "members": None if group.members is None else [_member_object(member) for member in group.members],
                "offsets": positions,
            }
        )
        return
    _show(output, group, positions, query)


def members(
    name: GroupName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the members of a group: ids, clients, hosts, subscriptions, epochs, and what each owns and shall own."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    group = read_group(cluster, name)
    if as_json:
        for member in group.members or ():
            output.json_line({"group": name} | _member_object(member))
        return
    if not group.members:
        output.talk(_nobody(group))
        return
    for number, member in enumerate(sorted(group.members, key=lambda each: (each.name, each.member_id))):
        if number:
            output.line("")
        for line in _member_lines(member, group):
            output.line(line)


def _positions(cluster: Cluster, group: GroupDescription) -> list[dict[str, Any]]:
    """Return the position in each partition that the group has committed, or that a member owns."""
    admin = cluster.admin()
    committed = committed_offsets(cluster, group.group_id)
    owned = {place: member for member in group.members or () for place in member.owned or ()}
    leaders = leaders_of(cluster)
    places = sorted(committed.keys() | owned.keys())
    ranges = ranges_of(cluster, admin, [place for place in places if place in leaders])
    known = {place: (start, end) for place, (start, end) in ranges.items() if start is not None and end is not None}
    lags = read_lags(cluster, admin, leaders, {place: at.offset for place, at in committed.items()}, known)
    positions = []
    for place in places:
        start, end = ranges.get(place, (None, None))
        at = committed.get(place)
        owner = owned.get(place)
        lag = lags.get(place)
        positions.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": None if at is None else at.offset,
                "log_start_offset": start,
                "high_watermark": end,
                "lag": None if lag is None else lag.records,
                "lag_is_exact": None if lag is None else lag.is_exact,
                "undecided": None if lag is None else lag.undecided,
                "member": None if owner is None else owner.member_id,
                "metadata": None if at is None else at.metadata,
                "exists": place in ranges,
            }
        )
    return positions


def _show(output: Output, group: GroupDescription, positions: list[dict[str, Any]], query: QueryGroup | None) -> None:
    output.line(f"group        {group.group_id}")
    kind = f"{group.group_type} protocol" + (f", assignor {group.assignor}" if group.assignor else "")
    if group.protocol_type not in ("consumer", ""):
        kind += f", of {group.protocol_type}"
    output.line(f"type         {kind}")
    output.line(f"state        {_state_words(group) if query is None else query}")
    output.line(f"coordinator  {'unknown' if group.coordinator is None else f'node {group.coordinator}'}")
    if group.members:
        output.line(f"members      {count(len(group.members), 'member')}")
        output.line("")
        ordered = sorted(group.members, key=lambda each: (each.name, each.member_id))
        rows = [[member.name, member.host.removeprefix("/"), _owns(member)] for member in ordered]
        output.table(["member", "host", "owns"], rows)
    else:
        spark = "none: Spark reads, and commits how far each query is"
        output.line(f"members      {_nobody(group) if query is None else spark}")
    output.line("")
    if not positions:
        output.line("offsets      none are committed")
        return
    named = {member.member_id: member.name for member in group.members or ()}
    output.table(
        ["topic", "partition", "committed", "end", "lag", "member"],
        [
            [
                row["topic"],
                row["partition"],
                _figure(row["committed"]),
                _figure(row["high_watermark"]) if row["exists"] else "deleted",
                _lag_words(row),
                named.get(row["member"], "-"),
            ]
            for row in positions
        ],
    )
    if any(row["lag"] and not row["lag_is_exact"] for row in positions):
        output.line("")
        output.line(
            "~ counts offsets of which some may be no records: this cluster did not count those of compacted topics"
        )
        output.line("  and of transactions")


def _lag_words(row: dict[str, Any]) -> str:
    return "-" if row["lag"] is None else str(Lag(row["lag"], row["undecided"], row["lag_is_exact"]))


def _state_words(group: GroupDescription) -> str:
    if group.epoch is None:
        return group.state
    behind = "" if group.assignment_epoch == group.epoch else f", assigned for epoch {group.assignment_epoch}"
    return f"{group.state}, epoch {group.epoch}{behind}"


def _nobody(group: GroupDescription) -> str:
    if group.members is None:
        return f"not told for groups of type {group.group_type}"
    return "none: the group is empty" if group.state == "Empty" else "none"


def _owns(member: GroupMember) -> str:
    words = partitions_words(member.owned)
    if member.is_away:
        return f"{words}, kept for it while it is away"
    return f"{words}, moving" if _is_moving(member) else words


def _is_moving(member: GroupMember) -> bool:
    return member.target is not None and member.owned is not None and set(member.target) != set(member.owned)


def _member_lines(member: GroupMember, group: GroupDescription) -> list[str]:
    lines = [f"member      {member.member_id}"]
    if member.instance_id is not None:
        lines.append(f"instance    {member.instance_id}")
    lines.append(f"client      {member.client_id or '-'} on {member.host.removeprefix('/') or '-'}")
    if member.rack:
        lines.append(f"rack        {member.rack}")
    if group.group_type == "consumer" and member.epoch is not None:
        away = "away, but its seat is kept" if member.is_away else f"epoch {member.epoch} of {group.epoch}"
        lines.append(f"protocol    {member.protocol}, {away}")
    subscribed = ", ".join(member.topics or ())
    if member.pattern:
        subscribed += f"{' and ' if subscribed else ''}what matches {member.pattern}"
    if member.topics is not None:
        lines.append(f"subscribes  {subscribed or 'to nothing'}")
    lines.append(f"owns        {partitions_words(member.owned)}")
    if _is_moving(member):
        lines.append(f"shall own   {partitions_words(member.target)}")
    return lines


def _group_object(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "coordinator": group.coordinator,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
    }


def _member_object(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "topics": None if member.topics is None else list(member.topics),
        "pattern": member.pattern,
        "owned": places_json(member.owned),
        "target": places_json(member.target),
    }


def _figure(number: int | None) -> str:
    return "-" if number is None else str(number)
