"""`strandline topic describe`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.config_access import Entry, Target, read_entries
from strandline.cli.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Timeout,
    TopicName,
)
from strandline.cli.output import Output
from strandline.cli.plain_words import setting_value, size
from strandline.cli.topics import described, log_sizes, offset_ranges, topic_id


def describe(
    name: TopicName,
    all_settings: Annotated[bool, typer.Option("--all", "-a", help="Settings at their default, too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a topic: partitions with leaders, replicas, offsets and sizes, and its settings with their source."""
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    topic = described(cluster, admin, name)
    offsets = offset_ranges(cluster, admin, [topic])
    sizes = log_sizes(cluster, topic)
    entries = read_entries(cluster, admin, Target("topic", name))
    shown = None if entries is None else [entry for entry in entries.values() if all_settings or entry.is_set]
    partitions = [
        {
            "partition": partition.id,
            "leader": partition.leader.id if partition.leader is not None else None,
            "replicas": [node.id for node in partition.replicas],
            "in_sync_replicas": [node.id for node in partition.isr],
            "log_start_offset": offsets[name, partition.id][0],
            "high_watermark": offsets[name, partition.id][1],
            "size_bytes": None if sizes is None else sizes.get(partition.id),
        }
        for partition in topic.partitions
    ]
    output = Output(as_json=as_json)
    if as_json:
        output.json_line(
            {
                "topic": name,
                "topic_id": topic_id(topic),
                "partitions": partitions,
                "configs": None if shown is None else {entry.name: entry.value for entry in shown},
                "config_sources": None if shown is None else {entry.name: entry.source_name for entry in shown},
            }
        )
        return
    output.line(f"topic     {name}")
    output.line(f"id        {topic_id(topic)}")
    for line in _settings_lines(shown):
        output.line(line)
    output.line("")
    columns = ["partition", "leader", "replicas", "in sync", "start offset", "high watermark", "size"]
    rows = [[_cell(column, cell) for column, cell in row.items()] for row in partitions]
    if sizes is None:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    output.table(columns, rows)


def _settings_lines(entries: list[Entry] | None) -> list[str]:
    if entries is None:
        return ["settings  unknown: this cluster does not offer DescribeConfigs"]
    if not entries:
        return ["settings  all default"]
    shown = [(f"{entry.name}={entry.value or ''}", entry) for entry in entries]
    width = max(len(text) for text, _ in shown)
    lines = []
    for number, (text, entry) in enumerate(shown):
        meaning = setting_value(entry.name, entry.value)
        aside = f"{entry.source_words}{', ' if meaning else ''}{meaning}"
        lines.append(f"{'settings' if number == 0 else '':8}  {text:{width}}  ({aside})")
    return lines


def _cell(column: str, cell: Any) -> str:
    if cell is None:
        return "none" if column == "leader" else "-"
    if isinstance(cell, list):
        return ",".join(str(number) for number in cell)
    return size(cell) if column == "size_bytes" else str(cell)
