"""`strandline queue list | lag`: the share groups of a cluster, and how much waits in each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.group.reading import read_groups
from strandline.cli.queue.queue_state import lag_rows, read_positions, read_queue, read_waiting


def list_queues(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List share groups: state, members, topics, and how many records wait."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    rows = []
    for name in queue_names(cluster, output):
        group, positions = read_queue(cluster, name), read_positions(cluster, name)
        lags = [position.lag for position in positions.values() if position.lag >= 0]
        fields = {
            "group": name,
            "state": group.group_state,
            "members": len(group.members),
            "topics": sorted({topic for topic, _ in positions}),
            "lag": sum(lags) if lags else None,
        }
        if as_json:
            output.json_line(fields)
        else:
            rows.append([_cell(",".join(value) if isinstance(value, list) else value) for value in fields.values()])
    if rows:
        output.table(["group", "state", "members", "topics", "lag"], rows)
    elif not as_json:
        output.talk("no share groups yet: a worker with a group makes one (docs/queues.md)")


def lag(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP]...", help="The groups; all without one.", autocompletion=completion.group_names
        ),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show how many records of each partition wait, how many of them members hold, and for how long the first does."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    rows: list[dict[str, Any]] = []
    for name in groups or queue_names(cluster, output):
        read_queue(cluster, name)
        rows += lag_rows(name, *read_waiting(cluster, name))
    if as_json:
        for row in rows:
            output.json_line(row)
    elif rows:
        output.table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    else:
        output.talk("no share group has a position in a partition")


def queue_names(cluster: Cluster, output: Output) -> list[str]:
    """Return the names of all share groups."""
    groups = read_groups(cluster, with_members=False, tell=output.talk)
    return [group.group_id for group in groups if group.group_type == "share"]


def _cell(value: object) -> object:
    return "-" if value is None or value == "" else value
