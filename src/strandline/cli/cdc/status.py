"""`strandline cdc status`: slots, how far sources are behind their databases, snapshots and tables."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.cdc.sources import cdc_sources
from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.worker_api import ConnectApi
from strandline.lag.verdict import span


def status(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The sources; without one, all that capture.")
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="Show each table: topic, key, identity, schema.")] = False,
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show how far each source is behind its database, in bytes and seconds, and what its slot holds.

    The worker asks the database, also for a source that has failed. Exit code 5 if a source has failed or a slot is
    about to fill a disk.
    """
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    if watching:

        def show() -> None:
            _show(api, output, names, has_tables=tables)

        watch(output, show, every_s=every)
        return
    problems = _show(api, output, names, has_tables=tables)
    output.flush()
    if problems:
        name, first = problems[0]
        raise CommandFailed(f"{name}: {first}", hint="docs/cdc.md says what to do", code=ExitCode.UNHEALTHY)


def _show(api: ConnectApi, output: Output, names: list[str] | None, *, has_tables: bool) -> list[tuple[str, str]]:
    """Print all sources; return what is wrong with each."""
    found = cdc_sources(api, names)
    if not found and not output.as_json:
        output.talk("no connector captures changes of a database")
    problems = []
    rows = []
    for name, each in found.items():
        problems += [(name, sentence) for sentence in each["problems"]]
        if output.as_json:
            output.json_line({"connector": name, **each})
        else:
            rows.append(_cells(name, each))
    if rows:
        output.table(["source", "state", "database", "behind", "delay", "slot", "holds", "snapshot", "tables"], rows)
    for name, each in found.items() if not output.as_json else ():
        if has_tables and each.get("tables"):
            output.line("")
            columns = ["table", "topic", "columns", "key", "identity", "schema"]
            output.table(columns, [_table_cells(table) for table in each["tables"]])
        for sentence in each["problems"]:
            output.line(f"{name}: {sentence}")
    return problems


def _cells(name: str, found: dict[str, Any]) -> list[object]:
    slot = found.get("slot") or {}
    behind, delay = found.get("behind_bytes"), found.get("behind_s")
    state = slot.get("wal_status") if slot.get("is_active") else "unread"
    return [
        name,
        found["state"],
        found.get("database") or "-",
        "-" if behind is None else size(behind),
        "-" if delay is None else span(delay),
        f"{slot['name']} ({state})" if slot else "-",
        size(slot["held_bytes"]) if slot else "-",
        found.get("snapshot") or "-",
        count(len(found.get("tables") or ()), "table"),
    ]


def _table_cells(table: dict[str, Any]) -> list[object]:
    return [
        table["table"],
        table["topic"],
        table["columns"],
        ", ".join(table["key"]) or "none",
        table["identity"],
        table.get("schema_version") or "-",
    ]
