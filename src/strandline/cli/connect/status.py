"""`strandline connect status`: connectors, their tasks, and why one does not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.worker_api import FAILED, ConnectApi, first_sentence


def status(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The connectors; without one, all.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the whole trace of what failed.")] = False,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show the state of connectors and of their tasks, and which worker runs them. Exit code 5 if one has failed."""
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    found = api.connectors(names)
    rows = [row for name, each in found.items() for row in _rows(name, each)]
    if as_json:
        for row in rows:
            output.json_line(row)
    elif not rows:
        output.talk("there are no connectors")
    else:
        columns = ["connector", "task", "state", "worker", "reason"]
        output.table(columns, [_cells(row) for row in rows])
        for row in rows:
            if trace and row["trace"]:
                output.line(f"\n{row['connector']} {_unit(row)}:\n{row['trace'].rstrip()}")
    output.flush()
    _check(rows)


def _rows(name: str, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for the connector, then one for each task."""
    told = found.get("status") or {"connector": {"state": "UNASSIGNED", "worker_id": ""}, "tasks": []}
    kind = (found.get("info") or {}).get("type") or told.get("type")
    for number, unit in [(None, told["connector"]), *((each["id"], each) for each in told["tasks"])]:
        yield {
            "connector": name,
            "type": kind,
            "task": number,
            "state": unit["state"],
            "worker": unit.get("worker_id") or None,
            "reason": first_sentence(unit.get("trace")) or None,
            "trace": unit.get("trace"),
        }


def _cells(row: dict[str, Any]) -> list[object]:
    task = "-" if row["task"] is None else row["task"]
    return [row["connector"], task, row["state"], row["worker"] or "-", row["reason"] or "-"]


def _unit(row: dict[str, Any]) -> str:
    return "itself" if row["task"] is None else f"task {row['task']}"


def _check(rows: list[dict[str, Any]]) -> None:
    failed = [row for row in rows if row["state"] == FAILED]
    if not failed:
        return
    names = list(dict.fromkeys(row["connector"] for row in failed))
    first = failed[0]
    why = f": {first['reason']}" if first["reason"] else ""
    raise CommandFailed(
        f"{count(len(names), 'connector')} failed: {first['connector']} {_unit(first)}{why}",
        hint=f"mend the cause, then `strandline connect restart {names[0]} --tasks --failed`",
        code=ExitCode.UNHEALTHY,
    )
