"""`strandline cluster status`: nodes with roles, leaders, replicas and disks, and why partitions are not whole."""

from __future__ import annotations

from typing import Any

from strandline.cli.cluster.cluster_rows import node_rows, partition_lines
from strandline.cli.cluster.reading import read_state
from strandline.cli.cluster.state import ClusterState
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import size
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch


def status(
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the nodes with their roles, leaders, replicas and disks; and which partitions are not whole, and why."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)

    def look() -> None:
        state = read_state(cluster, with_disks=True)
        if as_json:
            output.json_line(as_json_object(state))
        else:
            _show(output, state)

    if watching:
        watch(output, look, every_s=every)
    else:
        look()


def as_json_object(state: ClusterState) -> dict[str, Any]:
    return {
        "cluster_id": state.cluster_id,
        "quorum": None
        if state.quorum is None
        else {
            "leader": state.quorum.leader_id,
            "epoch": state.quorum.epoch,
            "voters": [node.node_id for node in state.quorum.voters],
            "silent_voters": state.quorum.silent_voters(),
        },
        "nodes": node_rows(state),
        "topics": len({each.topic for each in state.partitions}),
        "partitions": len(state.partitions),
        "offline": [each.name for each in state.offline()],
        "under_replicated": {
            str(node_id): [each.name for each in missing] for node_id, missing in state.missing_by_broker().items()
        },
        "refusing_writes": [each.name for each in state.refusing_writes()],
        "reassigning": None if state.reassignments is None else len(state.reassignments),
    }


def _show(output: Output, state: ClusterState) -> None:
    output.line(f"cluster     {state.cluster_id}")
    output.line(f"quorum      {_quorum_words(state)}")
    for number, line in enumerate(partition_lines(state)):
        output.hanging(f"{'partitions' if number == 0 else '':10}  ", " " * 12, line)
    output.line("")
    columns = ["node", "role", "address", "rack", "state", "leaders", "replicas", "out of sync", "logs", "disk free"]
    output.table(columns, [_cells(row) for row in node_rows(state)])


def _quorum_words(state: ClusterState) -> str:
    quorum = state.quorum
    if quorum is None:
        return state.quorum_failure or "unknown: the cluster does not tell"
    voters = ", ".join(str(node.node_id) for node in quorum.voters)
    silent = quorum.silent_voters()
    missing = f"; not heard of: {', '.join(map(str, silent))}" if silent else ""
    return f"node {quorum.leader_id} leads epoch {quorum.epoch}; voters {voters}{missing}"


def _cells(row: dict[str, Any]) -> list[object]:
    role = ", ".join(row["roles"]) + ("*" if row["active_controller"] else "")
    total, usable = row["disk_total_bytes"], row["disk_usable_bytes"]
    return [
        row["node"],
        role,
        row["address"] or "-",
        row["rack"] or "-",
        row["state"] if not row["failed_directories"] else f"{row['state']}, disk failed",
        row["leaders"],
        row["replicas"],
        row["out_of_sync"],
        "-" if row["logs_bytes"] is None else size(row["logs_bytes"]),
        "-" if not total else f"{usable / total:.0%}",
    ]
