"""`strandline cluster status`: nodes with roles, leaders, replicas and disks, and why partitions are not whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

from strandline.cli.cluster.reading import read_state
from strandline.cli.cluster.state import BrokerState, ClusterState, listed
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
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


def node_rows(state: ClusterState) -> list[dict[str, Any]]:
    """One row for each node: brokers, and controllers that are nothing else."""
    leaders = Counter(each.leader for each in state.partitions)
    replicas = Counter(replica for each in state.partitions for replica in each.replicas)
    lagging = Counter(replica for each in state.partitions for replica in each.missing)
    quorum = state.quorum
    addresses = {node.node_id: node.address for node in quorum.voters} if quorum is not None else {}
    silent = set(quorum.silent_voters()) if quorum is not None else set()
    rows = []
    for node_id, roles in state.roles().items():
        broker = state.broker(node_id)
        disk = broker.disk if broker is not None else None
        rows.append(
            {
                "node": node_id,
                "roles": roles,
                "active_controller": quorum is not None and quorum.leader_id == node_id,
                "address": broker.address if broker is not None else addresses.get(node_id),
                "rack": broker.rack if broker is not None else None,
                "state": _state_of(broker, is_silent=node_id in silent),
                "leaders": leaders[node_id],
                "replicas": replicas[node_id],
                "out_of_sync": lagging[node_id],
                "logs_bytes": None if disk is None else disk.logs_bytes,
                "disk_total_bytes": None if disk is None else disk.total_bytes,
                "disk_usable_bytes": None if disk is None else disk.usable_bytes,
                "failed_directories": None if disk is None else disk.failed_directories,
            }
        )
    return rows


def _state_of(broker: BrokerState | None, *, is_silent: bool) -> str:
    if broker is None:
        return "silent" if is_silent else "up"
    return "up" if broker.is_up else "down"


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


def partition_lines(state: ClusterState) -> list[str]:
    """Return the partitions in words: how many there are, and of those that are not whole which and why."""
    replicas = sum(len(each.replicas) for each in state.partitions)
    total = f"{count(len(state.partitions), 'partition')}, {count(replicas, 'replica')}"
    lines = []
    offline = state.offline()
    if offline:
        lines.append(f"{len(offline):,} without a leader: {listed(offline)}; {state.why_offline(offline[0])}")
    for node_id, missing in state.missing_by_broker().items():
        lines.append(f"{len(missing):,} lack a replica, because {state.why_missing(node_id)}: {listed(missing)}")
    refusing = state.refusing_writes()
    if refusing:
        lines.append(f"{len(refusing):,} refuse acks=all, too few replicas are in sync: {listed(refusing)}")
    if state.reassignments:
        lines.append(f"{count(len(state.reassignments), 'partition')} being moved")
    return [f"{total}: all in sync", *lines] if not (offline or state.under_replicated()) else [total, *lines]


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
