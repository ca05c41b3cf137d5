"""`strandline sqlite status`: what a topic holds of its database, and to which moments it can be restored."""

from __future__ import annotations

import time
from typing import Any

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.sqlite.access import DatabaseTopic, shipped_topic, shipping_errors
from strandline.sqlite.failures import MomentGone
from strandline.sqlite.records import ShippedHeader
from strandline.sqlite.topic import ShippedRecord, ShippedTopic


def status(
    topic: DatabaseTopic,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the database of a topic: its newest transaction, and the snapshots that a restore can begin with."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    with shipping_errors():
        shipped = shipped_topic(cluster, topic)
        shipped.check()
        newest, found = _read(shipped)
    if as_json:
        output.json_line(_as_json(topic, newest, found))
        return
    _show(output, newest.header, found)


def _read(topic: ShippedTopic) -> tuple[ShippedRecord, list[ShippedRecord]]:
    from strandline.sqlite.snapshots import last_state, snapshot_of, snapshots

    begin, end = topic.bounds()
    newest = last_state(topic, end, begin)
    if newest is None:
        raise MomentGone(f"topic {topic.name} holds no whole snapshot: let `strandline sqlite ship` write one")
    return newest, list(snapshots(topic, snapshot_of(newest), begin))


def _as_json(topic: str, newest: ShippedRecord, found: list[ShippedRecord]) -> dict[str, Any]:
    header, state = newest.header, newest.header.state
    return {
        "topic": topic,
        "database": header.database,
        "generation": state.generation,
        "transaction": state.transaction,
        "offset": newest.offset,
        "time": header.at_ms,
        "page_size": state.page_bytes,
        "pages": state.pages,
        "checksum": f"{state.checksum:016x}",
        "snapshots": [
            {
                "offset": each.offset,
                "time": each.header.at_ms,
                "generation": each.header.state.generation,
                "transaction": each.header.state.transaction,
            }
            for each in found
        ],
    }


def _show(output: Output, header: ShippedHeader, found: list[ShippedRecord]) -> None:
    from strandline.sqlite.restoring import moment_text

    state = header.state
    age_s = max(0.0, time.time() - header.at_ms / 1000)
    output.line(f"database     {header.database}")
    output.line(f"newest       transaction {state.transaction} of {moment_text(header.at_ms)} ({age_s:,.0f} s ago)")
    output.line(f"size         {state.pages:,} pages of {state.page_bytes:,} bytes")
    if not found:
        output.line("snapshots    none: retention has deleted them, and nothing can be restored")
        return
    output.line(f"restorable   since {moment_text(found[-1].header.at_ms)}")
    output.table(
        ("snapshot", "time", "transaction", "generation"),
        [
            (each.offset, moment_text(each.header.at_ms), each.header.state.transaction, each.header.state.generation)
            for each in found
        ],
    )
