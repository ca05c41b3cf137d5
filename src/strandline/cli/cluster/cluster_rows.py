"""Nodes, voters and partitions of a cluster as plain data and in words, for `cluster` and the console (pure)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from strandline.cli.cluster.state import BrokerState, ClusterState, QuorumDescription, QuorumNode, listed
from strandline.cli.common.plain_words import count


def node_rows(state: ClusterState) -> list[dict[str, Any]]:
    """One row for each node: brokers, and controllers that are nothing else."""
    leaders, replicas = state.found.led_by_broker, state.found.replicas_by_broker
    lagging = Counter(replica for each in state.under_replicated() for replica in each.missing)
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


def partition_lines(state: ClusterState) -> list[str]:
    """Return the partitions in words: how many there are, and of those that are not whole which and why."""
    replicas = state.found.replicas_by_broker.total()
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
    if state.has_lost_quorum:
        return [f"{total}, as a broker knew them when the quorum ended", *lines]
    return [f"{total}: all in sync", *lines] if not (offline or state.under_replicated()) else [total, *lines]


def quorum_row(quorum: QuorumDescription, node: QuorumNode) -> dict[str, Any]:
    role = "leader" if node.node_id == quorum.leader_id else "voter" if node.is_voter else "observer"
    return {
        "node": node.node_id,
        "role": role,
        "address": node.address,
        "directory_id": node.directory_id,
        "log_end_offset": node.log_end_offset if node.log_end_offset >= 0 else None,
        "lag_records": max(0, quorum.end_offset - node.log_end_offset) if node.log_end_offset >= 0 else None,
        "last_fetch_ms_ago": _ago_ms(quorum, node.last_fetch_ms),
        "last_caught_up_ms_ago": _ago_ms(quorum, node.last_caught_up_ms),
    }


def _ago_ms(quorum: QuorumDescription, when_ms: int) -> int | None:
    return max(0, quorum.now_ms - when_ms) if when_ms >= 0 else None
