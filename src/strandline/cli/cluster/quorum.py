"""`strandline cluster quorum`: who leads the metadata, who votes, and how far everybody is."""

from __future__ import annotations

from typing import Any

from strandline.cli.cluster.cluster_rows import quorum_row
from strandline.cli.cluster.reading import read_quorum
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output


def quorum(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the quorum of the cluster's metadata: its leader and epoch, voters and observers, and who is behind."""
    cluster = connect(bootstrap, properties, timeout)
    found = read_quorum(cluster)
    if found is None:
        raise CommandFailed("this cluster does not offer DescribeQuorum")
    output = Output(as_json=as_json)
    rows = [quorum_row(found, node) for node in found.nodes]
    if as_json:
        output.json_line(
            {
                "leader": found.leader_id,
                "epoch": found.epoch,
                "high_watermark": found.high_watermark,
                "log_end_offset": found.end_offset,
                "nodes": rows,
            }
        )
        return
    output.line(f"leader          node {found.leader_id}, epoch {found.epoch}")
    output.line(f"high watermark  {found.high_watermark} of {found.end_offset}")
    output.line("")
    columns = ["node", "role", "address", "log end", "behind", "last fetch", "last in step"]
    output.table(columns, [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> list[object]:
    is_leader = row["role"] == "leader"
    return [
        row["node"],
        row["role"],
        row["address"] or "-",
        "-" if row["log_end_offset"] is None else row["log_end_offset"],
        "-" if row["lag_records"] is None else row["lag_records"],
        "-" if is_leader else _seconds(row["last_fetch_ms_ago"]),
        "-" if is_leader else _seconds(row["last_caught_up_ms_ago"]),
    ]


def _seconds(milliseconds: int | None) -> str:
    return "never" if milliseconds is None else f"{milliseconds / 1000:.1f} s ago"
