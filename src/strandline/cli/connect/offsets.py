"""`strandline connect offsets`: where a connector goes on."""

from __future__ import annotations

import json
from typing import Any

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.connect.access import URL_DEFAULT, CaFile, ConnectorName, TokenFile, WorkerUrl
from strandline.cli.connect.worker_api import ConnectApi


def offsets(
    name: ConnectorName,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show the positions of a connector: of a source in what it reads, of a sink in its topics."""
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    api.connectors([name])
    found = api.ask("GET", "connectors", name, "offsets")["offsets"]
    if as_json:
        for each in found:
            output.json_line({"connector": name, **each})
    elif not found:
        output.talk(f"{name} has no positions yet: it begins at the beginning")
    elif all("kafka_topic" in each["partition"] for each in found):
        cells = [_sink_cells(each) for each in found]
        output.table(["topic", "partition", "offset"], sorted(cells, key=str))
    else:
        output.table(["partition", "offset"], [[text(each["partition"]), text(each["offset"])] for each in found])
    output.flush()


def text(value: Any) -> str:
    """Return a partition or offset of a source in one line: `filename=a.txt`."""
    if value is None:
        return "-"
    shown = {
        name: each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for name, each in value.items()
    }
    return " ".join(f"{name}={each}" for name, each in shown.items())


def _sink_cells(position: dict[str, Any]) -> list[object]:
    offset = (position["offset"] or {}).get("kafka_offset")
    return [
        position["partition"]["kafka_topic"],
        position["partition"]["kafka_partition"],
        "-" if offset is None else offset,
    ]
