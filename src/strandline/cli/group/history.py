"""`strandline group history`: why a group rebalanced, how long it took, and what each member lost and got."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, GroupName, Timeout
from strandline.cli.common.output import Output
from strandline.cli.group.history_reading import history_lines, history_object, moment_of, read_group_history
from strandline.cli.group.reading import find_group, group_not_found


def history(
    name: GroupName,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="The last N rebalances and other happenings.")
    ] = 10,
    every_member: Annotated[
        bool, typer.Option("--all", "-a", help="Every member and happening, however many.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say why a group rebalanced: who joined, left, timed out, flaps or was fenced, and what moved.

    Nodes keep this in memory since they started; their logs have it for longer.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    seen, since_ms = read_group_history(cluster, name, last, output.talk)
    if not seen:
        if find_group(cluster, name) is None:
            raise group_not_found(cluster, name)
        output.talk(f"nothing happened to group {name} since {moment_of(since_ms)}, when its nodes began to look")
        return
    if as_json:
        for each in seen:
            output.json_line(history_object(name, each))
        return
    for number, each in enumerate(seen):
        if number:
            output.line("")
        for line in history_lines(each, every_member=every_member):
            output.line(line)
