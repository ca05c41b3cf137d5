"""`strandline schema list`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.registry_api import SchemaApi

_PAGE = 500


def list_schemas(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only subjects that begin so.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Also what was deleted, but not for good.")] = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List subjects with their last version."""
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    found: list[dict[str, object]] = []
    more = {"subjectPrefix": prefix} if prefix else {}
    while True:
        page = api.ask("GET", "schemas", latestOnly=True, deleted=deleted, offset=len(found), limit=_PAGE, **more)
        found += page
        if len(page) < _PAGE:
            break
    rows = [
        {
            "subject": each["subject"],
            "version": each["version"],
            "id": each["id"],
            "type": each.get("schemaType", "AVRO"),
            "deleted": each.get("deleted", False),
        }
        for each in found
    ]
    if as_json:
        for row in rows:
            output.json_line(row)
    elif not rows:
        output.talk("there are no schemas" + (f" of subjects that begin with {prefix}" if prefix else ""))
    else:
        columns = ["subject", "version", "id", "type"] + (["deleted"] if deleted else [])
        cells = [[("yes" if row[name] else "") if name == "deleted" else row[name] for name in columns] for row in rows]
        output.table(columns, cells)
    output.flush()
