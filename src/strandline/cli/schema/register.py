"""`strandline schema register` and `strandline schema check`: a schema in a file, and a subject."""

from __future__ import annotations

from typing import Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import ExitCode
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.access import (
    REGISTRY_DEFAULT,
    Normalize,
    References,
    RegistryUrl,
    SchemaApi,
    SchemaFile,
    SchemaTypeName,
    SubjectName,
    schema_body,
)


def register(
    subject: SubjectName,
    file: SchemaFile,
    kind: SchemaTypeName = None,
    references: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Register a schema as the next version of a subject, unless it is there."""
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    body = schema_body(file, kind, references)
    found = api.ask("POST", "subjects", subject, "versions", body=body, normalize=normalize)
    # Older registries answer with the id alone.
    version = found.get("version")
    if version is None:
        version = api.ask("POST", "subjects", subject, body=body, normalize=normalize)["version"]
    if as_json:
        output.json_line({"subject": subject, "version": version, "id": found["id"]})
    else:
        output.line(f"{subject} version {version} has the id {found['id']}")
    output.flush()


def check(
    subject: SubjectName,
    file: SchemaFile,
    kind: SchemaTypeName = None,
    references: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Say whether a subject would take a schema, and if not, why. Exit code 5 if not."""
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    body = schema_body(file, kind, references)
    path = ("compatibility", "subjects", subject, "versions")
    found: dict[str, Any] = api.ask("POST", *path, body=body, verbose=True, normalize=normalize)
    if as_json:
        output.json_line({"subject": subject, **found})
    elif found["is_compatible"]:
        output.line(f"{subject} takes this schema")
    else:
        output.line(f"{subject} does not take this schema:")
        for message in found.get("messages", ()):
            output.line(f"  {message}")
    output.flush()
    if not found["is_compatible"]:
        raise typer.Exit(ExitCode.UNHEALTHY)
