"""Cluster: which nodes there are, what each leads and holds, how the quorum is, and what is being moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.cluster.cluster_rows import node_rows, partition_lines, quorum_row
from strandline.cli.cluster.judging import health_findings
from strandline.cli.cluster.state import ClusterState, Reassignment
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.findings import Level
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.tables import TableHead

MOVES_SHOWN: Final = 1000

NODES: Final = (
    TableHead("node", "Node", "number", link=lambda row: f"/cluster/{row['node']}"),
    TableHead("state", "State", "verdict"),
    TableHead("role", "Role"),
    TableHead("address", "Address", is_wide=True),
    TableHead("rack", "Rack", is_wide=True),
    TableHead("leaders", "Leads", "number", "Partitions that the node leads"),
    TableHead("replicas", "Replicas", "number"),
    TableHead("out_of_sync", "Out of sync", "number", "Replicas of the node that are behind"),
    TableHead("logs_bytes", "Logs", "bytes"),
    TableHead("free_share", "Disk free", "share"),
)
VOTERS: Final = (
    TableHead("node", "Node", "number"),
    TableHead("role", "Role"),
    TableHead("lag_records", "Behind", "number", "Records of the metadata log that the node has not fetched"),
    TableHead("last_fetch_s", "Last fetch", "span", "So long ago, by the clock of the leader"),
    TableHead("last_caught_up_s", "Last in step", "span", "So long ago, by the clock of the leader", is_wide=True),
    TableHead("log_end_offset", "Log end", "number", is_wide=True),
    TableHead("address", "Address", is_wide=True),
)
MOVES: Final = (
    TableHead("partition", "Partition", "name"),
    TableHead("share", "Copied", "share", "Bytes of the new replicas, of what the largest replica has"),
    TableHead("in_sync", "New in sync", hint="Of the replicas that are being added"),
    TableHead("replicas", "Replicas", is_wide=True),
    TableHead("adding", "Being added"),
    TableHead("removing", "To be removed"),
)


async def cluster(context: PageContext) -> Mapping[str, Any]:
    """Answer whether every node does its part."""
    state = await context.reading.state()
    quorum = state.quorum
    return {
        "verdict": verdict(state),
        "cluster_id": state.cluster_id,
        "lines": partition_lines(state),
        "not_preferred": len(state.not_preferred()),
        "nodes": context.table(
            NODES,
            [shown_node(each) for each in node_rows(state)],
            caption="Nodes",
            name="nodes",
            searched=("node", "address", "rack", "state"),
            sort="node",
        ),
        "quorum": None
        if quorum is None
        else {"leader": quorum.leader_id, "epoch": quorum.epoch, "high_watermark": quorum.high_watermark},
        "quorum_failure": state.quorum_failure,
        "voters": context.table(
            VOTERS,
            [] if quorum is None else [_voter(quorum_row(quorum, each)) for each in quorum.nodes],
            caption="The quorum",
            name="voters",
            sort="node",
            empty="This cluster does not tell how its quorum is.",
        ),
        "moves": context.table(
            MOVES,
            [_move(state, each) for each in (state.reassignments or ())[:MOVES_SHOWN]],
            caption="Replicas that are being moved",
            name="moves",
            searched=("partition",),
            sort="share",
            empty="Nothing is being moved."
            if state.reassignments is not None
            else "This cluster does not tell what is being moved.",
        ),
        "moving": len(state.reassignments or ()),
        "brokers": sorted(each.node_id for each in state.brokers),
    }


def verdict(state: ClusterState) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    found = list(health_findings(state))
    nodes = f"{len(state.live_brokers())} of {count(len(state.brokers), 'broker')} up"
    for level in (Level.PROBLEM, Level.WARNING):
        worst = [each for each in found if each.level is level]
        if worst:
            more = f" ({count(len(worst) - 1, 'more finding')} on the page Doctor)" if len(worst) > 1 else ""
            return {"level": str(level), "text": f"{worst[0].text[:1].upper()}{worst[0].text[1:]}{more}."}
    return {"level": "ok", "text": f"Every node does its part: {nodes}, and all replicas are in sync."}


def shown_node(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the words of the page."""
    total, usable = row["disk_total_bytes"], row["disk_usable_bytes"]
    state = "disk failed" if row["failed_directories"] else row["state"]
    return {
        **row,
        "state": {"up": "running", "down": "dead", "silent": "offline"}.get(state, state),
        "role": ", ".join(row["roles"]) + (", leads the quorum" if row["active_controller"] else ""),
        "free_share": usable / total if total and usable is not None else None,
    }


def _voter(row: Mapping[str, Any]) -> dict[str, Any]:
    is_leader = row["role"] == "leader"

    def seconds(name: str) -> float | None:
        return None if is_leader or row[name] is None else row[name] / 1000

    return {
        **row,
        "last_fetch_s": seconds("last_fetch_ms_ago"),
        "last_caught_up_s": seconds("last_caught_up_ms_ago"),
    }


def _move(state: ClusterState, each: Reassignment) -> dict[str, Any]:
    """Return a move with its progress: how much the new replicas have of what the largest replica has."""
    place = each.topic, each.index
    sizes = {broker.node_id: broker.disk.sizes.get(place, 0) for broker in state.brokers if broker.disk is not None}
    whole = max(sizes.values(), default=0) * len(each.adding)
    copied = sum(sizes.get(node_id, 0) for node_id in each.adding)
    partition = next((known for known in state.partitions if (known.topic, known.index) == place), None)
    in_sync = 0 if partition is None else sum(node_id in partition.in_sync for node_id in each.adding)
    is_told = all(node_id in sizes for node_id in each.adding)
    return {
        "partition": f"{each.topic}-{each.index}",
        "replicas": _ids(each.replicas),
        "adding": _ids(each.adding),
        "removing": _ids(each.removing),
        "in_sync": f"{in_sync} of {len(each.adding)}",
        "share": min(1.0, copied / whole) if whole and is_told else None,
    }


def _ids(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "–"


PAGE: Final = ConsolePage(
    name="cluster",
    path="/cluster",
    title="Nodes",
    question="Does every node do its part: leading, keeping up, voting, with room on its disk?",
    model=cluster,
    template="cluster.html",
    tables=(
        PageTable("nodes", NODES),
        PageTable("voters", VOTERS),
        PageTable("moves", MOVES),
    ),
    group="Cluster",
)
MODULE: Final = PageModule(pages=(PAGE,))
