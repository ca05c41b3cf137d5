"""One node: what it leads and holds, its log directories, and the settings that are in force on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.cluster.cluster_rows import node_rows
from strandline.cli.common.plain_words import count, setting_value
from strandline.cli.config.access import ConfigValue, Target, read_entries
from strandline.cli.config.known_settings import explanations
from strandline.client.cluster_client import ClusterClient
from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.failures import PageFailed
from strandline.console.pages.cluster import shown_node
from strandline.console.tables import TableHead
from strandline.errors import named

FRESH_S: Final = 5.0
WAIT_S: Final = 3.0

DIRECTORIES: Final = (
    TableHead("directory", "Directory", "name"),
    TableHead("state", "State", "verdict"),
    TableHead("replicas", "Replicas", "number"),
    TableHead("size_bytes", "Logs", "bytes"),
    TableHead("usable_bytes", "Free", "bytes", is_wide=True),
    TableHead("total_bytes", "Disk", "bytes", is_wide=True),
)
SETTINGS: Final = (
    TableHead("setting", "Setting", "name"),
    TableHead("value", "Value"),
    TableHead("meaning", "That is", is_wide=True),
    TableHead("origin", "Set by"),
    TableHead("changes", "Can change", hint="Whether it can change while the node runs", is_wide=True),
    TableHead("explained", "What it does", is_sorted=False, is_wide=True),
)


async def node(context: PageContext) -> Mapping[str, Any]:
    """Answer what a node does, and which settings it has."""
    node_id = _number(context.params["node"])
    state = await context.reading.state()
    row = next((each for each in node_rows(state) if each["node"] == node_id), None)
    if row is None:
        raise PageFailed(404, f"There is no node {node_id}", "choose one of the page Nodes")
    shown = shown_node(row)
    is_broker = state.broker(node_id) is not None
    directories: list[dict[str, Any]] = []
    settings: dict[str, ConfigValue] | None = {}
    if is_broker:
        directories = await context.reading.part("Directories", _directories(context, node_id), [], wait_s=WAIT_S)
        settings = await context.reading.part("Settings", _settings(context, node_id), {}, wait_s=WAIT_S)
    else:
        context.reading.note("A controller that is no broker does not tell its directories and settings to clients.")
    if settings is None:
        context.reading.note("This cluster does not tell the settings of its brokers.")
    shows_all = context.choice("all", ("", "true")) == "true" or bool(context.query.get("settings.q"))
    entries = (settings or {}).values()
    is_ours = await context.reading.is_ours()
    rows = [_row(each, is_ours=is_ours) for each in entries if shows_all or each.is_set]
    return {
        "verdict": _verdict(shown),
        "node": node_id,
        "facts": shown,
        "is_broker": is_broker,
        "directories": context.table(
            DIRECTORIES,
            directories,
            caption="Log directories",
            name="directories",
            sort="directory",
            empty="The node does not tell its directories.",
        ),
        "settings": context.table(
            SETTINGS,
            rows,
            caption="Settings",
            name="settings",
            searched=("setting", "value", "origin", "explained"),
            sort="setting",
            empty="Every setting has its default." if entries else "The node does not tell its settings.",
        ),
        "all": shows_all,
        "hidden": len(entries) - len(rows),
        "command": [
            *("strandline", "config", "get", "--broker", str(node_id), "--all"),
            *("--bootstrap-server", context.cluster.bootstrap),
        ],
    }


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise PageFailed(404, f"{text} is no number of a node", "choose one of the page Nodes")
    return int(text)


def _verdict(row: Mapping[str, Any]) -> dict[str, str]:
    level = "ok" if row["state"] == "running" else "problem"
    if level == "ok" and row["out_of_sync"]:
        level = "warning"
    text = (
        f"It is {row['state']}, leads {count(row['leaders'], 'partition')}, holds {count(row['replicas'], 'replica')}"
    )
    if row["out_of_sync"]:
        text += f", of which {row['out_of_sync']:,} are behind"
    return {"level": level, "text": f"{text}."}


async def _directories(context: PageContext, node_id: int) -> list[dict[str, Any]]:
    metadata = await context.reading.metadata()
    address = metadata.address(node_id)
    if address is None:
        raise PageFailed(503, f"Node {node_id} is not there to be asked")

    def read(client: ClusterClient) -> list[dict[str, Any]]:
        answer = client.ask_at(address, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        return [
            {
                "directory": each.log_dir,
                "state": named(each.error_code).name if each.error_code else "ok",
                "replicas": sum(len(topic.partitions) for topic in each.topics),
                "size_bytes": sum(one.partition_size for topic in each.topics for one in topic.partitions),
                "usable_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
                "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
            }
            for each in answer.results
        ]

    return await context.reading.know(("node.directories", node_id), lambda: context.reading.shared.ask(read), FRESH_S)


async def _settings(context: PageContext, node_id: int) -> dict[str, ConfigValue] | None:
    reading = context.reading

    def read() -> dict[str, ConfigValue] | None:
        return read_entries(reading.cluster, reading.cluster.admin(), Target("broker", str(node_id)))

    return await reading.know(("node.settings", node_id), lambda: reading.shared.in_thread(read), FRESH_S)


def _row(each: ConfigValue, *, is_ours: bool) -> dict[str, Any]:
    # What a setting does elsewhere is for that cluster to say.
    known = next((one for one in explanations(each.name) if one.owner != "topics"), None) if is_ours else None
    return {
        "setting": each.name,
        "value": None if each.sensitive else each.value,
        "meaning": setting_value(each.name, each.value) or None,
        "origin": each.source_words,
        "changes": "with a restart" if each.read_only else "at once",
        "explained": known.doc if known is not None else re.sub(r"<[^>]+>", "", each.documentation),
    }


PAGE: Final = ConsolePage(
    name="node",
    path="/cluster/{node}",
    title="Node {node}",
    question="What does it lead and hold, and which settings are in force on it?",
    model=node,
    template="node.html",
    tables=(
        PageTable("directories", DIRECTORIES),
        PageTable("settings", SETTINGS),
    ),
    queries=(PageQuery("all", "true: defaults as well"),),
    under="cluster",
)
MODULE: Final = PageModule(pages=(PAGE,))
