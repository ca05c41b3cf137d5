"""`strandline connect list`."""

from __future__ import annotations

from typing import Any

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.worker_api import FAILED, ConnectApi


def list_connectors(
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List connectors: their kinds, classes, states and tasks."""
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    rows = [_row(name, found) for name, found in api.connectors().items()]
    if as_json:
        for row in rows:
            output.json_line(row)
    elif not rows:
        output.talk("there are no connectors: `strandline connect apply FILE` creates those of a file")
    else:
        columns = ["name", "type", "class", "state", "tasks", "running", "failed"]
        output.table(columns, [[row[each] for each in columns] for row in rows])
    output.flush()


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    info, status = found.get("info") or {}, found.get("status") or {}
    states = [each["state"] for each in status.get("tasks", ())]
    return {
        "name": name,
        "type": info.get("type") or "unknown",
        "class": info.get("config", {}).get("connector.class", "-"),
        "state": status.get("connector", {}).get("state", "UNASSIGNED"),
        "tasks": len(info.get("tasks", ())),
        "running": states.count("RUNNING"),
        "failed": states.count(FAILED),
    }
