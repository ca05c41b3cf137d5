"""`strandline schema show`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.texts import readable


def show(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="The subject.")] = None,
    version: Annotated[str, typer.Option("--version", metavar="N", help="Its version.")] = "latest",
    schema_id: Annotated[int | None, typer.Option("--id", metavar="ID", min=0, help="A schema by its id.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Also a version that was deleted.")] = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show a schema: of a subject, or by its id."""
    if (subject is None) == (schema_id is None):
        raise UsageFailed("say which schema: a SUBJECT, or --id ID")
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    if schema_id is not None:
        found = {"id": schema_id, **api.ask("GET", "schemas", "ids", str(schema_id))}
    else:
        assert subject is not None
        found = api.ask("GET", "subjects", subject, "versions", version, deleted=deleted)
    if as_json:
        output.json_line(found)
    else:
        kind = found.get("schemaType", "AVRO")
        name = f"{found['subject']} version {found['version']}, " if "subject" in found else ""
        output.talk(f"{name}id {found['id']}, {kind}" + (", deleted" if found.get("deleted") else ""))
        for each in found.get("references", ()):
            output.talk(f"  {each['name']} is {each['subject']} version {each['version']}")
        output.line(readable(found["schema"], kind))
    output.flush()
