"""`strandline topic describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    TopicName,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import setting_value, size
from strandline.cli.config.access import ConfigValue, Target, read_entries
from strandline.cli.topic.topics import chosen_partitions, described, log_sizes, offset_ranges, topic_id

if TYPE_CHECKING:
    from strandline.cli.topic.storage_reading import Storage


def describe(
    name: TopicName,
    all_settings: Annotated[
        bool, typer.Option("--all", "-a", help="Settings at their default, every segment.")
    ] = False,
    storage: Annotated[
        bool, typer.Option("--storage", "-s", help="Segments, and what is deleted and compacted next, and when.")
    ] = False,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="With --storage: the files of every replica, not only of leaders.")
    ] = False,
    partitions: Partitions = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a topic: partitions with leaders, replicas, offsets and sizes, and its settings with their source.

    --storage shows how each log lies on disk: its segments with sizes, offsets and times, what is dirty, which segment
    is deleted next and when, what is compacted when, and what is damaged. A follower is shown, too, if something is
    wrong with its files.
    """
    if replicas and not storage:
        raise UsageFailed("--replicas belongs to --storage", hint="say --storage --replicas")
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    topic = described(cluster, admin, name)
    chosen = chosen_partitions(topic, partitions)
    offsets = offset_ranges(cluster, admin, [topic])
    sizes = log_sizes(cluster, topic)
    entries = read_entries(cluster, admin, Target("topic", name))
    shown = None if entries is None else [entry for entry in entries.values() if all_settings or entry.is_set]
    rows = [
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
        if partition.id in chosen
    ]
    stored = _storage_of(cluster, topic, chosen) if storage else None
    output = Output(as_json=as_json)
    if as_json:
        whole: dict[str, Any] = {
            "topic": name,
            "topic_id": topic_id(topic),
            "partitions": rows,
            "configs": None if shown is None else {entry.name: entry.value for entry in shown},
            "config_sources": None if shown is None else {entry.name: entry.source_name for entry in shown},
        }
        if stored is not None:
            whole |= _storage_object(stored)
        output.json_line(whole)
        return
    output.line(f"topic     {name}")
    output.line(f"id        {topic_id(topic)}")
    for line in _settings_lines(shown):
        output.line(line)
    output.line("")
    columns = ["partition", "leader", "replicas", "in sync", "start offset", "high watermark", "size"]
    cells = [[_cell(column, cell) for column, cell in row.items()] for row in rows]
    if sizes is None:
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    output.table(columns, cells)
    if stored is not None:
        from strandline.cli.topic.storage import show, show_without

        if stored.is_known:
            show(output, stored, all_replicas=replicas, all_segments=all_settings)
        else:
            show_without(output, cluster, topic, entries)


def _storage_of(cluster: Cluster, topic: Any, partitions: list[int]) -> Storage:
    from strandline.cli.topic.storage_reading import read_storage

    return read_storage(cluster, [topic], partitions=partitions)


def _storage_object(stored: Storage) -> dict[str, Any]:
    from strandline.cli.topic.storage import as_objects

    return {"storage": as_objects(stored), "not_asked": {str(broker): why for broker, why in stored.silent.items()}}


def _settings_lines(entries: list[ConfigValue] | None) -> list[str]:
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
